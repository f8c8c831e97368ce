"""The greedy plan: tree costs bottom-up, then choices top-down as a DAG. Milliseconds, always valid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.verify import complete

#: Fraction of a shared class's cost charged to each use when sharing is taken to be almost free (0 * inf is no number).
SHARED = 1e-3
#: Tree costs stop here: a chain of shared classes doubles them at every link, and infinity means underivable.
HUGE = 1e280
#: The most computations of tree costs in search of a plan that computes every single class once.
PINNINGS = 200


class TreeCosts(NamedTuple):
    """Per class: the cost of every choice with its operands, of every placement, and which choice gives it.

    choice[c] ``[S]``, placed[c] ``[P]``, best[c] ``[P]`` (choice indices, -1 where underivable). Following ``best``
    never runs in a cycle.
    """

    choice: list[np.ndarray]
    placed: list[np.ndarray]
    best: list[np.ndarray]


def tree_costs(
    graph: Graph, shares: list[float] | None = None, pinned: Mapping[int, int] | None = None
) -> TreeCosts:
    """The cheapest derivation of every class at every placement as a tree.

    A tree pays a shared operand at every use; ``shares[a]`` in (0, 1] scales what a use of operand a is charged.
    Inside cycles shares are 1: then costs only grow along a derivation, and since an entry changes on a strict
    improvement only, ``best`` is free of cycles even at zero cost (the argument for Bellman-Ford's predecessors).
    ``pinned``: {class: its only choice}; the others cost infinitely much.
    """
    pinned = pinned or {}
    problem = graph.problem
    count = len(problem.choices)
    choice_cost: list[np.ndarray] = [np.full(len(s), math.inf) for s in problem.choices]
    placed = [np.full(len(m), math.inf) for m in problem.conversions]
    values: list[list[float]] = [p.tolist() for p in placed]
    best = [np.full(len(m), -1, np.int64) for m in problem.conversions]
    outs = [np.array([s.out for s in choices], np.int64) for choices in problem.choices]
    charge = shares or [1.0] * count
    for members in graph.components:
        cyclic = graph.cyclic[members[0]]
        changed = True
        while changed:
            changed = False
            for c in members:
                costs = []
                for s in problem.choices[c]:
                    total = s.cost
                    for a, q in s.needs:
                        total += values[a][q] if cyclic and graph.component[a] == graph.component[c] else (
                            charge[a] * values[a][q]
                        )
                    costs.append(total)
                if not costs:
                    continue
                cost = np.array(costs, float)
                cost[(cost > HUGE) & (cost < math.inf)] = HUGE
                if c in pinned:
                    cost[np.arange(len(cost)) != pinned[c]] = math.inf
                choice_cost[c] = cost
                order = np.argsort(cost, kind="stable")
                made, first = np.unique(outs[c][order], return_index=True)
                chosen = order[first]
                through = cost[chosen][:, None] + problem.conversions[c][made]
                source = np.argmin(through, axis=0)
                value = through[source, np.arange(through.shape[1])]
                better = value < placed[c]
                if better.any():
                    placed[c] = np.where(better, value, placed[c])
                    best[c] = np.where(better, chosen[source], best[c])
                    values[c] = placed[c].tolist()
                    changed = cyclic
    return TreeCosts(choice_cost, placed, best)


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
    problem = graph.problem
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
        outs = np.array([s.out for s in problem.choices[c]])
        total = costs.choice[c] + problem.conversions[c][:, list(demands[c])].sum(axis=1)[outs]
        s = int(np.argmin(total))
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
