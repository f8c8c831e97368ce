"""Circles of classes in the programs of `linear`: tensors that are computed from each other, in plans not all of them.

Flows alone let choices of a circle feed each other for nothing. Rows on entering a circle are there from the start; the
integer program has an order of its shards, and what still waits for itself is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eggshard.selection.certify.edge_model import expand

if TYPE_CHECKING:
    from eggshard.selection.certify.linear import EdgeProgram

#: How far off a solver's values may be.
TOLERANCE = 1e-6


class Circles:
    """The rows of one program that keep its circles in order."""

    def __init__(self, program: EdgeProgram) -> None:
        self.program = program
        self.shape = program.shape
        #: Per flow, whether the order of the shards that it joins is stated.
        self.ordered = np.zeros(len(self.shape.flow_pair), bool)
        self.time_column: np.ndarray | None = None

    def entries(self, cycles: Sequence[Iterable[int]]) -> list[tuple[float, dict[int, float]]]:
        """(low, row): a plan that computes a class of a cycle computes some class of it without needing the cycle."""
        shape, problem = self.shape, self.shape.graph.problem
        rows = []
        for members in cycles:
            inside = set(members)
            entries = [int(shape.first[c]) + s for c in sorted(inside) for s, choice in enumerate(problem.choices[c])
                       if not any(a in inside for a, _ in choice.needs)]
            for c in sorted(inside):
                value = dict.fromkeys(entries, 1.0)
                low = 0.0
                if c in shape.essential:
                    low = 1.0
                elif shape.y_column[c] >= 0:
                    value[int(shape.y_column[c])] = -1.0
                else:
                    for s in range(int(shape.first[c]), int(shape.first[c + 1])):
                        value[s] = value.get(s, 0.0) - 1.0
                rows.append((low, value))
        return rows

    def cut(self, values: np.ndarray) -> bool:
        """Cut off an integral solution in which choices wait for each other; False if no row does.

        Whatever a plan makes first of the waiting shards, it makes by another choice, or by one of the waiting
        choices with its blocked need served from elsewhere.
        """
        shape, problem = self.shape, self.shape.graph.problem
        stuck = self._waiting(values)
        if not stuck:
            return False
        rows = self.entries([dict.fromkeys(c for c, _ in stuck)])
        shards = {(c, problem.choices[c][s].out) for c, s in stuck}
        self.program.open(np.unique(np.concatenate([shape.flow_pair[self._flows_of(d)] for d in stuck.values()])))
        value: dict[int, float] = {}
        for c, out in sorted(shards):
            for s, choice in enumerate(problem.choices[c]):
                if choice.out == out and (c, s) not in stuck:
                    value[int(shape.first[c]) + s] = 1.0
        for demand in stuck.values():
            for flow in self._flows_of(demand).tolist():
                shard = int(shape.flow_shard[flow])
                if (int(shape.shard_class[shard]), int(shape.shard_out[shard])) not in shards:
                    column = int(self.program.flow_column[flow])
                    value[column] = value.get(column, 0.0) + 1.0
        for c, out in sorted(shards):
            row = dict(value)
            for s, choice in enumerate(problem.choices[c]):
                if choice.out == out:
                    column = int(shape.first[c]) + s
                    row[column] = row.get(column, 0.0) - 1.0
            rows.append((0.0, row))
        values = np.concatenate([values, np.zeros(self.program.model.columns - len(values))])
        violated = [(low, row) for low, row in rows
                    if sum(value * values[column] for column, value in row.items()) < low - TOLERANCE]
        for low, row in violated:
            self.program.add_row(low, row)
        return bool(violated)

    def _flows_of(self, demand: int) -> np.ndarray:
        return np.flatnonzero(self.shape.flow_demand == demand)

    def _waiting(self, values: np.ndarray) -> dict[tuple[int, int], int]:
        """{(class, choice): its blocked demand} of the chosen choices that no order of computing reaches."""
        shape = self.shape
        waiting: dict[int, list[int]] = {}  # x column -> its demands
        for column, demand in zip(shape.term_x.tolist(), shape.term_demand.tolist(), strict=True):
            if values[column] > 0.5:
                waiting.setdefault(column, []).append(demand)
        flowing = np.flatnonzero(self.program.flow_column >= 0)
        amount = values[self.program.flow_column[flowing]]
        flowing, amount = flowing[amount > TOLERANCE], amount[amount > TOLERANCE].tolist()
        sources: dict[int, list[tuple[int, float]]] = {}
        for flow, value in zip(flowing.tolist(), amount, strict=True):
            sources.setdefault(int(shape.flow_demand[flow]), []).append((int(shape.flow_shard[flow]), value))

        def served(demand: int) -> bool:
            """Whether all of a demand comes from what is ready: a fraction from a circle counts as waiting."""
            return sum(value for shard, value in sources.get(demand, ()) if shard in ready) > 1 - 1e-3

        shard_of = dict(zip(shape.shard_x.tolist(), shape.x_shard.tolist(), strict=True))
        ready = {shard_of[x] for x in np.flatnonzero(values[: shape.choices] > 0.5).tolist() if x not in waiting}
        changed = True
        while changed:
            changed = False
            for column, demands in list(waiting.items()):
                if all(served(d) for d in demands):
                    ready.add(shard_of[column])
                    del waiting[column]
                    changed = True
        blocked = {}
        for column, demands in waiting.items():
            c = int(shape.x_class[column])
            blocked[c, column - int(shape.first[c])] = next(d for d in demands if not served(d))
        return blocked

    def _inside(self) -> np.ndarray:
        """The open flows inside circles."""
        shape = self.shape
        if not shape.graph.has_cycles:
            return np.zeros(0, np.int64)
        component = np.array([*shape.graph.component, -1])
        slot = shape.demand_slot[shape.flow_demand]
        inside = component[shape.slot_consumer[slot]] == component[shape.slot_class[slot]]
        return np.flatnonzero(inside & (self.program.flow_column >= 0))

    def flow_columns(self) -> np.ndarray:
        """Columns of flows inside circles: in fractions they feed each other, elsewhere they follow from x."""
        columns: np.ndarray = self.program.flow_column[self._inside()]
        return columns

    def order(self) -> None:
        """Inside circles a choice is computed after the shards that its flows come from.

        Cuts (`cut`) would do, but take one integer program after the other. When a shard is computed is counted in
        shards of its circle; every plan has an order, and flows by which each need comes from what is ready first.
        """
        shape, graph = self.shape, self.shape.graph
        flows = self._inside()
        flows = flows[~self.ordered[flows]]
        if not len(flows):
            return
        self.ordered[flows] = True
        component = np.array(graph.component)[shape.shard_class]
        size = np.bincount(component)
        if self.time_column is None:
            circle = np.flatnonzero(np.array(graph.cyclic)[shape.shard_class])
            self.time_column = np.full(len(shape.shard_key), -1, np.int64)
            self.time_column[circle] = self.program.model.columns + np.arange(len(circle))
            none, latest = np.zeros(0, np.int64), size[component[circle]] - 1.0
            self.program.model.add_columns(np.zeros(len(circle)), latest, none, none, np.zeros(0))
        which, terms = expand(self.term_starts, self.terms, shape.flow_demand[flows])
        x, flow = shape.term_x[terms], flows[which]
        shard_of = np.full(shape.choices, -1, np.int64)
        shard_of[shape.shard_x] = shape.x_shard
        after, before = shard_of[x], shape.flow_shard[flow]
        own = after == before  # a shard is never computed from itself
        big = size[component[after]].astype(float)
        row = np.arange(len(x))
        # t[after] - t[before] >= 1 - big (2 - x - f), and x + f <= 1 where they are the same
        columns = [self.time_column[after[~own]], self.time_column[before[~own]], x, self.program.flow_column[flow]]
        values = [np.ones((~own).sum()), -np.ones((~own).sum()), np.where(own, -1.0, -big), np.where(own, -1.0, -big)]
        self.program.model.add_rows(
            np.where(own, -1.0, 1.0 - 2 * big), np.full(len(x), math.inf),
            np.concatenate([row[~own], row[~own], row, row]), np.concatenate(columns), np.concatenate(values))

    @cached_property
    def terms(self) -> np.ndarray:
        """Terms by demand; those of demand d begin at ``term_starts[d]``."""
        return np.argsort(self.shape.term_demand, kind="stable")

    @cached_property
    def term_starts(self) -> np.ndarray:
        ordered = self.shape.term_demand[self.terms]
        return np.searchsorted(ordered, np.arange(len(self.shape.demand_slot) + 1))
