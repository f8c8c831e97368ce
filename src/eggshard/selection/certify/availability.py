"""The integer program over shards: which are computed, which converted to, and which are there for what needs them.

Variables: x[s], choice s is computed; r[c,p,q], a conversion is paid; there[c,q]. Rows: a choice is computed only if
what it needs is there; a shard is there if it is computed or converted to; a conversion starts at what is computed. It
knows nothing of how often a class is computed, so it is the tight program where plans compute much at several
placements, as kernels do; where they do not, that of `edge_model` is. Circles it cannot have: `solve` asks for none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eggshard.selection.certify.highs import Model
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Selection
from eggshard.selection.verify import complete

#: The solver's units: its tolerances (1e-7) are then relative to what matters.
SCALE, TINY = 1e3, 1e-300


class Answer(NamedTuple):
    """The best plan found, and a bound on all plans that cost no more than the incumbent."""

    plan: Selection | None
    bound: float


class _Rows:
    """Rows ``sum of entries >= low``, as coordinates."""

    def __init__(self) -> None:
        self.low: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []

    def add(self, low: float, *entries: tuple[list[int], float]) -> None:
        number = len(self.low)
        self.low.append(low)
        for columns, value in entries:
            self.row += [number] * len(columns)
            self.column += columns
            self.value += [value] * len(columns)


def solve(graph: Graph, incumbent: Selection | None, seconds: float, gap: float) -> Answer:
    """Solve the program of a problem without circles, from a valid plan if one is known, for about ``seconds``.

    Choices and conversions that alone cost more than the incumbent are left out. Raises `SolverError`.
    """
    problem = graph.problem
    limit = math.inf if incumbent is None else incumbent.cost
    cost: list[float] = []
    rows = _Rows()

    def column(price: float) -> int:
        cost.append(price)
        return len(cost) - 1

    needed: list[dict[int, None]] = [{} for _ in problem.choices]
    for choices in problem.choices:
        for choice in choices:
            if choice.cost <= limit and choice.cost < math.inf:
                for a, q in choice.needs:
                    needed[a][q] = None
    for c, q in problem.roots:
        needed[c][q] = None
    computed = [[column(s.cost) if s.cost <= limit and s.cost < math.inf else -1 for s in choices]
                for choices in problem.choices]
    integers = [x for some in computed for x in some if x >= 0]
    there: dict[tuple[int, int], int] = {}
    for c, placements in enumerate(needed):
        made: dict[int, list[int]] = {}
        for x, choice in zip(computed[c], problem.choices[c], strict=True):
            if x >= 0:
                made.setdefault(choice.out, []).append(x)
        table = problem.conversions[c]
        for q in placements:
            here = there[c, q] = column(0.0)
            sources = list(made.get(q, ()))
            for p, some in made.items():
                if p != q and table[p, q] <= limit and table[p, q] < math.inf:
                    paid = column(float(table[p, q]))
                    sources.append(paid)
                    rows.add(0.0, (some, 1.0), ([paid], -1.0))
            rows.add(0.0, (sources, 1.0), ([here], -1.0))
        if c in problem.single:
            rows.add(-1.0, ([x for some in made.values() for x in some], -1.0))
    for c, choices in enumerate(problem.choices):
        for x, choice in zip(computed[c], choices, strict=True):
            if x >= 0:
                for need in choice.needs:
                    rows.add(0.0, ([there[need]], 1.0), ([x], -1.0))
    for c in graph.essential:  # the rows above let half a shard serve, converted, two halves of what is needed
        rows.add(1.0, ([x for x in computed[c] if x >= 0], 1.0))
    for root in problem.roots:
        rows.add(1.0, ([there[root]], 1.0))
    unit = SCALE / max(sum(cost) if incumbent is None else incumbent.cost, TINY)
    model = Model()
    none = np.zeros(0, np.int64)
    model.add_columns(np.array(cost) * unit, np.ones(len(cost)), none, none, np.zeros(0))
    low = np.array(rows.low)
    model.add_rows(low, np.full(len(low), math.inf), np.array(rows.row), np.array(rows.column), np.array(rows.value))
    start = np.array(integers)
    chosen = {computed[c][s] for c, some in incumbent.chosen.items() for s in some} if incumbent is not None else set()
    values = np.array([float(x in chosen) for x in integers])
    found = model.solve_integer(start, seconds, gap, (start, values) if incumbent is not None else None)
    plan = None
    if found.values is not None:
        plan = complete(problem, {
            c: [s for s, x in enumerate(some) if x >= 0 and found.values[x] > 0.5]
            for c, some in enumerate(computed)
            if any(x >= 0 and found.values[x] > 0.5 for x in some)})
    return Answer(plan, min(found.bound / unit, limit))
