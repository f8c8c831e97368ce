"""The integer program over shards: which are computed, which are converted to, and which are available.

Variables: x[s], choice s is computed; r[c,p,q], a conversion is paid; there[c,q], a shard is available. Rows: a choice
is computed only if its needs are available; a shard is available if it is computed or converted to; a conversion starts
at a computed shard. Where some optimal plan computes at most one copy of a class, it uses its operands by one choice,
and what it takes flows between placements: f[use,p,q], no more than is computed at p, and no more than is paid for the
conversion (the local polytope of Markov random fields, tight on trees). Where classes can be computed from each other,
shards are ordered (Miller, Tucker and Zemlin, 1960): a shard comes after its needs within its own cycle. Rows that
every plan obeys (`covers`) strengthen the relaxation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eggshard.selection.copies import single_copies
from eggshard.selection.exact.covers import Columns, Covers
from eggshard.selection.exact.highs import Model, SolverError, deadline_left
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Selection
from eggshard.selection.verify import complete

#: The known plan's cost in the solver's units, so that its absolute tolerances (1e-7) are relative to what matters.
SCALE, TINY = 1e3, 1e-300
#: Relative error of an integer program's bound, from its integrality and feasibility tolerances (1e-8 and 1e-7).
TOLERANCE = 2e-7
#: Adding cover rows ends after this fraction of the work, or after `PATIENCE` rounds that each close less than the
#: fraction `PROGRESS` of the gap.
RELAXING, PATIENCE, PROGRESS = 0.5, 4, 0.02
#: Work of finding a cover row, per column.
COVER = 1e-6


class Answer(NamedTuple):
    """The best plan found, a bound on all plans that cost no more than the incumbent, and the work that this took."""

    plan: Selection | None
    bound: float
    work: float


def solve(
    graph: Graph, incumbent: Selection | None, work: float, gap: float, deadline: float = math.inf
) -> Answer:
    """Solve the program of a problem, from a valid plan if one is known.

    work: seconds that a usual core may take, counted by what the solver does; deadline: of `time.monotonic`. Choices
    and conversions that alone cost more than the incumbent are left out. Raises `SolverError`.
    """
    program = _Program(graph, math.inf if incumbent is None else incumbent.cost)
    return program.solve(incumbent, work, gap, deadline)


class _Program:
    def __init__(self, graph: Graph, limit: float) -> None:
        self.graph, self.problem, self.limit = graph, graph.problem, limit
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.integers: list[int] = []
        #: Rows ``sum of value * column >= low``, as coordinates.
        self.low: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        #: computed[c][s]: the column of a choice, -1 for one that is left out.
        self.computed = [
            [self._column(s.cost) if s.cost <= limit and s.cost < math.inf else -1 for s in choices]
            for choices in self.problem.choices]
        self.integers += [x for some in self.computed for x in some if x >= 0]
        #: The column of every shard that may be needed, and per class {out: the columns of its choices}.
        self.there: dict[tuple[int, int], int] = {}
        self.made: list[dict[int, list[int]]] = []
        #: (class, from, to): the column of the conversion.
        self.paid: dict[tuple[int, int, int], int] = {}
        self._single = single_copies(self.problem, graph.cyclic)
        self._add_shards()
        self._add_needs()
        for members in graph.components:
            if graph.cyclic[members[0]]:
                self._add_order(members)

    def _column(self, cost: float, upper: float = 1.0) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def _at_least(self, low: float, *entries: tuple[list[int], float]) -> None:
        number = len(self.low)
        self.low.append(low)
        for columns, value in entries:
            self.row += [number] * len(columns)
            self.column += columns
            self.value += [value] * len(columns)

    def _choices(self, c: int) -> list[tuple[int, Choice]]:
        """The choices of a class that are not left out, with their columns."""
        return [(x, s) for x, s in zip(self.computed[c], self.problem.choices[c], strict=True) if x >= 0]

    def _add_shards(self) -> None:
        """What is there is computed or converted to, and conversions start at what is computed."""
        needed: list[dict[int, None]] = [{} for _ in self.problem.choices]
        for c in range(len(self.problem.choices)):
            for _, choice in self._choices(c):
                for a, q in choice.needs:
                    needed[a][q] = None
        for c, q in self.problem.roots:
            needed[c][q] = None
        for c, placements in enumerate(needed):
            made: dict[int, list[int]] = {}
            for x, choice in self._choices(c):
                made.setdefault(choice.out, []).append(x)
            self.made.append(made)
            table = self.problem.conversions[c]
            for q in placements:
                here = self.there[c, q] = self._column(0.0)
                sources = list(made.get(q, ()))
                for p, some in made.items():
                    if p != q and table[p, q] <= self.limit and table[p, q] < math.inf:
                        paid = self.paid[c, p, q] = self._column(float(table[p, q]))
                        sources.append(paid)
                        self._at_least(0.0, (some, 1.0), ([paid], -1.0))
                self._at_least(0.0, (sources, 1.0), ([here], -1.0))
            if self._single[c]:
                self._at_least(-1.0, ([x for some in made.values() for x in some], -1.0))

    def _add_needs(self) -> None:
        for c in range(len(self.problem.choices)):
            uses: dict[tuple[int, int], dict[int, list[int]]] = {}
            for x, choice in self._choices(c):
                seen: dict[int, int] = {}
                for a, q in choice.needs:
                    if self._single[c]:
                        k = seen.get(a, 0)
                        seen[a] = k + 1
                        uses.setdefault((a, k), {}).setdefault(q, []).append(x)
                    else:
                        self._at_least(0.0, ([self.there[a, q]], 1.0), ([x], -1.0))
            for (a, _), needs in uses.items():
                self._add_flows(a, needs)
        for c in self.graph.essential:  # the rows above let half a shard serve, converted, two halves of what is needed
            self._at_least(1.0, ([x for x, _ in self._choices(c)], 1.0))
        for root in self.problem.roots:
            self._at_least(1.0, ([self.there[root]], 1.0))

    def _add_flows(self, a: int, needs: dict[int, list[int]]) -> None:
        """A use of class a by a class that is computed once: {placement: choices that need it there}.

        It takes the class from one place, if at all.
        """
        if len(needs) == 1:
            ((q, some),) = needs.items()
            self._at_least(0.0, ([self.there[a, q]], 1.0), (some, -1.0))
            return
        taken: dict[int, list[int]] = {p: [] for p in self.made[a]}
        for q, some in needs.items():
            flows = []
            for p in self.made[a]:
                paid = self.paid.get((a, p, q))
                if p == q or paid is not None:
                    flow = self._column(0.0)
                    flows.append(flow)
                    taken[p].append(flow)
                    if paid is not None and (self.cost[paid] > 0 or self.graph.cyclic[a]):
                        self._at_least(0.0, ([paid], 1.0), ([flow], -1.0))
            self._at_least(0.0, (flows, 1.0), (some, -1.0))
        for p, flows in taken.items():
            self._at_least(0.0, (self.made[a][p], 1.0), (flows, -1.0))

    def _add_order(self, members: list[int]) -> None:
        """Order the shards of one cycle of classes.

        Something of a cycle is computed without the cycle. The position of a shard that is there is at least that of
        what it is computed or converted from, and of one that is computed more than those of its needs in the cycle.
        """
        inside = set(members)
        entries = [x for c in members for x, s in self._choices(c) if not any(a in inside for a, _ in s.needs)]
        last = float(sum(len(self.made[c]) for c in members) - 1)
        position = {(c, p): self._column(0.0, last) for c in members for p in self.made[c]}
        available = {}
        for (c, q), here in self.there.items():
            if c in inside:
                at = available[c, q] = self._column(0.0, last)
                self._at_least(0.0, (entries, 1.0), ([here], -1.0))
                if (c, q) in position:
                    self._at_least(0.0, ([at], 1.0), ([position[c, q]], -1.0))
                for p in self.made[c]:
                    paid = self.paid.get((c, p, q))
                    if paid is not None:
                        self.integers.append(paid)
                        self._at_least(-last, ([at], 1.0), ([position[c, p]], -1.0), ([paid], -last))
        for c in members:
            for x, choice in self._choices(c):
                for need in choice.needs:
                    if need[0] in inside:
                        self._at_least(
                            -last, ([position[c, choice.out]], 1.0), ([available[need]], -1.0), ([x], -1.0 - last))

    def solve(self, incumbent: Selection | None, work: float, gap: float, deadline: float) -> Answer:
        """As the function of this name."""
        unit = SCALE / max(sum(self.cost) if incumbent is None else incumbent.cost, TINY)
        model = Model()
        none = np.zeros(0, np.int64)
        model.add_columns(np.array(self.cost, float) * unit, np.array(self.upper), none, none, np.zeros(0))
        low = np.array(self.low)
        model.add_rows(
            low, np.full(len(low), math.inf), np.array(self.row), np.array(self.column), np.array(self.value))
        relaxed, values = self._strengthen(model, RELAXING * work, gap, deadline)
        bound = relaxed / unit
        if bound >= (1 - gap) * self.limit:
            return Answer(None, min(bound, self.limit), model.work)
        plan = None if values is None else self._plan(values)
        if plan is not None and (plan.cost - bound) * unit <= TOLERANCE * SCALE:  # mostly the relaxation is integral
            return Answer(plan, min(bound, self.limit), model.work)
        start = None
        if incumbent is not None:
            chosen = {self.computed[c][s] for c, some in incumbent.chosen.items() for s in some}
            columns = np.array([x for some in self.computed for x in some if x >= 0], np.int64)
            start = columns, np.array([float(x in chosen) for x in columns.tolist()])
        found = model.solve_integer(
            np.array(self.integers, np.int64), deadline_left(deadline), gap, start, work - model.work)
        plan = None if found.values is None else self._plan(found.values)
        return Answer(plan, min(max(bound, (found.bound - TOLERANCE * SCALE) / unit), self.limit), model.work)

    def _plan(self, values: np.ndarray) -> Selection | None:
        """The plan of the choices that are taken, mostly; None if these are none."""
        taken = [[s for s, x in enumerate(some) if x >= 0 and values[x] > 0.5] for some in self.computed]
        return complete(self.problem, {c: some for c, some in enumerate(taken) if some})

    def _strengthen(
        self, model: Model, work: float, gap: float, deadline: float
    ) -> tuple[float, np.ndarray | None]:
        """Add cover rows to the linear relaxation for as long as they close the gap; its bound, in the model's unit,
        and its last solution."""
        columns = Columns(self.graph.order, self.made, self.problem.roots)
        for c in range(len(self.problem.choices)):
            columns.needs.update((x, s.needs) for x, s in self._choices(c))
        for c, q in self.there:
            some = [(q, -1, True)] if q in self.made[c] else []
            paid = [(p, self.paid[c, p, q]) for p in self.made[c] if (c, p, q) in self.paid]
            columns.sources[c, q] = some + [(p, x, self.cost[x] == 0) for p, x in paid]
        bound, patience = 0.0, PATIENCE
        values: np.ndarray | None = None
        while patience and bound < (1 - gap) * SCALE:
            try:
                relaxed = model.solve_linear(deadline_left(deadline), work - model.work)
            except SolverError:  # out of time or work
                break
            now, values = model.dual_bound(relaxed.duals), relaxed.values
            patience = PATIENCE if now - bound > PROGRESS * (SCALE - bound) else patience - 1
            bound = max(bound, now)
            rows = Covers(columns, values).rows()
            model.work += COVER * model.columns * len(rows)
            if not rows:
                break
            model.add_rows(
                np.ones(len(rows)), np.full(len(rows), math.inf), np.repeat(np.arange(len(rows)), list(map(len, rows))),
                np.array([x for row in rows for x in row]), np.ones(sum(map(len, rows))))
        return bound, values
