"""The state of the portfolio: the problem as far as it is reduced, plans, bounds, and the time left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eggshard.errors import LimitError
from eggshard.selection.copies import single_copies
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Extraction, Problem, Selection
from eggshard.selection.reductions.inverse import Inverse
from eggshard.selection.search.ascent import Terms
from eggshard.selection.search.greedy import greedy, sharing
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.verify import complete

#: Number of choices above which a problem is searched from a few plans only, one choice at a time.
MANY_CHOICES = 5000
#: A plan costs as much as a bound if it costs this part more at most: rounding.
PROVED = 1e-9


def flow_count(problem: Problem) -> int:
    """How large a problem is: per consumer and operand, the computed times the needed placements."""
    needed: dict[tuple[int, int], set[int]] = {}
    possible = [[choice for choice in choices if choice.cost < math.inf] for choices in problem.choices]
    for c, choices in enumerate(possible):
        for choice in choices:
            for a, q in choice.needs:
                needed.setdefault((c, a), set()).add(q)
    made = [len({choice.out for choice in choices}) for choices in possible]
    return sum(made[a] * len(qs) for (_, a), qs in needed.items())


@dataclass
class Budget:
    """What a search may take, so that it depends on the problem alone as long as the time does not run out.

    work: seconds of work left on a usual core, counted by what is done. patience: more of it, for what mostly pays.
    deadline: when all methods end (`time.monotonic`). gap: the relative one that will do. exact: whether only bounds of
    all plans count.
    """

    work: float
    patience: float
    deadline: float
    gap: float
    exact: bool
    far: float

    def affords(self, work: float, patient: bool = False) -> bool:
        """Take so much work, if it is left."""
        if work > self.work + (self.patience if patient else 0.0):
            return False
        self.work -= work
        return True


class Stage:
    """One problem on the way of reductions, and its plans: at first greedy ones."""

    def __init__(self, problem: Problem, inverse: Inverse, deadline: float) -> None:
        self.problem, self.inverse, self.graph, self.flows = problem, inverse, Graph(problem), flow_count(problem)
        self.many = sum(map(len, problem.choices)) > MANY_CHOICES
        found = greedy(self.graph)
        self.plans = found.plans
        self.derivable = [
            bool(problem.conversions[c].size) and found.whole.placed[c][q] < math.inf for c, q in problem.roots]
        self.search = LocalSearch(self.graph, found.split.best, deadline)

    def adopt(self, chosen: Mapping[int, tuple[int, ...]]) -> Selection | None:
        """The plan nearest to some choices, or where there is no greedy plan one that begins with them."""
        plan = self.search.adopt(chosen)
        if plan is None and not self.plans:
            pinned = {c: chosen[c][0] for c in self.problem.single if c in chosen}
            plan = next(iter(greedy(self.graph, pinned).plans), None)
        self.keep(plan)
        return plan

    def keep(self, plan: Selection | None) -> None:
        """Keep a plan, to search from and to put together with others."""
        if plan is not None and all(plan.chosen != other.chosen for other in self.plans):
            self.plans.append(plan)

    @cached_property
    def once_will_do(self) -> bool:
        """Whether some optimal plan computes nothing twice."""
        return all(single_copies(self.problem, self.graph.cyclic))


@dataclass
class State:
    """What is known of a problem. ``best`` is a plan of the stage's problem, ``known`` one of the original problem."""

    problem: Problem
    budget: Budget
    methods: tuple[str, ...]
    stage: Stage
    best: Selection | None = None
    known: Selection | None = None
    method: str = "greedy"
    #: Lower bounds: of all plans, and of those that compute nothing twice (the no-recomputation bound).
    bound: float = 0.0
    once: float = 0.0
    #: The plans of the best plan's terms, with the fixed-node bound.
    terms: Terms | None = None
    notes: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Take the stage's plans. Raises `LimitError` where some root cannot be derived."""
        for i, there in enumerate(self.stage.derivable):
            if not there:
                c, q = self.problem.roots[i]
                raise LimitError(
                    f"no plan delivers class {c} at placement {q}: none of its {len(self.problem.choices[c])} choices "
                    "can be computed and converted to it; allow more candidate placements")
        for plan in self.stage.plans:
            self.offer(plan, "greedy")
        self.note("greedy")

    def further(self) -> None:
        """Take what is found in hardly more time: another greedy plan, and those that the problem's seeds become."""
        plan = sharing(self.stage.graph)
        self.stage.keep(plan)
        self.offer(plan, "greedy")
        for seed in self.problem.seeds:
            self.offer(self.stage.adopt(self.stage.inverse.lower({c: (s,) for c, s in seed.items()})), "seed")
        self.note("seeds")

    def enter(self, stage: Stage) -> None:
        """Go on with a problem that has every plan cheaper than the best; not where no plan of it was found."""
        if not stage.plans:
            return
        best = self.best
        assert best is not None
        self.known = self.stage.inverse.lift(best)
        self.stage, self.best = stage, min(stage.plans, key=lambda plan: plan.cost)
        self.notes.append(f"affordable: {sum(map(len, stage.problem.choices))} choices")
        self.note("affordable")

    def offer(self, plan: Selection | None, method: str) -> bool:
        """Take a plan if it is the cheapest yet."""
        if plan is not None and (self.best is None or plan.cost < self.best.cost * (1 - 1e-12)):
            self.best, self.method = plan, method
            return True
        return False

    def raise_bound(self, bound: float, method: str) -> None:
        """Note a bound of all plans."""
        if self.best is not None:
            bound = min(bound, self.best.cost)
        if bound > self.bound:
            self.bound = bound
            self.notes.append(f"{method}: bound {bound:.9g}")

    def raise_once(self, bound: float, method: str) -> None:
        """Note a bound of plans that compute nothing twice."""
        self.once = max(self.once, bound)
        self.notes.append(f"{method}: bound {bound:.9g} of plans that compute nothing twice")

    def note(self, method: str) -> None:
        """Note what the best plan costs."""
        if self.best is not None:
            self.notes.append(f"{method}: cost {self.best.cost:.9g}")

    def within(self, gap: float, bound: float) -> bool:
        """Whether the best plan costs a bound but for a relative gap."""
        return self.best is not None and self.best.cost - bound <= gap * self.best.cost

    @property
    def done(self) -> bool:
        """Whether the best plan is certified among all plans."""
        return self.within(self.budget.gap, self.bound)

    @property
    def proved(self) -> bool:
        """Whether the best plan costs the bound of all plans but for rounding."""
        return self.within(PROVED, self.bound)

    def of_its_terms(self, plan: Selection | None) -> bool:
        """Whether a plan is one of those that the fixed-node bound is of."""
        return self.terms is not None and plan is not None and self.terms.has(plan)

    def within_terms(self, gap: float) -> bool:
        """Whether the best plan costs the fixed-node bound but for a relative gap."""
        return self.terms is not None and self.of_its_terms(self.best) and self.within(gap, self.terms.bound)

    def result(self, seconds: float) -> Extraction:
        """The best plan of the original problem, with its bounds. Raises `LimitError` where none was found."""
        lifted = None if self.best is None else self.stage.inverse.lift(self.best)
        terms = self.terms.bound if self.terms is not None and self.of_its_terms(self.best) else 0.0
        if self.known is not None and (lifted is None or self.known.cost < lifted.cost):
            lifted, terms = self.known, 0.0
        # Rounding could make a seed cheaper, or nothing else was found.
        for seed in self.problem.seeds if lifted is None or not self.proved else ():
            plan = complete(self.problem, {c: (s,) for c, s in seed.items()})
            if plan is not None and (lifted is None or plan.cost < lifted.cost):
                lifted, terms, self.method = plan, 0.0, "seed"
        if lifted is None:
            raise LimitError(
                f"no plan was found that computes each of {len(self.problem.single)} classes at one placement; allow "
                "more candidate placements, or state one such plan as a seed")
        cost = lifted.cost
        bound = cost if cost - self.bound <= PROVED * cost else min(self.bound, cost)
        once = max(bound, min(self.once, cost))
        return Extraction(lifted, bound, self.method, seconds, tuple(self.notes), once, max(once, min(terms, cost)))
