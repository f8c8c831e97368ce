"""The way from a problem to a plan with a certificate: each method improves on what the ones before it found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from eggshard.errors import LimitError
from eggshard.selection.bounds.bound import cheap_bound, least_derivations
from eggshard.selection.certify import availability, cpsat
from eggshard.selection.certify.highs import deadline_left
from eggshard.selection.certify.merge import merge
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Extraction, Problem, Selection
from eggshard.selection.reductions.affordable import Narrowed, narrow
from eggshard.selection.reductions.shrink import Shrunk, shrink
from eggshard.selection.search.ascent import Terms, ascend
from eggshard.selection.search.greedy import greedy
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.verify import check, complete

#: Methods in the order in which they run. Greedy always runs: it is where every other method starts. CP-SAT, where it
#: is installed, is left out of problems without circles unless it is asked for by name: there it takes long.
METHODS = ("greedy", "local", "shards", "dual", "cpsat", "linear", "integer")

#: With more choices than these local search does not change groups of classes at once, and begins only at the few
#: cheapest plans, of those that cost no more than so many times the cheapest.
MANY_CHOICES = 5000
NEAR = 1.25
FEW_STARTS = 3
#: With more flows than these a certificate among plans that compute nothing twice is enough, and the dual ascent comes
#: before the linear program, which takes several times as long. With more than these it is relied on: it ends at this
#: gap (the last hundredth would take as long as all the rest), and where it gets nowhere the linear program is not
#: begun.
MANY_FLOWS, DUAL_FLOWS, CLOSE = 2000, 10_000, 1e-2
#: With more flows than these the integer program over shards is not asked.
SHARD_FLOWS = 20_000
#: How often it may go on with the terms of a neighbour that is cheaper by this part.
TERMS, WORTH = 3, 1e-3
#: A plan that is cheaper by less than this part is not taken where a certificate would go with the other.
NEGLIGIBLE = 1e-6

#: What the dual ascent and the linear program take per flow; with less time left they are not begun.
DUAL_SECONDS, LINEAR_SECONDS = 4e-6, 2e-5

#: Of the time left, what CP-SAT has before the linear and integer programs, and the least seconds that pay.
CIRCLES_SHARE, CIRCLES_LEAST = 0.8, 2.0


def flow_count(problem: Problem) -> int:
    """How many flows the edge model has: per consumer and operand, the computed times the needed placements."""
    needed: dict[tuple[int, int], set[int]] = {}
    possible = [[choice for choice in choices if choice.cost < math.inf] for choices in problem.choices]
    for c, choices in enumerate(possible):
        for choice in choices:
            for a, q in choice.needs:
                needed.setdefault((c, a), set()).add(q)
    made = [len({choice.out for choice in choices}) for choices in possible]
    return sum(made[a] * len(qs) for (_, a), qs in needed.items())


def extract(
    problem: Problem, *, seconds: float = 10.0, gap: float = 1e-4, methods: Sequence[str] | None = None,
    most: float = 0.0, exact: bool = False,
) -> Extraction:
    """The best plan found within about ``seconds``, to a relative ``gap``, with a bound that holds for every plan.

    The dual ascent mostly pays: it is begun, too, where that many seconds do not suffice, but ``most`` do. ``exact``: a
    certificate among plans that compute nothing twice is not enough, where there is time for the linear program; the
    dual ascent, which gives no other, is left out then.

    Never worse than any valid seed. The result depends on the clock only where the time runs out; then it is the best
    plan so far. ``methods`` restricts the portfolio to some of `METHODS`. Raises `LimitError` if no plan exists, and
    `ValueError` for an unknown method.
    """
    wanted = METHODS if methods is None else tuple(methods)
    unknown = [m for m in wanted if m not in METHODS]
    if unknown:
        raise ValueError(f"unknown extraction methods {unknown}; there are {', '.join(METHODS)}")
    began = time.monotonic()
    search = _Portfolio(problem, began + seconds, gap, wanted, began + max(seconds, most), methods is not None, exact)
    search.run()
    return search.result(time.monotonic() - began)


class _Portfolio:
    """The best plan and bound so far, and the methods that improve them."""

    def __init__(
        self, problem: Problem, deadline: float, gap: float, methods: Sequence[str], most: float, by_name: bool = False,
        exact: bool = False,
    ) -> None:
        self.original = problem
        self.deadline, self.most = deadline, most
        self.gap = gap
        self.methods = methods
        #: Whether the methods were asked for one by one.
        self.by_name = by_name
        #: Whether only bounds of all plans count, where the problem is not too large for those.
        self.exact = exact
        self.notes: list[str] = []
        self.bound = 0.0
        self.once = 0.0
        self.flows = 0
        self.hopeless = False
        self.terms: Terms | None = None
        self.best: Selection | None = None
        self.method = "greedy"
        #: The best plan when local search last ended.
        self.polished: Selection | None = None
        #: The best plan of all choices, once those that cost more are left out.
        self.known: Selection | None = None
        self.shrunk: Shrunk | Narrowed = shrink(problem)
        self.problem = self.shrunk.problem
        self.graph = Graph(self.problem)

    def run(self) -> None:
        plans = self._bounded(self._start(self.original.seeds))
        self.flows = flow_count(self.problem)
        if self.best is None and self._may_copy():
            self._solve_shards()
        if self.best is None or self._done():
            return
        if "local" in self.methods:
            # Where dual ascent finds the plan a start will do.
            ascends = "dual" in self.methods and self.flows > DUAL_FLOWS and not self.exact
            for plan in plans[:1] if ascends else plans:
                self._offer(self.search.improve(plan), "local")
            self._note("local")
        if self._done() or time.monotonic() >= self.most:
            return
        if self._may_copy():
            self._solve_shards()
            if self._done() or self._late():
                return
        exact = self.exact and self._fits(LINEAR_SECONDS, "exact")
        if "dual" in self.methods and self.flows > MANY_FLOWS and not exact:
            before = time.monotonic()
            self._ascend()
            if self.flows <= DUAL_FLOWS:
                self.search.deadline = time.monotonic() + max(deadline_left(self.deadline), time.monotonic() - before)
                self._polish()
        if self._may_constrain():
            self._constrain()
        if self._late():
            return
        if "linear" in self.methods and self.flows <= MANY_FLOWS and not self._done():
            self._solve_merged()
        # Where the dual ascent gives up the linear program, which takes longer, proves nothing either.
        if not self._done() and not self.hopeless and ("linear" in self.methods or "integer" in self.methods):
            self._solve()
        if not self._late():
            self._polish()

    def result(self, seconds: float) -> Extraction:
        lifted = None if self.best is None else self.shrunk.lift(self.best)
        if self.known is not None and (lifted is None or self.known.cost < lifted.cost):
            lifted = self.known
        for seed in self.original.seeds:  # rounding could make a seed cheaper, or nothing else was found
            plan = complete(self.original, {c: (s,) for c, s in seed.items()})
            if plan is not None and (lifted is None or plan.cost < lifted.cost):
                lifted = plan
                self.method = "seed"
        if lifted is None:
            raise LimitError(
                f"no plan was found that computes each of {len(self.original.single)} classes at one placement; allow "
                "more candidate placements, or state one such plan as a seed")
        assert not check(self.original, lifted)
        bound = min(self.bound, lifted.cost)
        if self._proved(lifted.cost):
            bound = lifted.cost
        once = max(bound, min(self.once, lifted.cost))
        terms = max(once, self._of_terms(lifted))
        return Extraction(lifted, bound, self.method, seconds, tuple(self.notes), once, terms)

    def _of_terms(self, lifted: Selection) -> float:
        """The bound of plans of the best plan's terms, 0 where it is not known."""
        best, terms = self.best, self.terms
        if best is None or terms is None or lifted is self.known or not terms.has(best):
            return 0.0
        return min(terms.bound, lifted.cost)

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

    def _raise_once(self, bound: float, method: str = "linear") -> None:
        self.once = max(self.once, bound)
        self.notes.append(f"{method}: bound {bound:.9g} of plans that compute nothing twice")

    def _enough(self) -> bool:
        """Whether the best plan is certified among those that compute nothing twice, and proving more takes long."""
        best = self.best
        many = self.flows > MANY_FLOWS and not self.exact
        return best is not None and best.cost - self.once <= self.gap * best.cost and many

    def _close(self) -> bool:
        """Whether a larger problem's best plan is certified as far as the dual ascent goes."""
        best = self.best
        return best is not None and best.cost - self.once <= CLOSE * best.cost and self.flows > DUAL_FLOWS

    def _done(self) -> bool:
        best = self.best
        return best is not None and best.cost - self.bound <= self.gap * best.cost

    def _proved(self, cost: float) -> bool:
        """Whether the bound equals a cost but for rounding."""
        return cost - self.bound <= 1e-9 * cost

    def _settled(self, best: Selection) -> bool:
        """Whether a plan is proved or, of a large problem, certified among those of its terms."""
        terms = self.terms if self.flows > DUAL_FLOWS and self._of_its_terms(best) else None
        return self._proved(best.cost) or (terms is not None and best.cost - terms.bound <= CLOSE * best.cost)

    def _of_its_terms(self, plan: Selection) -> bool:
        """Whether a plan is one of those that the dual ascent among the plans of one term bounds."""
        return self.terms is not None and self.terms.has(plan)

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline

    # -- the methods -------------------------------------------------------------------------------------------------

    def _start(self, seeds: Sequence[Mapping[int, int]]) -> list[Mapping[int, tuple[int, ...]]]:
        """Greedy plans and seeds; the distinct ones to search from, of many choices those near the cheapest."""
        found = greedy(self.graph)
        plans, costs = found.plans, found.whole
        for seed in () if plans else seeds:
            chosen = self.shrunk.lower({c: (s,) for c, s in seed.items()})
            plans += greedy(self.graph, {c: chosen[c][0] for c in self.problem.single if c in chosen}).plans
        for c, q in self.problem.roots:
            if not self.problem.conversions[c].size or not costs.placed[c][q] < math.inf:
                old, placement = self.original.roots[self.problem.roots.index((c, q))]
                raise LimitError(
                    f"no plan delivers class {old} at placement {placement}: none of its "
                    f"{len(self.original.choices[old])} choices can be computed and converted to it; allow more "
                    "candidate placements")
        self.costs = costs
        self.search = LocalSearch(self.graph, found.split.best, self.deadline)
        for plan in plans:
            self._offer(plan, "greedy")
        starts = list(plans)
        self._note("greedy")
        for seed in seeds:
            chosen = self.shrunk.lower({c: (s,) for c, s in seed.items()})
            adopted = self.search.adopt(chosen)
            if adopted is not None:
                self._offer(adopted, "seed")
                if all(adopted.chosen != start.chosen for start in starts):
                    starts.append(adopted)
        if seeds:
            self._note("seeds")
        if self._many and starts:
            least = min(start.cost for start in starts)
            near = [start for start in starts if start.cost <= NEAR * least]
            starts = sorted(near, key=lambda start: start.cost)[:FEW_STARTS]
        return [start.chosen for start in starts]

    @property
    def _many(self) -> bool:
        return sum(map(len, self.problem.choices)) > MANY_CHOICES

    def _bounded(self, plans: list[Mapping[int, tuple[int, ...]]]) -> list[Mapping[int, tuple[int, ...]]]:
        """Raise the bound by what is cheap to find; leave out what costs more than the best plan, and search again.

        Returns the plans to search from. Bounds of the smaller problem hold for plans that cost no more than the best.
        """
        least = least_derivations(self.graph)
        self._raise_bound(cheap_bound(self.graph, least), "cheap")
        best = self.best
        if best is None:
            return plans
        narrowed = None if self._done() else narrow(self.shrunk, least.placed, best.cost * (1 + self.gap))
        if narrowed is None:
            return plans
        smaller = self._go_on(narrowed)
        if smaller is None:
            return plans
        self._raise_bound(cheap_bound(self.graph), "cheap")
        return smaller

    def _go_on(self, narrowed: Narrowed) -> list[Mapping[int, tuple[int, ...]]] | None:
        """Go on with a problem that has every plan cheaper than the best; the plans to search from.

        None, with nothing changed, where the search finds no plan in it (for classes that may be computed once).
        """
        best = self.best
        assert best is not None
        known = self.shrunk.lift(best)
        if known is not None and (self.known is None or known.cost < self.known.cost):
            self.known = known
        before = self.shrunk, self.problem, self.graph, self.search, self.costs
        self.shrunk, self.problem, self.graph = narrowed, narrowed.problem, Graph(narrowed.problem)
        self.notes.append(f"affordable: {sum(map(len, self.problem.choices))} choices")
        self.best, method = None, self.method
        plans = self._start(() if self._many else self.original.seeds)
        self._offer(self.search.adopt(narrowed.inner.lower(best.chosen)), method)
        if self.best is None:
            self.shrunk, self.problem, self.graph, self.search, self.costs = before
            self.best = best
            return None
        self.flows = flow_count(self.problem)
        return plans

    def _fits(self, seconds: float, method: str) -> bool:
        """Whether there is time for a method that takes so long per flow."""
        if self.flows * seconds <= deadline_left(self.deadline):
            return True
        self.notes.append(f"{method}: {self.flows} flows are too many for the time")
        return False

    def _ascend(self) -> None:
        """Dual ascent among the plans of the best plan's terms, again where its best has a cheaper neighbour of other
        terms, and then among all.
        """
        every = False
        for _ in range(TERMS):
            best = self.best
            if best is None or every or best.cost <= 0:
                break
            terms = Terms(self.problem, best)
            flows = flow_count(terms.problem)
            if time.monotonic() + flows * DUAL_SECONDS > self.most:
                break
            plan = terms.ascend(CLOSE, self.most)
            every, self.terms = terms.all_plans, terms
            self.notes.append(f"dual: bound {terms.bound:.9g} of plans of these terms that compute nothing twice")
            if every:
                self._raise_once(terms.bound, "dual")
            if plan is None or not self._offer(plan, "dual"):
                break
            better = self.search.improve(plan.chosen)
            if better is None or better.cost > (1 - WORTH) * plan.cost or not self._offer(better, "dual"):
                break
        best = self.best
        if best is not None and not every and best.cost > 0 and self._fits(DUAL_SECONDS, "dual"):
            # Once begun it is let finish, however busy the machine: half the way proves little.
            patience = max(self.deadline, time.monotonic() + 4 * self.flows * DUAL_SECONDS)
            whole = ascend(self.graph, self.search, best.cost, max(self.gap, CLOSE), patience)
            self.hopeless = whole.hopeless and self.flows > DUAL_FLOWS
            self._raise_once(whole.bound, "dual")
            self._offer(whole.plan, "dual")
        self._note("dual")

    def _polish(self) -> None:
        """Local search from the best plan, unless that is settled: within the gap there may be cheaper plans next door,
        e.g. where weights lie far apart.
        """
        best = self.best
        if "local" not in self.methods or best is None or best is self.polished or self._settled(best):
            return
        groups = not self._many and not self._done() and not self._close()
        plan = self.search.improve(best.chosen, groups=groups)
        # Next to nothing is not worth the certificate of the terms.
        if self._of_its_terms(best) and plan is not None and not self._of_its_terms(plan):
            plan = plan if plan.cost < (1 - NEGLIGIBLE) * best.cost else None
        self._offer(plan, "local")
        self._note("local")
        self.polished = self.best

    def _may_copy(self) -> bool:
        """Whether to ask the program over shards, which bounds plans that compute classes at several placements, and
        needs none to start from."""
        if "shards" not in self.methods or self.graph.has_cycles or self.flows > SHARD_FLOWS:
            return False
        return self.best is None or self.exact and self.best.cost > 0

    def _solve_shards(self) -> None:
        """The integer program over shards."""

        def solve() -> None:
            answer = availability.solve(self.graph, self.best, deadline_left(self.deadline), self.gap / 2)
            self._offer(answer.plan, "shards")
            self._raise_bound(answer.bound, "shards")

        self._guarded(solve)
        self._note("shards")

    def _may_constrain(self) -> bool:
        """Whether CP-SAT is to be asked: in circles its program is much stronger than the linear one."""
        if "cpsat" not in self.methods or not (self.graph.has_cycles or self.by_name) or self._done():
            return False
        short = "OR-tools is not installed" if not cpsat.available() else (
            "no time to start" if deadline_left(self.most) < cpsat.START else "")
        if short:
            self.notes.append(f"cpsat: {short}")
        return not short

    def _constrain(self) -> None:
        """CP-SAT in its own process, for most of the time that is left."""
        best = self.best
        if best is None or best.cost <= 0:
            return
        others = "linear" in self.methods or "integer" in self.methods

        def solve() -> None:
            seconds = (CIRCLES_SHARE if others else 1.0) * deadline_left(self.deadline)
            seconds = max(seconds, min(CIRCLES_LEAST, deadline_left(self.most)))
            answer = cpsat.solve(self.graph, best, seconds, self.gap)
            if answer.chosen is not None:
                self._offer(complete(self.problem, answer.chosen), "cpsat")
            self._raise_bound(answer.bound, "cpsat")

        self._guarded(solve)
        self._note("cpsat")

    def _solve_merged(self) -> None:
        """The linear program with classes merged that are as good as one another, for its bound."""
        from eggshard.selection.certify.programs import improve_by_programs

        assert self.best is not None
        merged = merge(self.graph, self.costs, self.best.cost)
        if merged is None:
            return
        graph = Graph(shrink(merged).problem)
        starts = greedy(graph)
        if not starts.plans:
            return
        search = LocalSearch(graph, starts.split.best, self.deadline)
        better = [search.improve(start.chosen) for start in starts.plans]
        least = min((plan for plan in (*starts.plans, *better) if plan is not None), key=lambda plan: plan.cost)

        def hopeless() -> bool:
            """Whether the bound cannot come within the gap any more."""
            return self.best is not None and least.cost < (1 - self.gap) * self.best.cost

        def offer(plan: Selection | None, method: str) -> None:
            nonlocal least
            if plan is not None and plan.cost < least.cost:
                least = plan

        if least.cost > 0 and not hopeless():
            self._guarded(lambda: improve_by_programs(
                graph, least, search, self.deadline, self.gap, "integer" in self.methods, offer,
                lambda bound, method: self._raise_bound(bound, f"merged {method}"), lambda bound: None,
                lambda: self._done() or hopeless(), lambda: False))

    def _solve(self) -> None:
        from eggshard.selection.certify.programs import improve_by_programs

        again = self._fits(LINEAR_SECONDS, "linear")

        def go_on(problem: Problem) -> bool:
            nonlocal again
            if self.terms is not None:  # those are of this problem
                return False
            again = self._go_on(Narrowed(self.shrunk, shrink(problem))) is not None
            return again

        while again and self.best is not None and not self._done():
            again, best = False, self.best
            self._guarded(lambda best=best: improve_by_programs(  # type: ignore[misc]
                self.graph, best, self.search, self.deadline, self.gap, "integer" in self.methods,
                self._offer, self._raise_bound, self._raise_once, self._done, self._enough, go_on))
            self._note("programs")

    def _guarded(self, solve: Callable[[], None]) -> None:
        try:
            solve()
        except Exception as error:  # whatever the solver does, the plan so far stands
            self.notes.append(f"solver: {type(error).__name__}: {error}"[:300])
