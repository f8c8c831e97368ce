"""The linear and integer programs of `edge_model`, solved by generating flows and rows as they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eggshard.selection.certify.circles import TOLERANCE, Circles
from eggshard.selection.certify.covers import Covers
from eggshard.selection.certify.edge_model import EdgeModel, expand
from eggshard.selection.certify.highs import LinearSolution, Model, SolverError, deadline_left
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection

#: The incumbent's cost in the solver's units: its tolerances (1e-7) are then relative to what matters.
SCALE = 1e3
#: Sources opened per demand before pricing begins.
SOURCES = 2


class Relaxation(NamedTuple):
    """The state of the linear program after a solve: x in [0, 1] per choice, and a bound in the problem's units."""

    x: np.ndarray
    bound: float
    integral: bool


class EdgeProgram:
    """One problem's program: relaxed, tightened and solved in one growing HiGHS model.

    ``incumbent`` is a valid plan: its flows make the first model feasible and its cost bounds what can matter.
    """

    def __init__(self, graph: Graph, incumbent: Selection, deadline: float) -> None:
        self.graph = graph
        self.deadline = deadline
        self.incumbent = incumbent.cost
        self.unit = SCALE / incumbent.cost if incumbent.cost > 0 else 1.0
        self.shape = shape = EdgeModel(graph, incumbent.cost)
        self.model = Model()
        self.flow_column = np.full(len(shape.flow_pair), -1, np.int64)
        self.pair_column = np.full(len(shape.pair_cost), -1, np.int64)
        self.opened = np.zeros(len(shape.pair_cost), bool)
        self.capped = np.zeros(len(shape.flow_pair), bool)
        self.order = np.argsort(shape.flow_pair, kind="stable")
        self.pair_start = np.searchsorted(shape.flow_pair[self.order], np.arange(len(shape.pair_cost) + 1))
        cost = np.zeros(shape.columns)
        cost[: shape.choices] = np.where(shape.x_allowed, shape.x_cost, 0.0) * self.unit
        upper = np.ones(shape.columns)
        upper[: shape.choices] = shape.x_allowed
        upper[shape.e_column[shape.e_column >= 0]] = shape.width
        none = np.zeros(0, np.int64)
        self.model.add_columns(cost, upper, none, none, np.zeros(0))
        self.model.add_rows(shape.low, shape.high, shape.row_index, shape.column_index, shape.values)
        self.circles = Circles(self)
        for low, row in self.circles.entries([members for members in graph.components if graph.cyclic[members[0]]]):
            self.add_row(low, row)
        self.open(self._first_pairs(incumbent))

    # -- growing the model -------------------------------------------------------------------------------------------

    def _first_pairs(self, incumbent: Selection) -> np.ndarray:
        """Free conversions, the incumbent's, and the cheapest sources of every placement."""
        shape = self.shape
        first: np.ndarray = shape.pair_cost == 0
        paid = {(c * shape.width + p, q) for c, p, q in incumbent.conversions}
        shard, to = np.divmod(shape.pair_key, shape.width)
        keys = shape.shard_key[shard]
        if paid:
            wanted = np.array([k * shape.width + q for k, q in paid], np.int64)
            first |= np.isin(keys * shape.width + to, wanted)
        target = shape.shard_class[shard] * shape.width + to
        order = np.lexsort((shape.pair_cost, target))
        ranked = target[order]
        rank = np.arange(len(order)) - np.searchsorted(ranked, ranked)
        first[order[rank < SOURCES]] = True
        return np.flatnonzero(first)

    def open(self, pairs: np.ndarray) -> None:
        """Bring the flows of pairs (and what pays for them) into the model."""
        pairs = pairs[~self.opened[pairs]]
        if not len(pairs):
            return
        shape = self.shape
        self.opened[pairs] = True
        cost = shape.pair_cost * self.unit
        which, flows = expand(self.pair_start, self.order, pairs)
        shared = (shape.pair_flows[pairs] > 1) & (shape.pair_cost[pairs] > 0)
        flow_cost = np.where(shared[which], 0.0, cost[pairs][which])
        self.flow_column[flows] = self.model.columns + np.arange(len(flows))
        entry, row = expand(shape.demand_start, shape.demand_rows, shape.flow_demand[flows])
        own = np.arange(len(flows))
        service = shape.service_row[shape.flow_shard[flows]]
        serves = np.flatnonzero(service >= 0)
        self.model.add_columns(
            flow_cost, np.ones(len(flows)),
            np.concatenate([row, shape.supply_row[shape.flow_supply[flows]], service[serves]]),
            np.concatenate([entry, own, serves]),
            np.concatenate([np.ones(len(row)), -np.ones(len(flows)), np.ones(len(serves))]))
        payers = pairs[shared]
        self.pair_column[payers] = self.model.columns + np.arange(len(payers))
        none = np.zeros(0, np.int64)
        self.model.add_columns(cost[payers], np.ones(len(payers)), none, none, np.zeros(0))
        carried = flows[shared[which]]
        number = np.arange(len(carried))
        self.model.add_rows(
            np.zeros(len(carried)), np.full(len(carried), math.inf), np.concatenate([number, number]),
            np.concatenate([self.pair_column[shape.flow_pair[carried]], self.flow_column[carried]]),
            np.concatenate([np.ones(len(carried)), -np.ones(len(carried))]))

    def _cap(self, flows: np.ndarray) -> None:
        """Add f <= made for flows whose supply row is relaxed by copies of their consumer."""
        flows = flows[~self.capped[flows]]
        self.capped[flows] = True
        number = np.arange(len(flows))
        which, members = self.shape.members(self.shape.flow_shard[flows])
        self.model.add_rows(
            np.zeros(len(flows)), np.full(len(flows), math.inf), np.concatenate([which, number]),
            np.concatenate([members, self.flow_column[flows]]),
            np.concatenate([np.ones(len(which)), -np.ones(len(flows))]))

    def add_row(self, low: float, value: dict[int, float]) -> None:
        """The row ``sum of value * column >= low``."""
        self.model.add_rows(np.array([low]), np.array([math.inf]), np.zeros(len(value), np.int64),
                            np.array(list(value), np.int64), np.array(list(value.values())))

    # -- solving -----------------------------------------------------------------------------------------------------

    def relax_single(self) -> Relaxation:
        """Solve the linear program without copies: much tighter, and mostly where the best plan is.

        Its bound holds for plans that compute no class twice. Raises `SolverError` if every plan needs copies.
        """
        extra = self.shape.e_column[self.shape.e_column >= 0]
        if len(extra):
            self.model.set_upper(extra, np.zeros(len(extra)))
        try:
            return self.relax()
        finally:
            if len(extra):
                self.model.set_upper(extra, np.full(len(extra), float(self.shape.width)))

    def relax(self, on_bound: Callable[[float], None] | None = None) -> Relaxation:
        """Solve the linear program exactly; raises `SolverError` when out of time or luck."""
        shape = self.shape
        while True:
            solution = self.model.solve_linear(deadline_left(self.deadline))
            bound, slack = self._bound(solution)
            if on_bound is not None:
                on_bound(bound)
            wrong = np.flatnonzero(~self.opened & (slack < -TOLERANCE))
            over = self._violated_caps(solution.values)
            if not len(wrong) and not len(over):
                break
            if deadline_left(self.deadline) <= 0:
                raise SolverError("out of time while generating flows")
            self.open(wrong)
            self._cap(over)
        x = np.clip(solution.values[: shape.choices], 0.0, 1.0)
        integral = bool(np.abs(x - x.round()).max(initial=0.0) < 1e-6)
        self.solution = solution
        return Relaxation(x, bound, integral)

    def _bound(self, solution: LinearSolution) -> tuple[float, np.ndarray]:
        """The safe dual bound in the problem's units, and the slack of every pair: what opening it would cost."""
        shape = self.shape
        safe, self.reduced = self.model.dual_bound(solution.duals)
        which, rows = expand(shape.demand_start, shape.demand_rows, np.arange(len(shape.demand_slot)))
        per_row = self.model.clip(solution.duals)
        worth = np.bincount(which, weights=per_row[rows], minlength=len(shape.demand_slot))[shape.flow_demand]
        worth -= per_row[shape.supply_row][shape.flow_supply]
        service = shape.service_row[shape.flow_shard]
        worth += np.where(service >= 0, per_row[service], 0.0)
        gain = np.maximum(worth, 0.0)
        slack = shape.pair_cost * self.unit - np.bincount(shape.flow_pair, weights=gain, minlength=len(shape.pair_cost))
        safe += float(np.minimum(slack[~self.opened], 0.0).sum())
        self.slack, self.safe = slack, safe
        return safe / self.unit, slack

    def _violated_caps(self, values: np.ndarray) -> np.ndarray:
        shape = self.shape
        flows = np.flatnonzero((self.flow_column >= 0) & shape.flow_relaxed & ~self.capped)
        made = np.bincount(shape.x_shard, weights=values[shape.shard_x], minlength=len(shape.shard_key))
        over = values[self.flow_column[flows]] > made[shape.flow_shard[flows]] + TOLERANCE
        # All flows of a slot at once: the next solve would only move to the slot's next flow.
        slot = shape.demand_slot[shape.flow_demand[flows]]
        return flows[np.isin(slot, slot[over])]

    def add_covers(self) -> bool:
        """Add cover rows that the last solution violates; False if none is found."""
        shape = self.shape
        values = self.solution.values
        flowing = np.flatnonzero(self.flow_column >= 0)
        flow = values[self.flow_column[flowing]]
        carried = np.bincount(shape.flow_pair[flowing], weights=flow, minlength=len(shape.pair_cost))
        shared = self.pair_column >= 0
        paid = np.where(shared, values[self.pair_column], carried)
        covers = self.covers.separate(values[: shape.choices], paid, carried)
        self.open(np.unique(np.array([pair for cover in covers for pair in cover.pairs], np.int64)))
        for cover in covers:
            pairs = np.array(cover.pairs, np.int64)
            alone = pairs[self.pair_column[pairs] < 0]  # the flow itself is what is paid for
            _, flows = expand(self.pair_start, self.order, alone)
            columns = [*cover.choices, *self.pair_column[pairs[self.pair_column[pairs] >= 0]].tolist(),
                       *self.flow_column[flows].tolist()]
            self.add_row(1.0, dict.fromkeys(columns, 1.0))
        return bool(covers)

    @cached_property
    def covers(self) -> Covers:
        return Covers(self.shape)

    def tighten(self, cost: float) -> tuple[int, int]:
        """Drop what cannot be in a plan cheaper than ``cost``, by reduced costs; open the rest. -> (x, pairs) left."""
        room = cost * self.unit - self.safe
        room += 1e-6 * (1.0 + abs(room))
        shape = self.shape
        out = np.flatnonzero((self.reduced[: shape.choices] > room) & shape.x_allowed)
        self.model.set_upper(out, np.zeros(len(out)))
        self.left = shape.x_allowed.copy()
        self.left[out] = False
        self.open(np.flatnonzero(~self.opened & (self.slack <= room)))
        self._cap(np.flatnonzero((self.flow_column >= 0) & shape.flow_relaxed))
        return int(shape.x_allowed.sum()) - len(out), int(self.opened.sum())

    def remaining(self) -> Problem:
        """What `tighten` left, as a problem; what it dropped costs infinitely much, so that choices keep their numbers.

        It has every plan cheaper than the cost given to `tighten`.
        """
        shape, problem = self.shape, self.graph.problem
        left = iter(self.left.tolist())
        choices = [[s if next(left) else s._replace(cost=math.inf) for s in row] for row in problem.choices]
        conversions = [np.where(np.eye(len(m), dtype=bool), m, math.inf) for m in problem.conversions]
        shard, to = np.divmod(shape.pair_key[self.opened], shape.width)
        kept = zip(shape.shard_class[shard].tolist(), shape.shard_out[shard].tolist(), to.tolist(), strict=True)
        for c, p, q in kept:
            conversions[c][p, q] = problem.conversions[c][p, q]
        return Problem(choices, conversions, problem.roots, single=problem.single)

    def integer(self, seconds: float, gap: float, start: Selection | None) -> tuple[np.ndarray | None, float, bool]:
        """The integer program over what `tighten` left: (values or None, bound in the problem's units, finished).

        The bound holds for plans cheaper than the cost given to `tighten`.
        """
        shape = self.shape
        self.circles.order()
        hint = None
        if start is not None:
            x = np.zeros(shape.choices)
            for c, chosen in start.chosen.items():
                x[shape.first[c] + np.array(chosen)] = 1.0
            hint = (np.arange(shape.choices), x)
        integers = np.concatenate([np.arange(shape.choices), self.circles.flow_columns()])
        result = self.model.solve_integer(integers, seconds, gap, hint)
        bound = result.bound
        if math.isfinite(bound):
            bound = (bound - 2e-6 * SCALE) / self.unit  # the solver's integrality and feasibility tolerances
        return result.values, bound, result.finished

    def chosen(self, x: np.ndarray) -> dict[int, tuple[int, ...]]:
        """The choices that are at 1 (nearly)."""
        found: dict[int, tuple[int, ...]] = {}
        for column in np.flatnonzero(x[: self.shape.choices] > 0.5).tolist():
            c = int(self.shape.x_class[column])
            found[c] = (*found.get(c, ()), column - int(self.shape.first[c]))
        return found

    def rounded(self) -> dict[int, tuple[int, ...]]:
        """Per class the choices above one half, or else the largest."""
        x, first = self.solution.values, self.shape.first.tolist()
        largest = {c: (int(np.argmax(x[i:j])),) for c, (i, j) in enumerate(zip(first, first[1:], strict=False))
                   if j > i and x[i:j].max() > TOLERANCE}
        return largest | self.chosen(x)
