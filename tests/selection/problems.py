"""Random and synthetic selection problems, and the exhaustive optimum of small ones."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
from hypothesis import strategies as st

from eggshard.selection.problem import Choice, Problem
from eggshard.selection.verify import complete


def random_conversions(rng: random.Random, size: int, impossible: float = 0.1, free: float = 0.15) -> np.ndarray:
    """A random matrix of conversion costs that obeys the triangle inequality."""
    costs = np.array([[rng.choice([1.0, 2.0, 3.0, 5.0, 8.0]) for _ in range(size)] for _ in range(size)])
    for p, q in itertools.product(range(size), repeat=2):
        draw = rng.random()
        if draw < impossible:
            costs[p, q] = math.inf
        elif draw < impossible + free:
            costs[p, q] = 0.0
    np.fill_diagonal(costs, 0.0)
    for via in range(size):
        costs = np.minimum(costs, costs[:, via, None] + costs[None, via, :])
    return costs


def random_problem(
    rng: random.Random, classes: int = 4, placements: int = 3, choices: int = 3, cyclic: bool = False,
    free: float = 0.3,
) -> Problem:
    """A feasible random problem: class 0 (and sometimes others) is an input; alternatives need different operands."""
    table: list[list[Choice]] = []
    for c in range(classes):
        row: dict[tuple, Choice] = {}
        for _ in range(rng.randint(1, choices)):
            operands = [] if c == 0 else [rng.randrange(c) for _ in range(rng.choice([1, 1, 2]))]
            if cyclic and c and rng.random() < 0.4:
                operands = [rng.randrange(classes) for _ in range(rng.choice([1, 2]))]
            needs = tuple(dict.fromkeys((a, rng.randrange(placements)) for a in operands))
            cost = 0.0 if rng.random() < free else float(rng.choice([1, 2, 4, 7]))
            if rng.random() < 0.05:
                cost = math.inf
            choice = Choice(rng.randrange(placements), cost, needs)
            row.setdefault((choice.out, choice.needs), choice)
        table.append(list(row.values()))
    conversions = [random_conversions(rng, placements) for _ in range(classes)]
    roots = [(classes - 1, rng.randrange(placements))]
    if rng.random() < 0.3:
        roots.append((rng.randrange(classes), rng.randrange(placements)))
    return Problem(table, conversions, list(dict.fromkeys(roots)))


def brute_force(problem: Problem, copies: bool = True) -> float:
    """The optimum over all sets of choices, or over those that compute nothing twice; inf if there is no plan."""
    options = []
    for choices in problem.choices:
        outs: dict[int, list[int]] = {}
        for s, choice in enumerate(choices):
            if math.isfinite(choice.cost):
                outs.setdefault(choice.out, []).append(s)
        sets = [tuple(s for s in pick if s is not None)
                for pick in itertools.product(*[[None, *some] for some in outs.values()])]
        options.append([some for some in sets if copies or len(some) < 2])
    best = math.inf
    for pick in itertools.product(*options):
        chosen = {c: some for c, some in enumerate(pick) if some}
        if sum(problem.choices[c][s].cost for c, some in chosen.items() for s in some) >= best:
            continue
        selection = complete(problem, chosen)
        if selection is not None:
            best = min(best, selection.cost)
    return best


def sharded_program(rng: random.Random, values: int, placements: int = 13, choices: int = 30, inputs: int = 8,
                    compute: float = 1.0) -> Problem:
    """A DAG of one- and two-operand ops with many strategies each, bytes-like conversion costs."""
    table: list[list[Choice]] = []
    conversions = []
    for c in range(values):
        size = rng.choice([1.0, 2.0, 4.0, 8.0])
        conversions.append(placement_costs(placements, size))
        if c < inputs:
            table.append([Choice(rng.randrange(placements), 0.0, ())])
            continue
        operands = [rng.randrange(max(0, c - 6), c) for _ in range(rng.choice([1, 2, 2]))]
        row = {}
        if len(set(operands)) == 1:
            for p in range(placements):
                row[p, ((operands[0], p),)] = Choice(p, compute * size * (2.0 if p == 0 else 1.0), ((operands[0], p),))
        while len(row) < choices and len(set(operands)) > 1:
            out = rng.randrange(placements)
            needs = tuple((a, rng.randrange(placements)) for a in operands)
            row[out, needs] = Choice(out, compute * size * rng.choice([1.0, 1.0, 2.0]), needs)
        table.append(list(row.values()))
    used = {a for row in table for s in row for a, _ in s.needs}
    roots = [(c, rng.randrange(placements)) for c in range(values) if c not in used]
    return Problem(table, conversions, roots)


def placement_costs(placements: int, size: float) -> np.ndarray:
    """Placement 0 is replicated (everything is a free view of it); the others lie on a ring of shardings."""
    costs = np.zeros((placements, placements))
    for p in range(placements):
        for q in range(placements):
            if p and p != q:
                costs[p, q] = size * (1.0 if q == 0 else 0.25 + 0.05 * (abs(p - q) % 5))
    for via in range(placements):
        costs = np.minimum(costs, costs[:, via, None] + costs[None, via, :])
    return costs


AXES = ((None, None), (0, None), (1, None), (None, 0), (None, 1), (0, 1), (1, 0), ((0, 1), None), (None, (0, 1)))


def residual_mlp(layers: int, batch: int = 4096, width: int = 1024, hidden: int = 4096, mesh: tuple[int, int] = (4, 2),
                 compute: float = 0.0, candidates: int | None = None, seed: int = 0) -> Problem:
    """x + W2 relu(W1 x + b1) + b2 per layer on a 2-D mesh, 9 placements of matrices, bytes as costs.

    ``layers * 10 + 1`` classes (weights included). Contraction over a sharded dimension pays its all-reduce in the
    choice. ``candidates`` keeps that many random placements of each value (and replication).
    """
    rng = random.Random(seed)
    table: list[list[Choice]] = []
    conversions: list[np.ndarray] = []

    def add(rows: int, cols: int, choices: list[Choice]) -> int:
        table.append(choices)
        conversions.append(_matrix_conversions(rows, cols, mesh))
        return len(table) - 1

    def kept() -> set[int]:
        everywhere = range(len(AXES))
        return set(everywhere) if candidates is None else {0, *rng.sample(everywhere, candidates)}

    def pointwise(rows: int, cols: int, *operands: int) -> int:
        return add(rows, cols, [
            Choice(p, compute * rows * cols / _shards(AXES[p][0], mesh) / _shards(AXES[p][1], mesh),
                   tuple((a, p) for a in operands)) for p in sorted(kept())])

    def matmul(rows: int, inner: int, cols: int, x: int, w: int) -> int:
        choices = []
        outs = kept()
        for (p, (m, k)), (q, (k2, n)) in itertools.product(enumerate(AXES), repeat=2):
            if k == k2 and not set(_axes(m)) & set(_axes(n)) and (m, n) in AXES and AXES.index((m, n)) in outs:
                parts = _shards(k, mesh)
                local = rows / _shards(m, mesh) * cols / _shards(n, mesh)
                ring = 2 * (parts - 1) / parts * local * 4
                choices.append(Choice(AXES.index((m, n)), ring + compute * local * inner / parts, ((x, p), (w, q))))
        return add(rows, cols, choices)

    def leaf(rows: int, cols: int, placement: int) -> int:
        return add(rows, cols, [Choice(placement, 0.0, ())])

    x = leaf(batch, width, 1)
    for _ in range(layers):
        w1, b1 = leaf(width, hidden, 4), leaf(batch, hidden, 0)
        w2, b2 = leaf(hidden, width, 2), leaf(batch, width, 0)
        h = pointwise(batch, hidden, pointwise(batch, hidden, matmul(batch, width, hidden, x, w1), b1))
        x = pointwise(batch, width, x, pointwise(batch, width, matmul(batch, hidden, width, h, w2), b2))
    return Problem(table, conversions, [(x, 1)])


def _axes(part: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return () if part is None else part if isinstance(part, tuple) else (part,)


def _shards(part: int | tuple[int, ...] | None, mesh: tuple[int, int]) -> int:
    return math.prod(mesh[a] for a in _axes(part))


def _matrix_conversions(rows: int, cols: int, mesh: tuple[int, int]) -> np.ndarray:
    """Bytes needed and not held, made to obey the triangle inequality."""

    def common(p: int | tuple[int, ...] | None, q: int | tuple[int, ...] | None) -> float:
        """The part of a dimension that a device holds under both p and q."""
        if not _axes(p) or not _axes(q) or set(_axes(p)) & set(_axes(q)):
            return 1 / max(_shards(p, mesh), _shards(q, mesh))
        return 1 / _shards(p, mesh) / _shards(q, mesh)

    costs = np.zeros((len(AXES), len(AXES)))
    for (p, (pr, pc)), (q, (qr, qc)) in itertools.product(enumerate(AXES), repeat=2):
        need = rows / _shards(qr, mesh) * cols / _shards(qc, mesh)
        costs[p, q] = 0 if p == q else max(0.0, need - rows * cols * common(pr, qr) * common(pc, qc))
    for via in range(len(AXES)):
        costs = np.minimum(costs, costs[:, via, None] + costs[None, via, :])
    return costs * 4


def stencil_windows(steps: int, alpha: float, width: int = 8, fields: int = 1) -> Problem:
    """A 3-point stencil op by op: two shifted terms and a centre term per step; placement w is a halo of w.

    A narrower halo is a free view of a wider one; exchanging up to w costs ``alpha`` plus the elements received;
    computing at halo w costs the redundant elements. The root needs halo 0; the optimum for large alpha is one
    exchange.
    """
    size = width + 1
    costs = np.array([[0.0 if q <= p else alpha + 0.02 * (q - p) for q in range(size)] for p in range(size)])
    table: list[list[Choice]] = [[Choice(0, 0.0, ())]]

    def pointwise(extra: int, *operands: int) -> int:
        row = []
        for w in range(size - extra):
            row.append(Choice(w, 0.001 * 2 * w, tuple(dict.fromkeys((a, w + extra) for a in operands))))
        table.append(row)
        return len(table) - 1

    u = 0
    for _ in range(steps):
        left, right, centre = pointwise(1, u), pointwise(1, u), pointwise(0, u)
        both = pointwise(0, left, right)
        u = pointwise(0, both, centre)
    return Problem(table, [costs] * len(table), [(u, 0)])


@st.composite
def problems(draw):
    """Small problems: half with cycles; alternatives, copies, free and impossible conversions in most."""
    rng = random.Random(draw(st.integers(0, 10**9)))
    return random_problem(
        rng, classes=draw(st.integers(2, 5)), placements=draw(st.integers(1, 3)), choices=draw(st.integers(1, 4)),
        cyclic=draw(st.booleans()), free=draw(st.sampled_from([0, 0.3, 0.9])))
