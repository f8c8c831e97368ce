"""Starting plans, found without a bound in a fraction of the portfolio's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.parts import by_way_of
from eggshard.selection.search.greedy import greedy, sharing
from eggshard.selection.search.local_search import LocalSearch


def local_plan(problem: Problem, deadline: float) -> Selection | None:
    """The cheapest greedy plan, improved by local search; None where there is no greedy one.

    deadline: of `time.monotonic`, for local search.
    """
    graph = Graph(problem)
    found = greedy(graph)
    if not found.plans:
        return None
    best = min(found.plans, key=lambda plan: plan.cost)
    return LocalSearch(graph, found.split.best, deadline).improve(best.chosen) or best


def plan_by_way_of(problem: Problem, places: Mapping[int, Sequence[int]]) -> Selection | None:
    """The cheapest greedy plan that has classes at some of their placements (`by_way_of`); None where there is none.

    Greedy plans charge what a long chain of classes costs to each of its uses, and go far to avoid a use. Between
    classes that lie somewhere there are no chains.
    """
    graph = Graph(by_way_of(problem, places))
    plans = (*greedy(graph).plans, sharing(graph))
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost, default=None)
