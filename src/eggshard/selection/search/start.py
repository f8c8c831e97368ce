"""Plans found without a bound, in a fraction of the portfolio's time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.parts import by_way_of
from eggshard.selection.search.greedy import greedy, sharing, split_shares
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.search.trees import tree_costs


def plan_by_way_of(problem: Problem, places: Mapping[int, Sequence[int]]) -> Selection | None:
    """The cheapest greedy plan that has classes at some of their placements (`by_way_of`); None where there is none.

    Greedy plans charge what a long chain of classes costs to each of its uses, and go far to avoid a use. Between
    classes that lie somewhere there are no chains.
    """
    graph = Graph(by_way_of(problem, places))
    plans = (*greedy(graph).plans, sharing(graph))
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost, default=None)


def plans_at(problem: Problem, c: int, deadline: float = math.inf) -> Iterator[Selection]:
    """For each choice of a class the cheapest greedy plan that has it, improved by local search.

    deadline: of `time.monotonic`, after which there are none. Choices without a plan are passed over.
    """
    graph = Graph(problem)
    search = LocalSearch(graph, tree_costs(graph, split_shares(problem)).best, deadline)
    for n in range(len(problem.choices[c])):
        if time.monotonic() > deadline:
            return
        for plan in greedy(graph, {c: n}).plans[:1]:
            yield search.improve(plan.chosen, fixed=(c,)) or plan
