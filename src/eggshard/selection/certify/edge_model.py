"""The edge-variable linear program of a problem, as index arrays; which flows are in it is decided as it is solved.

Variables, all in [0, 1] except e:
  x[s]       choice s is computed
  y[C], e[C] for classes C that may be computed more than once: live, and extra copies, n[C] - y[C] = e[C] >= 0
             (n[C] is the sum of the class's x)
  f[g,p,q]   consumer slot g (one operand a of one consumer class C) gets a at q from its out p
  r[a,p,q]   the conversion is paid; r >= f for each slot, so that a shared conversion is paid once
Rows:
  classes    e = 0 and n = 1 (every plan computes C), n <= 1 (it is computed at most once), else as above with
             y = 1 or y >= made[C, p]
  demand     sum_p f[g,p,q] = D[g,q] - d[g,q], D the sum of C's x that need (a, q) in this slot; and, where copies
             of C differ in their outs, sum_p f[g,p,q] >= that sum over C's x of one out
  supply     sum_q f[g,p,q] <= made[a,p] + u[g,p]; where C may be copied also f[g,p,q] <= made[a,p] (added lazily)
  budget     sum_q d[g,q] + sum_p u[g,p] <= e[C]
  service    made[a,p] <= sum_{g,q} f[g,p,q] where a may be copied: every copy serves somebody
With e = 0 demand and supply are the margins of the local polytope, which is what makes the program tight. n copies of
C that need a at k placements, served from m of its outs, have sum d = n - k and sum u = k - m: the budget of n - 1
loses no plan, and no more is given away.
"""

from __future__ import annotations

import math

import numpy as np

from eggshard.selection.copies import single_copies
from eggshard.selection.graph import Graph


class EdgeModel:
    """Index arrays of the program; costs are in the problem's units. What alone costs more than ``limit`` is left out.
    """

    def __init__(self, graph: Graph, limit: float = math.inf) -> None:
        problem = graph.problem
        single = single_copies(problem, graph.cyclic)
        essential = set(graph.essential)
        count = len(problem.choices)
        self.graph = graph
        #: first[c]: the column of choice 0 of class c.
        self.first = np.concatenate([[0], np.cumsum([len(s) for s in problem.choices])]).astype(np.int64)
        self.choices = int(self.first[-1])
        self.x_class = np.repeat(np.arange(count), np.diff(self.first))
        self.x_out = np.array([s.out for choices in problem.choices for s in choices], np.int64)
        self.x_cost = np.array([s.cost for choices in problem.choices for s in choices], float)
        self.x_allowed = self.x_cost <= limit
        copied = [c for c in range(count) if not single[c]]
        optional = [c for c in copied if c not in essential]
        self.columns = self.choices + len(copied) + len(optional)
        self.e_column = np.full(count + 1, -1, np.int64)  # the last entry stands for the roots
        self.e_column[copied] = self.choices + np.arange(len(copied))
        self.y_column = np.full(count, -1, np.int64)
        self.y_column[optional] = self.choices + len(copied) + np.arange(len(optional))
        self.essential = essential
        self._shards()
        self._slots()
        self._flows(limit)
        self._rows(copied)

    def _shards(self) -> None:
        """shard: distinct (class, out); made[a, p] is the sum of the x of one shard."""
        problem = self.graph.problem
        width = self.width = max((len(m) for m in problem.conversions), default=1)
        key = self.x_class * width + self.x_out
        self.shard_key, self.x_shard = np.unique(key[self.x_allowed], return_inverse=True)
        self.shard_class, self.shard_out = np.divmod(self.shard_key, width)
        self.shard_first = np.searchsorted(self.shard_class, np.arange(len(problem.choices) + 1))
        self.shard_x = np.flatnonzero(self.x_allowed)

    def _slots(self) -> None:
        """slot: (consumer, occurrence, operand); demand: distinct (slot, placement); terms: x in demands."""
        problem, first, allowed = self.graph.problem, self.first.tolist(), self.x_allowed.tolist()
        slots: dict[tuple[int, int, int], int] = {}
        demands: dict[tuple[int, int], int] = {}
        term_x: list[int] = []
        term_demand: list[int] = []
        for c, choices in enumerate(problem.choices):
            for s, choice in enumerate(choices, first[c]):
                if not allowed[s]:
                    continue
                used: dict[int, int] = {}
                for a, q in choice.needs:
                    occurrence = used.get(a, 0)
                    used[a] = occurrence + 1
                    slot = slots.setdefault((c, occurrence, a), len(slots))
                    term_x.append(s)
                    term_demand.append(demands.setdefault((slot, q), len(demands)))
        roots = len(demands)
        for i, (a, q) in enumerate(problem.roots):
            demands[slots.setdefault((-1, i, a), len(slots)), q] = len(demands)
        self.slot_consumer = np.array([c for c, _, _ in slots], np.int64)
        self.slot_class = np.array([a for _, _, a in slots], np.int64)
        self.demand_slot = np.array([g for g, _ in demands], np.int64)
        self.demand_to = np.array([q for _, q in demands], np.int64)
        self.demand_root = np.arange(len(demands)) >= roots
        self.term_x = np.array(term_x, np.int64)
        self.term_demand = np.array(term_demand, np.int64)

    def _flows(self, limit: float) -> None:
        """flow: (demand, source shard) of finite conversion; pair: (class, p, q) of flows; supply: (slot, shard)."""
        conversions = self.graph.problem.conversions
        sizes = np.array([len(m) for m in conversions])
        offsets = np.concatenate([[0], np.cumsum(sizes * sizes)])
        flat = np.concatenate([np.asarray(m, float).ravel() for m in conversions])
        a = self.slot_class[self.demand_slot]
        start, stop = self.shard_first[a], self.shard_first[a + 1]
        lengths = stop - start
        self.flow_demand = np.repeat(np.arange(len(a)), lengths)
        ends = np.cumsum(lengths)
        self.flow_shard = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths - start, lengths)
        fa, p, q = a[self.flow_demand], self.shard_out[self.flow_shard], self.demand_to[self.flow_demand]
        cost = flat[offsets[fa] + p * sizes[fa] + q]
        keep = (cost <= limit) & (cost < math.inf)
        self.flow_demand, self.flow_shard, cost = self.flow_demand[keep], self.flow_shard[keep], cost[keep]
        pair_key = self.flow_shard * self.width + q[keep]
        self.pair_key, index, self.flow_pair = np.unique(pair_key, return_index=True, return_inverse=True)
        self.pair_cost = cost[index]
        self.pair_flows = np.bincount(self.flow_pair, minlength=len(self.pair_cost))
        slot = self.demand_slot[self.flow_demand]
        supply_key = slot * len(self.shard_key) + self.flow_shard
        self.supply_key, self.flow_supply = np.unique(supply_key, return_inverse=True)
        self.supply_slot, self.supply_shard = np.divmod(self.supply_key, max(1, len(self.shard_key)))
        self.flow_relaxed = self.e_column[self.slot_consumer[slot]] >= 0

    def _rows(self, copied: list[int]) -> None:
        """The rows that are there from the start, as coordinates, and the rows that each demand's flows enter."""
        rows: list[np.ndarray] = []
        cols: list[np.ndarray] = []
        vals: list[np.ndarray] = []
        low: list[np.ndarray] = []
        high: list[np.ndarray] = []
        total = 0

        def put(row: np.ndarray, col: np.ndarray, value: float) -> None:
            rows.append(row)
            cols.append(col)
            vals.append(np.full(len(row), value))

        def close(number: int, lo: np.ndarray, up: np.ndarray) -> None:
            nonlocal total
            low.append(lo)
            high.append(up)
            total += number

        count = len(self.graph.problem.choices)
        is_copied = np.zeros(count, bool)
        is_copied[copied] = True
        needed = np.zeros(count, bool)
        needed[list(self.essential)] = True
        optional = self.y_column >= 0
        # n = 1, n <= 1, n - e = 1, n - e - y = 0
        x = self.shard_x
        put(self.x_class[x], x, 1.0)
        put(np.flatnonzero(is_copied), self.e_column[:-1][is_copied], -1.0)
        put(np.flatnonzero(optional), self.y_column[optional], -1.0)
        close(count, np.where(needed, 1.0, 0.0), np.where(optional, 0.0, 1.0))
        # y - made >= 0, or made <= 1 where a shard has several choices
        shard_copied = is_copied[self.shard_class]
        several = np.bincount(self.x_shard, minlength=len(self.shard_key)) > 1
        with_row = shard_copied & (several | optional[self.shard_class])
        row_of = np.cumsum(with_row) - 1 + total
        mask = with_row[self.x_shard]
        put(row_of[self.x_shard[mask]], x[mask], -1.0)
        liveness = with_row & optional[self.shard_class]
        put(row_of[liveness], self.y_column[self.shard_class[liveness]], 1.0)
        lower = np.where(optional[self.shard_class], 0.0, -1.0)[with_row]
        close(int(with_row.sum()), lower, np.full(len(lower), math.inf))
        # demand, in total and per out of the consumer; budget entries are collected on the way
        demand_count = len(self.demand_slot)
        consumer = self.slot_consumer[self.demand_slot]
        relaxed = self.e_column[consumer] >= 0
        outs = self.x_out[self.term_x]
        part_key = self.term_demand * self.width + outs
        parts, term_part = np.unique(part_key, return_inverse=True)
        part_demand = parts // self.width
        parts_of = np.bincount(part_demand, minlength=demand_count)
        own = relaxed & (parts_of > 1)  # the total needs its own row beside those of its parts
        put(self.term_demand + total, self.term_x, -1.0)
        saved = self.columns + np.arange(int(own.sum()))
        self.columns += len(saved)
        put(np.flatnonzero(own) + total, saved, 1.0)
        demand_rows = [np.arange(demand_count) + total]
        row_demand = [np.arange(demand_count)]
        side = np.where(self.demand_root, 1.0, 0.0)
        close(demand_count, side, side)
        kept = own[part_demand]
        part_row = np.cumsum(kept) - 1 + total
        mask = kept[term_part]
        put(part_row[term_part[mask]], self.term_x[mask], -1.0)
        demand_rows.append(part_row[kept])
        row_demand.append(part_demand[kept])
        close(int(kept.sum()), np.zeros(int(kept.sum())), np.full(int(kept.sum()), math.inf))
        # supply
        supplies = len(self.supply_key)
        self.supply_row = np.arange(supplies) + total
        order = np.argsort(self.x_shard, kind="stable")
        starts = np.searchsorted(self.x_shard[order], np.arange(len(self.shard_key) + 1))
        self.shard_members = x[order]
        self.shard_starts = starts
        which, members = self.members(self.supply_shard)
        put(self.supply_row[which], members, 1.0)
        extra = np.flatnonzero(self.e_column[self.slot_consumer[self.supply_slot]] >= 0)
        unmet = self.columns + np.arange(len(extra))
        self.columns += len(extra)
        put(self.supply_row[extra], unmet, 1.0)
        close(supplies, np.zeros(supplies), np.full(supplies, math.inf))
        # budget
        slots = np.concatenate([self.demand_slot[own], self.supply_slot[extra]])
        with_budget, budget = np.unique(slots, return_inverse=True)
        put(budget + total, np.concatenate([saved, unmet]), -1.0)
        number = len(with_budget)
        put(np.arange(number) + total, self.e_column[self.slot_consumer[with_budget]], 1.0)
        close(number, np.zeros(number), np.full(number, math.inf))
        # service
        shards = np.flatnonzero(shard_copied)
        self.service_row = np.full(len(self.shard_key), -1, np.int64)
        self.service_row[shards] = np.arange(len(shards)) + total
        which, members = self.members(shards)
        put(self.service_row[shards][which], members, -1.0)
        close(len(shards), np.zeros(len(shards)), np.full(len(shards), math.inf))

        self.rows, self.low, self.high = total, np.concatenate(low), np.concatenate(high)
        self.row_index, self.column_index = np.concatenate(rows), np.concatenate(cols)
        self.values = np.concatenate(vals)
        found = np.concatenate(row_demand)
        order = np.argsort(found, kind="stable")
        #: demand_rows[demand_start[d] : demand_start[d + 1]]: the rows that d's flows enter.
        self.demand_rows = np.concatenate(demand_rows)[order]
        self.demand_start = np.searchsorted(found[order], np.arange(demand_count + 1))

    def members(self, shards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(i, x): for every i the x columns of ``shards[i]``."""
        return expand(self.shard_starts, self.shard_members, shards)


def expand(starts: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(i, v): for every i all v of ``values[starts[wanted[i]] : starts[wanted[i] + 1]]``."""
    begin, lengths = starts[wanted], starts[wanted + 1] - starts[wanted]
    which = np.repeat(np.arange(len(wanted)), lengths)
    ends = np.cumsum(lengths)
    position = np.arange(len(which)) - np.repeat(ends - lengths - begin, lengths)
    return which, values[position]
