"""The way from a problem to a plan with a certificate: each method improves on what the ones before it found."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from eggshard.errors import LimitError
from eggshard.extract.bound import cheap_bound
from eggshard.extract.graph import Graph
from eggshard.extract.greedy import greedy, split_shares, tree_costs
from eggshard.extract.highs import deadline_left
from eggshard.extract.local_search import LocalSearch
from eggshard.extract.problem import Extraction, Problem, Selection
from eggshard.extract.shrink import shrink
from eggshard.extract.verify import check, complete

#: Methods in the order in which they run. Greedy always runs: it is where every other method starts.
METHODS = ("greedy", "local", "linear", "integer")

#: With more choices than these local search does not change groups of classes at once.
MANY_CHOICES = 5000
#: With more flows than these a certificate among plans that compute nothing twice is enough.
MANY_FLOWS = 2000

#: What the linear program takes per flow at least; with less time left it is not begun.
SECONDS_PER_FLOW = 2e-5


def flow_count(problem: Problem) -> int:
    """How many flows the edge model has: per consumer and operand, the computed times the needed placements."""
    needed: dict[tuple[int, int], set[int]] = {}
    for c, choices in enumerate(problem.choices):
        for choice in choices:
            for a, q in choice.needs:
                needed.setdefault((c, a), set()).add(q)
    made = [len({choice.out for choice in choices}) for choices in problem.choices]
    return sum(made[a] * len(qs) for (_, a), qs in needed.items())


def extract(
    problem: Problem, *, seconds: float = 10.0, gap: float = 1e-4, methods: Sequence[str] | None = None
) -> Extraction:
    """The best plan found within about ``seconds``, to a relative ``gap``, with a bound that holds for every plan.

    Never worse than any valid seed. The result depends on the clock only where the time runs out; then it is the best
    plan so far. ``methods`` restricts the portfolio to some of `METHODS`. Raises `LimitError` if no plan exists, and
    `ValueError` for an unknown method.
    """
    wanted = METHODS if methods is None else tuple(methods)
    unknown = [m for m in wanted if m not in METHODS]
    if unknown:
        raise ValueError(f"unknown extraction methods {unknown}; there are {', '.join(METHODS)}")
    began = time.monotonic()
    search = _Portfolio(problem, began + seconds, gap, wanted)
    search.run()
    return search.result(time.monotonic() - began)


class _Portfolio:
    """The best plan and bound so far, and the methods that improve them."""

    def __init__(self, problem: Problem, deadline: float, gap: float, methods: Sequence[str]) -> None:
        self.original = problem
        self.deadline = deadline
        self.gap = gap
        self.methods = methods
        self.notes: list[str] = []
        self.bound = 0.0
        self.once = 0.0
        self.flows = 0
        self.best: Selection | None = None
        self.method = "greedy"
        self.shrunk = shrink(problem)
        self.problem = self.shrunk.problem
        self.graph = Graph(self.problem)

    def run(self) -> None:
        plans = self._start()
        self._raise_bound(cheap_bound(self.graph), "cheap")
        if self._done():
            return
        if "local" in self.methods:
            for plan in plans:
                self._offer(self.search.improve(plan), "local")
            self._note("local")
        if self._done() or self._late():
            return
        if "linear" in self.methods or "integer" in self.methods:
            self._solve()
        best = self.best
        if "local" in self.methods and not self._late() and best is not None and not self._proved(best.cost):
            # Within the gap there may be cheaper plans next door, e.g. where weights lie far apart.
            small = sum(map(len, self.problem.choices)) <= MANY_CHOICES
            self._offer(self.search.improve(best.chosen, groups=small and not self._done()), "local")
            self._note("local")

    def result(self, seconds: float) -> Extraction:
        best = self.best
        assert best is not None
        lifted = self.shrunk.lift(best)
        for seed in self.original.seeds:  # only rounding could make a seed cheaper than what was found
            plan = complete(self.original, {c: (s,) for c, s in seed.items()})
            if plan is not None and (lifted is None or plan.cost < lifted.cost):
                lifted = plan
                self.method = "seed"
        assert lifted is not None and not check(self.original, lifted)
        bound = min(self.bound, lifted.cost)
        if self._proved(lifted.cost):
            bound = lifted.cost
        once = max(bound, min(self.once, lifted.cost))
        return Extraction(lifted, bound, self.method, seconds, tuple(self.notes), once)

    # -- the state ---------------------------------------------------------------------------------------------------

    def _offer(self, plan: Selection | None, method: str) -> bool:
        if plan is not None and (self.best is None or plan.cost < self.best.cost * (1 - 1e-12)):
            self.best = plan
            self.method = method
            return True
        return False

    def _raise_bound(self, bound: float, method: str) -> None:
        if self.best is not None:
            bound = min(bound, self.best.cost)
        if bound > self.bound:
            self.bound = bound
            self.notes.append(f"{method}: bound {bound:.9g}")

    def _note(self, method: str) -> None:
        if self.best is not None:
            self.notes.append(f"{method}: cost {self.best.cost:.9g}")

    def _raise_once(self, bound: float) -> None:
        self.once = max(self.once, bound)
        self.notes.append(f"linear: bound {bound:.9g} of plans that compute nothing twice")

    def _enough(self) -> bool:
        """Whether the best plan is certified among those that compute nothing twice, and proving more takes long."""
        best = self.best
        return best is not None and best.cost - self.once <= self.gap * best.cost and self.flows > MANY_FLOWS

    def _done(self) -> bool:
        best = self.best
        return best is not None and best.cost - self.bound <= self.gap * best.cost

    def _proved(self, cost: float) -> bool:
        """Whether the bound equals a cost but for rounding."""
        return cost - self.bound <= 1e-9 * cost

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline

    # -- the methods -------------------------------------------------------------------------------------------------

    def _start(self) -> list[Mapping[int, tuple[int, ...]]]:
        """Greedy plans and seeds; the distinct ones to search from, the cheapest first."""
        costs = tree_costs(self.graph)
        for c, q in self.problem.roots:
            if not self.problem.conversions[c].size or not costs.placed[c][q] < math.inf:
                old, placement = self.original.roots[self.problem.roots.index((c, q))]
                raise LimitError(
                    f"no plan delivers class {old} at placement {placement}: none of its "
                    f"{len(self.original.choices[old])} choices can be computed and converted to it; allow more "
                    "candidate placements")
        joining = tree_costs(self.graph, split_shares(self.problem)).best
        self.search = LocalSearch(self.graph, joining, self.deadline)
        plans = greedy(self.graph, costs)
        for plan in plans:
            self._offer(plan, "greedy")
        starts: list[Mapping[int, tuple[int, ...]]] = [plan.chosen for plan in plans]
        self._note("greedy")
        for seed in self.original.seeds:
            chosen = self.shrunk.lower({c: (s,) for c, s in seed.items()})
            adopted = self.search.adopt(chosen)
            if adopted is not None:
                self._offer(adopted, "seed")
                if adopted.chosen not in starts:
                    starts.append(adopted.chosen)
        if self.original.seeds:
            self._note("seeds")
        return starts

    def _solve(self) -> None:
        from eggshard.extract.programs import improve_by_programs

        assert self.best is not None
        self.flows = flow_count(self.problem)
        if self.flows * SECONDS_PER_FLOW > deadline_left(self.deadline):
            self.notes.append(f"linear: {self.flows} flows are too many for the time")
            return
        try:
            improve_by_programs(
                self.graph, self.best, self.search, self.deadline, self.gap, "integer" in self.methods,
                self._offer, self._raise_bound, self._raise_once, self._done, self._enough)
        except Exception as error:  # whatever the solver does, the plan so far stands
            self.notes.append(f"solver: {type(error).__name__}: {error}"[:300])
        self._note("programs")
