"""The greedy plan: tree costs bottom-up, then choices top-down as a DAG. Milliseconds, always valid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.search.trees import TreeCosts, tree_costs
from eggshard.selection.verify import complete

#: Fraction of a shared class's cost charged to each use when sharing is taken to be almost free (0 * inf is no number).
SHARED = 1e-3
#: The most computations of tree costs in search of a plan that computes every single class once.
PINNINGS = 200


def split_shares(problem: Problem) -> list[float]:
    """Per class 1 / the number of classes (and roots) that need it."""
    users: list[set[int]] = [set() for _ in problem.choices]
    for c, choices in enumerate(problem.choices):
        for s in choices:
            for a, _ in s.needs:
                users[a].add(c)
    for c, _ in problem.roots:
        users[c].add(-1)
    return [1.0 / max(1, len(u)) for u in users]


def decode(graph: Graph, costs: TreeCosts) -> dict[int, tuple[int, ...]]:
    """Choices top-down: each class is chosen once all its consumers' demands are known.

    Minimises tree cost plus the conversions to all demanded placements. Inside cycles each demand follows ``best``
    (several choices of a class if need be), which cannot run in a cycle.
    """
    problem, levels = graph.problem, graph.levels
    demands: list[dict[int, None]] = [{} for _ in problem.choices]
    for c, q in problem.roots:
        demands[c][q] = None
    chosen: dict[int, tuple[int, ...]] = {}
    for members in reversed(graph.components):
        if graph.cyclic[members[0]]:
            work = [(c, q) for c in members for q in demands[c]]
            seen = set(work)
            while work:
                c, q = work.pop()
                s = int(costs.best[c][q])
                chosen[c] = tuple(dict.fromkeys((*chosen.get(c, ()), s)))
                for a, p in problem.choices[c][s].needs:
                    demands[a][p] = None
                    if graph.component[a] == graph.component[c] and (a, p) not in seen:
                        seen.add((a, p))
                        work.append((a, p))
            continue
        (c,) = members
        if not demands[c]:
            continue
        table, some = problem.conversions[c], list(demands[c])
        onward = table[:, some[0]] if len(some) == 1 else table[:, some].sum(axis=1)
        total = costs.choice[c] + onward[levels.out[levels.choices[c]]]
        s = int(total.argmin())
        if math.isfinite(total[s]):
            chosen[c] = (s,)
        else:  # no single choice reaches every demand
            chosen[c] = tuple(dict.fromkeys(int(costs.best[c][q]) for q in demands[c]))
        for s in chosen[c]:
            for a, p in problem.choices[c][s].needs:
                demands[a][p] = None
    return chosen


class GreedyPlans(NamedTuple):
    """The plans, and the tree costs behind them: unshared, and split among users."""

    plans: list[Selection]
    whole: TreeCosts
    split: TreeCosts


def greedy(graph: Graph, pinned: Mapping[int, int] | None = None) -> GreedyPlans:
    """Valid plans, distinct, the cheapest first: by tree costs, and with shared classes' costs split among users.

    None if some root cannot be derived, or in the time that is worth it no plan is found that computes once what may
    be computed once. ``pinned``: {class: its only choice}.
    """
    problem = graph.problem
    shares = split_shares(problem)
    whole, split = tree_costs(graph), tree_costs(graph, shares)
    plans: list[Selection] = []
    if not _derives(problem, whole):
        return GreedyPlans(plans, whole, split)
    for charge, found in ((None, whole), (shares, split)):
        plan = _Pinning(graph, charge).plan(tree_costs(graph, charge, pinned) if pinned else found, pinned or {})
        if plan is not None and all(plan.chosen != other.chosen for other in plans):
            plans.append(plan)
    return GreedyPlans(sorted(plans, key=lambda plan: plan.cost), whole, split)


def sharing(graph: Graph) -> Selection | None:
    """The plan by tree costs in which what is shared costs each use almost nothing; None if none was found."""
    shares = [SHARED if share < 1 else 1.0 for share in split_shares(graph.problem)]
    return _Pinning(graph, shares).plan(tree_costs(graph, shares), {})


def _derives(problem: Problem, costs: TreeCosts) -> bool:
    return all(len(costs.placed[c]) and costs.placed[c][q] < math.inf for c, q in problem.roots)


class _Pinning:
    """The greedy plan in which classes that may be computed once are: one after the other is pinned to one choice.

    Trees may need such a class at several placements. Consumers come first: what a class is pinned to decides what its
    operands are needed for.
    """

    def __init__(self, graph: Graph, shares: list[float] | None) -> None:
        self.graph, self.shares = graph, shares
        #: How many trees may yet be computed.
        self.left = PINNINGS

    def plan(self, costs: TreeCosts, pinned: Mapping[int, int]) -> Selection | None:
        """A plan by these tree costs, which are those with these pins; None if none was found."""
        problem = self.graph.problem
        if not _derives(problem, costs):
            return None
        chosen = decode(self.graph, costs)
        order = reversed(self.graph.order)
        twice = next((c for c in order if c in problem.single and len(chosen.get(c, ())) > 1), None)
        if twice is None:
            return complete(problem, chosen)
        wanted = [(s, self._pinned(pinned, twice, s)) for s in chosen[twice]]
        for s, found in sorted(wanted, key=lambda option: self._cost(option[1])):
            plan = self.plan(found, {**pinned, twice: s}) if found is not None else None
            if plan is not None:
                return plan
        others = [s for s in np.argsort(costs.choice[twice], kind="stable").tolist()
                  if costs.choice[twice][s] < math.inf and s not in chosen[twice]]
        for s in others:
            found = self._pinned(pinned, twice, s)
            plan = self.plan(found, {**pinned, twice: s}) if found is not None else None
            if plan is not None:
                return plan
        return None

    def _pinned(self, pinned: Mapping[int, int], c: int, s: int) -> TreeCosts | None:
        self.left -= 1
        return tree_costs(self.graph, self.shares, {**pinned, c: s}) if self.left >= 0 else None

    def _cost(self, costs: TreeCosts | None) -> float:
        return math.inf if costs is None else sum(float(costs.placed[c][q]) for c, q in self.graph.problem.roots)
