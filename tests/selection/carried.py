"""Selection problems of kernels: values at layouts, loops that carry some of them, and what conversions cost there."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from eggshard.selection.problem import Choice, Problem

Matrix = np.ndarray


class Kernel:
    """A problem under construction. Placements are layouts, the same of all values.

    ``apart[p, q]``: 0 for layouts that hold the same alike, else what moving one element costs. Outside of loops the
    weight of what is computed is 1, inside it is multiplied by trips.
    """

    def __init__(self, rng: random.Random, apart: Matrix) -> None:
        self.rng, self.apart = rng, apart
        self.layouts = range(len(apart))
        self.weight = 1.0
        self.choices: list[list[Choice]] = []
        self.conversions: list[Matrix] = []
        self.size: list[float] = []
        self.single: set[int] = set()
        self.roots: list[tuple[int, int]] = []

    def problem(self) -> Problem:
        return Problem(self.choices, self.conversions, list(dict.fromkeys(self.roots)), single=frozenset(self.single))

    def value(self, choices: Sequence[Choice], size: float, fixed: bool = False) -> int:
        """A class of elements that take ``size``; ``fixed``: it cannot be converted."""
        self.choices.append(list(choices))
        self.size.append(size)
        alone = np.where(np.eye(len(self.apart), dtype=bool), 0.0, np.inf)
        self.conversions.append(alone if fixed else self.apart * size * self.weight)
        return len(self.choices) - 1

    def load(self, size: float, layouts: Sequence[int] | None = None, cost: float = 8.0) -> int:
        """A value from memory, at one of these layouts (any layout)."""
        return self.value([Choice(p, cost * size * self.weight, ()) for p in layouts or self.layouts], size)

    def pointwise(
        self, operands: Sequence[int], size: float, cost: float = 0.25, layouts: Sequence[int] | None = None
    ) -> int:
        """All at the same layout, one of these; so are slices, expanded dimensions and reductions, up to names."""
        row = []
        for p in layouts or self.layouts:
            needs = tuple(dict.fromkeys((a, p) for a in operands))
            row.append(Choice(p, cost * size * self.weight * (1 + p % 2), needs))
        return self.value(row, size)

    def dot(self, x: int, y: int, accumulator: int, size: float, layouts: tuple[int, int, int]) -> int:
        """Operands and result at layouts of their own."""
        p, q, out = layouts
        needs = tuple(dict.fromkeys([(x, p), (y, q), (accumulator, out)]))
        return self.value([Choice(out, 2.0 * size * self.weight, needs)], size)

    def store(self, x: int, layouts: Sequence[int] | None = None, cost: float = 4.0) -> None:
        """A root that takes the value at one of these layouts (any layout)."""
        size = self.size[x]
        row = [Choice(0, cost * size * self.weight * (1 + p % 2), ((x, p),)) for p in layouts or self.layouts]
        self.roots.append((self.value(row, size, fixed=True), 0))

    def enter(self, initial: Sequence[int], trips: float, fixed: bool = False) -> list[int]:
        """What a loop carries, each at one layout; ``fixed``: its uses take it there, and convert what they make."""
        carried = [self.value([Choice(p, 0.0, ((a, p),)) for p in self.layouts], self.size[a], fixed=True)
                   for a in initial]
        self.single.update(carried)
        self.weight *= trips
        if fixed:
            return carried
        return [self.value([Choice(p, 0.0, ((k, p),)) for p in self.layouts], self.size[k]) for k in carried]

    def leave(self, inside: Sequence[int], yielded: Sequence[int], trips: float) -> list[int]:
        """What the loop gives: each value carried on at the layout at which it was carried. ``inside``: by `enter`."""
        self.weight /= trips
        given = []
        for k, y in zip(inside, yielded, strict=True):
            (carried,) = {k} if k in self.single else {a for s in self.choices[k] for a, _ in s.needs}
            given.append(self.value([Choice(p, 0.0, ((carried, p), (y, p))) for p in self.layouts], self.size[k]))
        return given


def layouts(rng: random.Random, count: int, equal: float = 0.3, near: float = 0.3) -> Matrix:
    """Some layouts are equal but for names, some near (shuffles inside a warp), the others far (shared memory)."""
    place = [(0, 0)]
    while len(place) < count:
        draw, (group, sub) = rng.random(), rng.choice(place)
        place.append((group, sub) if draw < equal else (group, len(place)) if draw < equal + near else (len(place), 0))
    return np.array([[0.0 if p == q else 1.0 if p[0] == q[0] else 6.0 for q in place] for p in place])


def small_loops(rng: random.Random, values: int = 12) -> Problem:
    """Small enough to enumerate: loads, loops in loops with up to three carried values, used at several layouts."""
    kernel = Kernel(rng, layouts(rng, rng.randint(2, 3), 0.15))
    _body(kernel, rng, [kernel.load(rng.choice((1.0, 2.0)), _some(rng, kernel)) for _ in range(2)], values, 2)
    problem = kernel.problem()
    for c in rng.sample(range(len(problem.choices)), 2):  # choices that are missing, or cost something else
        problem.choices[c] = [s._replace(cost=s.cost * rng.choice((1.0, 1.0, 0.0, 3.0))) for s in problem.choices[c]]
    return problem


def _body(
    kernel: Kernel, rng: random.Random, there: Sequence[int], values: int, depth: int, inside: Sequence[int] = ()
) -> list[int]:
    there = list(there)
    while len(kernel.choices) < values:
        if depth and rng.random() < 0.35:
            trips = float(rng.choice((1, 4, 32)))
            fixed = rng.random() < 0.5
            inside = kernel.enter(rng.sample(there, min(len(there), rng.randint(1, 3))), trips, fixed)
            taken = [*inside, rng.choice(there)]
            made = _body(kernel, rng, taken, len(kernel.choices) + rng.randint(2, 6), depth - 1, inside)
            pool = made[-3:] + inside[:1]
            there += kernel.leave(inside, [rng.choice(pool) for _ in inside], trips)
        elif rng.random() < 0.15:
            there.append(kernel.load(1.0, _some(rng, kernel)))
        else:
            operands = [rng.choice(inside if inside and rng.random() < 0.4 else there[-4:])
                        for _ in range(rng.choice((1, 1, 2)))]
            anchored = _some(rng, kernel) if rng.random() < 0.4 else None
            size, cost = rng.choice((1.0, 1.0, 2.0)), rng.choice((0.0, 0.25, 3.0))
            there.append(kernel.pointwise(operands, size, cost, anchored))
    if kernel.weight == 1.0 and not kernel.roots:
        for x in {there[-1], rng.choice(there)}:
            kernel.store(x, _some(rng, kernel))
    return there


def _some(rng: random.Random, kernel: Kernel) -> list[int]:
    return rng.sample(list(kernel.layouts), rng.choice((1, 1, len(kernel.layouts))))


def large_kernel(
    rng: random.Random, values: int = 500, count: int = 12, carried: int = 5, equal: float = 0.0
) -> Problem:
    """A kernel of long chains: loads that prefer some layouts, two loops with dots at layouts of their own, reductions
    whose results are expanded again, and stores."""
    kernel = Kernel(rng, layouts(rng, count, equal))
    there = [kernel.load(rng.choice((1.0, 2.0, 4.0))) for _ in range(6)]
    prefer(kernel, rng, there)
    for trips in (32.0, 1024.0):
        there += [_chain(kernel, rng, rng.sample(there, 2), values // 40) for _ in range(4)]
        inside = kernel.enter([rng.choice(there) for _ in range(carried)], trips)
        body = [*inside]
        target = len(kernel.choices) + values // 3
        loaded = [kernel.load(rng.choice((2.0, 4.0))) for _ in range(3)]
        prefer(kernel, rng, loaded)
        body += loaded
        while len(kernel.choices) < target:
            kind = rng.random()
            if kind < 0.15:
                x, y, a = (rng.choice(body) for _ in range(3))
                p, q, out = (rng.randrange(count) for _ in range(3))
                body.append(kernel.dot(x, y, a, 4.0, (p, q, out)))
            elif kind < 0.4:  # a reduction, expanded again and used beside what was reduced
                x = rng.choice(body[-4:])
                row = _chain(kernel, rng, [kernel.pointwise([x], 0.1)], 3, 0.1)
                body.append(kernel.pointwise([x, row], 4.0))
            else:
                body.append(_chain(kernel, rng, [rng.choice(body[-6:]) for _ in range(rng.choice((1, 2)))], 8))
        there += kernel.leave(inside, [rng.choice(body[-8:]) for _ in inside], trips)
    for x in there[-6:]:
        y = _chain(kernel, rng, [x], values // 60)
        kernel.store(y, None if rng.random() < 0.3 else [rng.randrange(count)])
    return kernel.problem()


def prefer(kernel: Kernel, rng: random.Random, loaded: Sequence[int]) -> None:
    """Make all but a few layouts of loads dear."""
    for c in loaded:
        good = set(rng.sample(list(kernel.layouts), 2))
        kernel.choices[c] = [s if s.out in good else s._replace(cost=8 * s.cost) for s in kernel.choices[c]]


def _chain(kernel: Kernel, rng: random.Random, operands: Sequence[int], length: int, size: float = 0.0) -> int:
    x = kernel.pointwise(operands, size or rng.choice((2.0, 4.0)))
    for _ in range(length - 1):
        more = [rng.choice(operands)] if rng.random() < 0.1 else []
        x = kernel.pointwise([x, *more], size or rng.choice((2.0, 4.0, 4.0, 4.0)), rng.choice((0.25, 0.25, 2.0)))
    return x
