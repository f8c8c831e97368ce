"""A plan to begin with, found without a bound in a fraction of the portfolio's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.parts import by_way_of
from eggshard.selection.search.greedy import greedy, sharing


def plan_by_way_of(problem: Problem, places: Mapping[int, Sequence[int]]) -> Selection | None:
    """The cheapest greedy plan that has classes at some of their placements (`by_way_of`); None where there is none.

    Greedy plans charge what a long chain of classes costs to each of its uses, and go far to avoid a use. Between
    classes that lie somewhere there are no chains.
    """
    graph = Graph(by_way_of(problem, places))
    plans = (*greedy(graph).plans, sharing(graph))
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost, default=None)
