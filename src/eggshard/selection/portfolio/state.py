"""The state of the portfolio: the problem as far as it is reduced, plans, bounds, and the time left."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eggshard.errors import LimitError
from eggshard.selection.copies import single_copies
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Extraction, Problem, Selection
from eggshard.selection.reductions.reduction import Inverse
from eggshard.selection.search.ascent import Terms
from eggshard.selection.search.greedy import greedy
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.verify import check, complete

#: Number of choices above which a problem is searched from a few plans only, one choice at a time.
MANY_CHOICES = 5000


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


@dataclass(frozen=True)
class Budget:
    """deadline, most: when methods end, and when those end that mostly pay (`time.monotonic`). gap: the relative one
    that will do. exact: whether only bounds of all plans count.
    """

    deadline: float
    most: float
    gap: float
    exact: bool

    def left(self, least: float = 0.0) -> float:
        """Seconds for a method that may have ``least`` in any case, unless `most` comes first."""
        now = time.monotonic()
        return max(0.0, self.deadline - now, min(least, self.most - now))


class Stage:
    """One problem on the way of reductions, and the plans of it that searches begin with.

    Greedy plans come first, then ``seeds`` and ``more`` (choices of the original problem and of this one).
    """

    def __init__(
        self, problem: Problem, inverse: Inverse, deadline: float, seeds: Iterable[Mapping[int, int]] = (),
        more: Iterable[Mapping[int, tuple[int, ...]]] = (),
    ) -> None:
        self.problem, self.inverse, self.graph, self.flows = problem, inverse, Graph(problem), flow_count(problem)
        self.many = sum(map(len, problem.choices)) > MANY_CHOICES
        lowered: list[Mapping[int, tuple[int, ...]]] = [
            inverse.lower({c: (s,) for c, s in seed.items()}) for seed in seeds]
        found = greedy(self.graph)
        self.plans = list(found.plans)
        for chosen in [] if self.plans else lowered:
            self.plans += greedy(self.graph, {c: chosen[c][0] for c in problem.single if c in chosen}).plans
        self.derivable = [
            bool(problem.conversions[c].size) and found.whole.placed[c][q] < math.inf for c, q in problem.roots]
        self.search = LocalSearch(self.graph, found.split.best, deadline)
        self.greedy, self.adopted = len(self.plans), 0
        for chosen in (*lowered, *more):
            plan = self.search.adopt(chosen)
            if plan is not None:
                self.adopted += 1
                if all(plan.chosen != other.chosen for other in self.plans):
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
    #: What is left of the problem by the dual's reduced costs.
    fixed: Problem | None = None
    notes: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Take the stage's plans. Raises `LimitError` where some root cannot be derived."""
        for i, there in enumerate(self.stage.derivable):
            if not there:
                c, q = self.problem.roots[i]
                raise LimitError(
                    f"no plan delivers class {c} at placement {q}: none of its {len(self.problem.choices[c])} choices "
                    "can be computed and converted to it; allow more candidate placements")
        greedy_plans, others = self.stage.plans[: self.stage.greedy], self.stage.plans[self.stage.greedy :]
        for plan in greedy_plans:
            self.offer(plan, "greedy")
        self.note("greedy")
        for plan in others:
            self.offer(plan, "seed")
        if self.stage.adopted:
            self.note("seeds")

    def enter(self, stage: Stage) -> bool:
        """Go on with a problem that has every plan cheaper than the best; not where no plan of it was found."""
        if not stage.plans:
            return False
        best = self.best
        assert best is not None
        known = self.stage.inverse.lift(best)
        if known is not None and (self.known is None or known.cost < self.known.cost):
            self.known = known
        self.stage, self.best = stage, min(stage.plans, key=lambda plan: plan.cost)
        self.notes.append(f"affordable: {sum(map(len, stage.problem.choices))} choices")
        self.note("affordable")
        return True

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

    def of_its_terms(self, plan: Selection) -> bool:
        """Whether a plan is one of those that the fixed-node bound is of."""
        return self.terms is not None and self.terms.has(plan)

    def result(self, seconds: float) -> Extraction:
        """The best plan of the original problem, with its bounds. Raises `LimitError` where none was found."""
        lifted = None if self.best is None else self.stage.inverse.lift(self.best)
        terms = 0.0
        if self.terms is not None and self.best is not None and self.terms.has(self.best):
            terms = self.terms.bound
        if self.known is not None and (lifted is None or self.known.cost < lifted.cost):
            lifted, terms = self.known, 0.0
        for seed in self.problem.seeds:  # rounding could make a seed cheaper, or nothing else was found
            plan = complete(self.problem, {c: (s,) for c, s in seed.items()})
            if plan is not None and (lifted is None or plan.cost < lifted.cost):
                lifted, terms, self.method = plan, 0.0, "seed"
        if lifted is None:
            raise LimitError(
                f"no plan was found that computes each of {len(self.problem.single)} classes at one placement; allow "
                "more candidate placements, or state one such plan as a seed")
        assert not check(self.problem, lifted)
        cost = lifted.cost
        bound = cost if cost - self.bound <= 1e-9 * cost else min(self.bound, cost)
        once = max(bound, min(self.once, cost))
        return Extraction(lifted, bound, self.method, seconds, tuple(self.notes), once, max(once, min(terms, cost)))
