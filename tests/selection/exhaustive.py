"""Random selection problems that are small enough to enumerate, and their optima, found without the extractors.

Half are made up: shared tensors, several roots, costs of zero and equal ones, conversions that are impossible, circles.
Half are what the planner encodes for random programs of at most `OPS` ops with `PLACEMENTS` placements per tensor.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.random_programs import random_case, random_model
from tests.selection.problems import random_problem

from eggshard.egraph.saturate import saturate
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.planner.bodies import plans_of
from eggshard.planner.context import Context
from eggshard.planner.encoding.encode import Encoder
from eggshard.program.placement import Placement, place
from eggshard.program.program import Program
from eggshard.rewrites import default_rules, select
from eggshard.selection.graph import strong_components
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.verify import check, price

OPS, PLACEMENTS = 12, 3

#: Sets of choices that are looked at before a problem counts as too large to enumerate.
MOST = 20_000

Need = tuple[int, int]
Demands = frozenset[Need]


class TooLarge(Exception):
    """More sets of choices than are worth looking at."""


def optimum(problem: Problem, most: int = MOST) -> float:
    """The least cost of any plan, inf without one; raises `TooLarge`.

    Consumers first: what is demanded of a class (or a circle of classes) and of those below it is all that matters to
    them, so every set of choices is tried once per set of demands.
    """
    return _Enumeration(problem, most).least()


class _Enumeration:
    def __init__(self, problem: Problem, most: int) -> None:
        self.problem, self.left = problem, most
        #: choices[c]: of those of equal placement and needs the cheapest.
        self.choices: list[list[Choice]] = []
        for row in problem.choices:
            cheapest: dict[tuple[int, tuple[Need, ...]], Choice] = {}
            for choice in sorted(row, key=lambda choice: choice.cost):
                if choice.cost < math.inf and (choice.out, choice.needs) not in cheapest:
                    cheapest[choice.out, choice.needs] = choice
            self.choices.append(list(cheapest.values()))
        self.parts = strong_components([
            tuple(dict.fromkeys(a for choice in row for a, _ in choice.needs)) for row in self.choices])
        self.known: dict[tuple[int, Demands], float] = {}

    def least(self) -> float:
        return self._below(len(self.parts) - 1, frozenset(self.problem.roots))

    def _below(self, part: int, demands: Demands) -> float:
        """What the demands on the first ``part + 1`` parts cost."""
        while part >= 0 and not any(c in self.parts[part] for c, _ in demands):
            part -= 1
        if part < 0:
            return 0.0
        if (part, demands) not in self.known:
            members = self.parts[part]
            here = [need for need in demands if need[0] in members]
            others = demands.difference(here)
            self.known[part, demands] = min(
                (cost + self._below(part - 1, others | passed) for cost, passed in self._ways(members, here)),
                default=math.inf)
        return self.known[part, demands]

    def _ways(self, members: list[int], here: list[Need]) -> Iterator[tuple[float, Demands]]:
        """Every set of choices of a part that meets the demands on it: its cost, and what it demands of others."""
        options = []
        for c in members:
            by_out: dict[int, list[Choice | None]] = {}
            for choice in self.choices[c]:
                by_out.setdefault(choice.out, [None]).append(choice)
            picks = [[choice for choice in pick if choice] for pick in itertools.product(*by_out.values())]
            options.append([pick for pick in picks if len(pick) < 2 or c not in self.problem.single])
        for pick in itertools.product(*options):
            self.left -= 1
            if self.left < 0:
                raise TooLarge
            chosen = {(c, choice.out): choice for c, some in zip(members, pick, strict=True) for choice in some}
            needs = dict.fromkeys([*here, *(need for choice in chosen.values() for need in choice.needs)])
            inside = [need for need in needs if need[0] in members]
            converted = self._converted(chosen, inside)
            if converted < math.inf:
                cost = math.fsum(choice.cost for choice in chosen.values()) + converted
                yield cost, frozenset(need for need in needs if need[0] not in members)

    def _converted(self, chosen: dict[Need, Choice], inside: list[Need]) -> float:
        """What it costs to bring chosen shards to all needs in a part, in some order of computing."""
        sources = []
        for c, q in inside:
            table = self.problem.conversions[c]
            found = [q] if (c, q) in chosen else [p for a, p in chosen if a == c and table[p, q] < math.inf]
            sources.append(sorted(found, key=lambda p, table=table, q=q: float(table[p, q])))
        best = math.inf
        for some in itertools.product(*sources):
            self.left -= 1
            if self.left < 0:
                raise TooLarge
            cost = math.fsum(float(self.problem.conversions[c][p, q]) for (c, q), p in zip(inside, some, strict=True))
            if cost < best and _in_order(chosen, dict(zip(inside, some, strict=True))):
                best = cost
                if all(p == found[0] for p, found in zip(some, sources, strict=True)):
                    break  # the cheapest source of every need
        return best


def _in_order(chosen: dict[Need, Choice], sources: dict[Need, int]) -> bool:
    """Whether the chosen shards can be computed one after the other."""
    ready: set[Need] = set()
    while len(ready) < len(chosen):
        found = {shard for shard, choice in chosen.items() if shard not in ready and all(
            (need[0], sources[need]) in ready for need in choice.needs if need in sources)}
        if not found:
            return False
        ready |= found
    return True


def made_up(rng: random.Random) -> Problem:
    """A random problem; costs are often zero, often equal, and sometimes far apart."""
    problem = random_problem(
        rng, classes=rng.randint(3, OPS), placements=rng.randint(1, PLACEMENTS), choices=rng.randint(1, 7),
        cyclic=rng.random() < 0.6, free=rng.choice((0.0, 0.3, 0.9)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        c = rng.randrange(len(problem.choices))
        problem.roots.append((c, rng.randrange(len(problem.conversions[c]))))
    problem.roots = list(dict.fromkeys(problem.roots))
    style = rng.choice(("as drawn", "equal", "far apart"))
    if style != "as drawn":
        weight = (lambda cost: float(cost > 0)) if style == "equal" else (lambda cost: cost * 10 ** rng.uniform(-4, 4))
        problem.choices = [[s._replace(cost=weight(s.cost) if s.cost < math.inf else s.cost) for s in row]
                           for row in problem.choices]
    return problem


def encoded(rng: random.Random) -> Problem | None:
    """What the planner encodes for a random program; None for one that it refuses."""
    program = random_case(rng, OPS).program
    limits = Limits(placements=PLACEMENTS, strategies=16, rows=400)
    plans = plans_of(Context(program, random_model(rng), limits, False), ())
    try:
        graph = saturate(program.region, select(default_rules(), False), limits, program.mesh)
        outputs = [(graph.values[v], [_placed(rng, program, v)]) for v in program.region.outputs]
        hints = [(graph.values[v], plans.context.resolve(s, program.region.types[v]))
                 for v, s in enumerate(plans.hints.used) if s is not None and graph.values[v] >= 0]
        encoder = Encoder(graph, plans.strategies, plans.context.router, limits)
        problem = encoder.encode(dict(enumerate(plans.context.inputs)), outputs, lambda: hints).problem
    except EggshardError:
        return None
    return replace(problem, choices=[[s._replace(tag=None) for s in row] for row in problem.choices])


def _placed(rng: random.Random, program: Program, v: int) -> Placement:
    """Some placement of a value by one axis, or none."""
    shape, axes = program.region.types[v].shape, list(program.mesh.axes)
    dims: list[tuple[str, ...]] = [() for _ in shape]
    if shape and axes and rng.random() < 0.7:
        d, axis = rng.randrange(len(shape)), rng.choice(axes)
        if shape[d] % program.mesh.axes[axis] == 0:
            dims[d] = (axis,)
    return place(program.mesh, shape, tuple(dims))


@dataclass
class Tally:
    """How the extraction did where the optimum is known. unproved: the bound leaves more than the default gap."""

    cases: int = 0
    equal: int = 0
    above: int = 0
    unproved: int = 0
    circles: int = 0
    too_large: int = 0

    def take(self, problem: Problem, best: float, methods: tuple[str, ...] | None = None) -> list[str]:
        """Extract without a gap, compare, count; what is wrong."""
        found = extract(problem, seconds=60.0, gap=0.0, methods=methods)
        cost = found.selection.cost
        slack = 1e-9 * abs(best)
        wrong = check(problem, found.selection)
        if abs(cost - price(problem, found.selection)) > slack:
            wrong.append(f"the plan costs {price(problem, found.selection)!r}, not {cost!r}")
        if abs(cost - best) > slack:
            wrong.append(f"cost {cost!r}, the optimum is {best!r}: {found.notes}")
        if found.bound > best + slack:
            wrong.append(f"bound {found.bound!r} above the optimum {best!r}: {found.notes}")
            self.above += 1
        self.cases += 1
        self.equal += abs(cost - best) <= slack
        self.unproved += found.gap > Limits().gap
        return wrong


def cases(seed: int, count: int, real: bool, tally: Tally) -> Iterator[tuple[Problem, float]]:
    """``count`` problems with a plan, and the cost of the best one."""
    rng = random.Random(f"{seed} {real}")
    while count:
        problem = encoded(rng) if real else made_up(rng)
        if problem is None:
            continue
        try:
            best = optimum(problem)
        except TooLarge:
            tally.too_large += 1
            continue
        if best == math.inf:
            continue
        operands = [tuple({a for s in row if s.cost < math.inf for a, _ in s.needs}) for row in problem.choices]
        tally.circles += any(len(members) > 1 for members in strong_components(operands))
        count -= 1
        yield problem, best
