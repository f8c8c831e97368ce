"""The starting plan, found without a bound in a fraction of the portfolio's time."""

from __future__ import annotations

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.search.greedy import greedy
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
