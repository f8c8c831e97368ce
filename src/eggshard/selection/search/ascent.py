"""Plans from dual prices: ascent on a problem, and on the plans of one term, with greedy decoding on the way."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from eggshard.selection.bounds.dual import Dual
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.parts import choice_count, same_terms
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.search.trees import tree_costs

#: An ascent over all plans ends when this many times the last rise would not bring the bound within the gap. Rises
#: shrink about as the temperature does, so that all later ones together are mostly smaller.
HOPE = 3.0
#: Rise of the bound between checks, as a fraction of the known plan's cost, above which no plan is decoded: later
#: prices give better ones.
STEEP = 0.05


class Ascent(NamedTuple):
    """The best plan that prices gave, None if none, and the no-recomputation bound, of plans that compute nothing
    twice."""

    plan: Selection | None
    bound: float


class Terms:
    """The plans of an incumbent's terms, as a problem of their own."""

    def __init__(self, problem: Problem, incumbent: Selection) -> None:
        self.incumbent = incumbent
        self.problem = same_terms(problem, incumbent.chosen)
        #: Whether these are all plans.
        self.all_plans = choice_count(self.problem) == choice_count(problem)
        self.bound = 0.0

    def ascend(self, gap: float, deadline: float) -> Selection | None:
        """The best plan that prices gave; raises the bound."""
        graph = Graph(self.problem)
        search = LocalSearch(graph, tree_costs(graph).best, deadline)
        found = ascend(graph, search, self.incumbent.cost, gap, deadline, patient=True)
        self.bound = found.bound
        return found.plan

    def has(self, plan: Selection) -> bool:
        """Whether a plan of the problem given is one of these."""
        return all(self.problem.choices[c][s].cost < math.inf for c, some in plan.chosen.items() for s in some)


def ascend(
    graph: Graph, search: LocalSearch, known: float, gap: float, deadline: float, patient: bool = False
) -> Ascent:
    """Raise the bound towards the cost of a known plan, until it is within ``gap`` of the best plan, and try prices.

    The bound holds for plans that cost less than the known one. ``patient``: goes on until the bound hardly rises any
    more, however far it may be then: it is the known plan that may be far from the best.
    """
    dual = Dual(graph, known)
    found, cost, before = None, known, 0.0
    for part in dual.ascend():
        rise, before = part - before, part
        late = time.monotonic() > deadline
        if late or rise <= STEEP or dual.bound >= cost * (1 - gap):
            plan = search.improve(dual.decoded())
            if plan is not None and (found is None or plan.cost < found.cost):
                found, cost = plan, min(plan.cost, known)
        if late or dual.bound >= cost * (1 - gap):
            break
        if not patient and (part + HOPE * rise) * known < (1 - gap) * cost:
            break
    return Ascent(found, dual.bound)
