"""Local search on the exact DAG cost: one class, or a second copy of one, at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Selection
from eggshard.selection.search.state import PlanState
from eggshard.selection.verify import complete


class LocalSearch:
    """Improves plans of one problem; deterministic unless the deadline cuts it short."""

    def __init__(self, graph: Graph, fallback: list[np.ndarray], deadline: float = math.inf) -> None:
        """``fallback[c][q]`` is the choice by which class c joins a plan for placement q."""
        self.graph = graph
        self.fallback = fallback
        self.deadline = deadline
        self.users: list[list[int]] = [[] for _ in graph.operands]
        for c, operands in enumerate(graph.operands):
            for a in operands:
                self.users[a].append(c)
        #: by_out[c]: {out: choices}, finite ones only.
        self.by_out: list[dict[int, list[int]]] = []
        for choices in graph.problem.choices:
            outs: dict[int, list[int]] = {}
            for s, choice in enumerate(choices):
                if choice.cost < math.inf:
                    outs.setdefault(choice.out, []).append(s)
            self.by_out.append(outs)

    def improve(
        self, chosen: Mapping[int, Iterable[int]], sweeps: int = 20, operands_first: bool = False,
        fixed: Collection[int] = (),
    ) -> Selection | None:
        """The local optimum reached from these choices; None if they make no valid plan.

        operands_first: classes are looked at after their operands, not after their users; that leads elsewhere. fixed:
        classes that stay as they are.
        """
        state = PlanState(self.graph, chosen, self.fallback)
        if not state.cost < math.inf:
            return None
        order = self.graph.order if operands_first else self.graph.order[::-1]
        dirty = set(order)
        for _ in range(sweeps):
            changed: set[int] = set()
            for c in order:
                if c in dirty and c not in fixed and state.made[c] and self.improve_class(state, c):
                    changed.add(c)
                    if time.monotonic() > self.deadline:
                        break
            if not changed or time.monotonic() > self.deadline:
                break
            dirty = set(changed)
            for c in changed:
                dirty.update(self.users[c], self.graph.operands[c])
                for a in self.graph.operands[c]:
                    dirty.update(self.users[a])
        return complete(self.graph.problem, state.chosen())

    def adopt(self, chosen: Mapping[int, Iterable[int]]) -> Selection | None:
        """The plan of these choices, with classes that they lack joined by the fallback; None if it is not valid."""
        state = PlanState(self.graph, chosen, self.fallback)
        return complete(self.graph.problem, state.chosen()) if state.cost < math.inf else None

    def improve_class(self, state: PlanState, c: int) -> bool:
        """Other choices for class c, further copies of it, fewer copies of it."""
        below = -1e-12 * abs(state.cost)
        improved = False
        for p in list(state.made[c]):
            if len(state.made[c]) > 1 and p in state.made[c] and state.try_switch(c, (), (p,), below):
                improved = True
        for p in list(state.made[c]):
            worth = state.switch_bounds(c, p)
            for s in range(len(state.choices[c])):
                if p not in state.made[c]:
                    break
                choice = state.choices[c][s]
                if choice.cost < math.inf and state.made[c][p] != s and choice.out not in state.made[c].keys() - {p}:
                    if worth(s) < below and state.try_switch(c, (s,), (p,) if choice.out != p else (), below):
                        improved = True
                        p = choice.out
                        worth = state.switch_bounds(c, p)
        if len(state.count[c]) > 1 and state.conversion_cost[c] > 0 and c not in self.graph.problem.single:
            for q in list(state.count[c]):
                if q not in state.made[c]:
                    for s in self.by_out[c].get(q, ()):
                        if state.choices[c][s].cost < state.conversion_cost[c]:
                            improved |= state.try_switch(c, (s,), (), below)
        return improved

    def pull_operands(
        self, state: PlanState, group: dict[int, int], needs: Iterable[tuple[int, int]], most: int
    ) -> None:
        """Add to the group, depth first, the cheapest choices by which operands deliver the needs in place."""
        work = list(needs)
        while work and len(group) < most:
            a, q = work.pop()
            if a in group or q in state.made[a] or not state.made[a]:
                continue
            options = self.by_out[a].get(q)
            if options and min(state.conversions[a][p][q] for p in state.made[a]) > 0:
                s = min(options, key=lambda s: (state.choices[a][s].cost, s))
                group[a] = s
                work.extend(state.choices[a][s].needs)

    def push_users(self, state: PlanState, group: dict[int, int], c: int, out: int, most: int) -> None:
        """Add to the group the live consumers' choices that take the class at ``out``, and their consumers'."""
        work = [(c, out)]
        while work and len(group) < most:
            a, q = work.pop()
            for user in self.users[a]:
                if user in group or not state.made[user]:
                    continue
                if any((a, q) in state.choices[user][s].needs for s in state.made[user].values()):
                    continue
                options = [s for s, choice in enumerate(state.choices[user]) if (a, q) in choice.needs]
                if options:
                    s = min(options, key=lambda s: (state.choices[user][s].cost, s))
                    group[user] = s
                    work.append((user, state.choices[user][s].out))
