"""The methods of the portfolio as a table, in the order in which they run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from eggshard.selection.bounds.bound import cheap_bound, least_derivations
from eggshard.selection.exact import program
from eggshard.selection.exact.highs import SolverError
from eggshard.selection.portfolio.state import MANY_CHOICES, Stage, State, flow_count
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.affordable import Affordable
from eggshard.selection.reductions.presolve import SHRINK
from eggshard.selection.reductions.reduction import Chain, Composed
from eggshard.selection.reductions.terms import OfPlans
from eggshard.selection.search.ascent import Terms, ascend

#: Where choices are many, local search starts at this many plans at most, each within this ratio of the cheapest
#: (`python -m bench extraction` notices all constants of this table).
NEAR, FEW_STARTS = 1.25, 3
#: Numbers of flows above which dual ascent runs before the integer program, and above which it runs instead, ending at
#: the relative gap `CLOSE` (the last hundredth would take as long as all the rest).
MANY_FLOWS, DUAL_FLOWS, CLOSE = 2000, 10_000, 1e-2
#: Number of flows above which the integer program does not run.
EXACT_FLOWS = 20_000
#: Seconds that dual ascent and the integer program take per flow, without which they do not start; seconds that the
#: integer program takes to start, and seconds that it may have in any case.
DUAL_SECONDS, EXACT_SECONDS, EXACT_START, EXACT_LEAST = 4e-6, 1e-3, 1e-2, 2.0
#: The least seconds for local search from the best plan.
POLISH_LEAST = 0.5
#: How often dual ascent may continue with the terms of a neighbour, and the fraction by which that must be cheaper.
TERMS, WORTH = 3, 1e-3
#: Relative saving below which a plan does not replace one that has a certificate.
NEGLIGIBLE = 1e-6
#: The number of known plans recombined in each successive round.
PARENTS = (4, 8)


class Method(NamedTuple):
    """A method: its public name, whether it is worth running, the seconds it needs at least, and what it does."""

    name: str
    applies: Callable[[State], bool]
    needs: Callable[[State], float]
    run: Callable[[State], None]


def run(state: State) -> None:
    """Run the methods that were asked for, until the best plan is certified or time runs out."""
    state.begin()
    for method in METHODS:
        if method.name not in state.methods or not method.applies(state):
            continue
        needs = method.needs(state)
        if needs > state.budget.left(EXACT_LEAST):
            state.notes.append(f"{method.name}: {state.stage.flows} flows are too many for the time")
            continue
        try:
            method.run(state)
        except SolverError as error:  # whatever the solver does, the plan so far stands
            state.notes.append(f"solver: {type(error).__name__}: {error}"[:300])
        if method.name != "greedy":
            state.note(method.name)


# -- greedy and local search -----------------------------------------------------------------------------------------


def _narrow(state: State) -> None:
    """Raise the bound by what is cheap to find; leave out what costs more than the best plan, and begin again.

    Bounds of the smaller problem hold for plans that cost no more than the best.
    """
    stage, best = state.stage, state.best
    least = least_derivations(stage.graph)
    state.raise_bound(cheap_bound(stage.graph, least), "cheap")
    if best is None or state.done:
        return
    affordable = Affordable(least.placed, best.cost * (1 + state.budget.gap))
    if not affordable.pays(stage.problem):
        return
    problem, inner = Chain(affordable, SHRINK).apply(stage.problem)
    many = sum(map(len, problem.choices)) > MANY_CHOICES
    seeds = () if many else state.problem.seeds
    smaller = Stage(problem, Composed(stage.inverse, inner), state.budget.deadline, seeds, [inner.lower(best.chosen)])
    if state.enter(smaller):
        state.raise_bound(cheap_bound(smaller.graph), "cheap")


def _improve(state: State) -> None:
    """Local search from every plan to begin with; of many choices from those near the cheapest."""
    stage = state.stage
    starts = stage.plans
    if stage.many:
        least = min(plan.cost for plan in starts)
        near = [plan for plan in starts if plan.cost <= NEAR * least]
        starts = sorted(near, key=lambda plan: plan.cost)[:FEW_STARTS]
    # Where dual ascent finds the plan a start will do.
    if stage.many and "dual" in state.methods and not state.budget.exact:
        starts = starts[:1]
    for start in list(starts):
        plan = stage.search.improve(start.chosen)
        state.offer(plan, "local")
        if plan is not None:
            stage.plans.append(plan)


def _polish(state: State) -> None:
    """Local search from the best plan: within the gap there may be cheaper plans next door, e.g. where weights lie far
    apart."""
    best, stage = state.best, state.stage
    assert best is not None
    stage.search.deadline = time.monotonic() + state.budget.left(POLISH_LEAST)
    close = stage.flows > DUAL_FLOWS and state.within(CLOSE, state.once)
    plan = stage.search.improve(best.chosen, groups=not (stage.many or state.done or close))
    # Next to nothing is not worth the certificate of the terms.
    if state.of_its_terms(best) and plan is not None and not state.of_its_terms(plan):
        plan = plan if plan.cost < (1 - NEGLIGIBLE) * best.cost else None
    state.offer(plan, "local")


def _can_polish(state: State) -> bool:
    """Not a plan that is proved or, of a large problem, certified among those of its terms."""
    best = state.best
    if best is None or state.within(1e-9, state.bound) or time.monotonic() >= state.budget.most:
        return False
    terms = state.terms if state.stage.flows > DUAL_FLOWS and state.of_its_terms(best) else None
    return terms is None or not state.within(CLOSE, terms.bound)


# -- dual ascent -----------------------------------------------------------------------------------------------------


def _can_ascend(state: State) -> bool:
    """Not where only bounds of all plans count, which the integer program gives."""
    large = state.stage.flows > (EXACT_FLOWS if state.budget.exact else MANY_FLOWS)
    return large and state.best is not None and not state.done


def _ascend(state: State) -> None:
    """Dual ascent among the plans of the best plan's terms, and then among all."""
    stage, budget = state.stage, state.budget
    if _ascend_terms(state):
        return
    best = state.best
    if best is None or best.cost <= 0:
        return
    if stage.flows * DUAL_SECONDS > budget.left():
        state.notes.append(f"dual: {stage.flows} flows are too many for the time")
        return
    # Once begun it is let finish, however busy the machine: half the way proves little.
    patience = max(budget.deadline, time.monotonic() + 4 * stage.flows * DUAL_SECONDS)
    whole = ascend(stage.graph, stage.search, best.cost, max(budget.gap, CLOSE), patience)
    _take(state, whole.plan)
    _raise_once(state, whole.bound, "dual")
    state.fixed = whole.fixed


def _ascend_terms(state: State) -> bool:
    """Dual ascent among the plans of the best plan's terms, again where its best has a cheaper neighbour of other
    terms; whether these are all plans."""
    stage, budget = state.stage, state.budget
    for _ in range(TERMS):
        best = state.best
        if best is None or best.cost <= 0:
            return False
        terms = Terms(stage.problem, best)
        if time.monotonic() + flow_count(terms.problem) * DUAL_SECONDS > budget.most:
            return False
        plan = terms.ascend(CLOSE, budget.most)
        state.terms = terms
        state.notes.append(f"dual: bound {terms.bound:.9g} of plans of these terms that compute nothing twice")
        better = stage.search.improve(plan.chosen) if _take(state, plan) and plan is not None else None
        if terms.all_plans:
            _raise_once(state, terms.bound, "dual")
            state.fixed = terms.fixed
            return True
        if better is None or plan is None or better.cost > (1 - WORTH) * plan.cost or not _take(state, better):
            return False
    return False


def _take(state: State, plan: Selection | None) -> bool:
    """Keep a plan to put together with others; whether it is the cheapest yet."""
    if plan is not None:
        state.stage.plans.append(plan)
    return state.offer(plan, "dual")


def _raise_once(state: State, bound: float, method: str) -> None:
    """Raise the no-recomputation bound, and that of all plans where some optimal plan computes nothing twice."""
    state.raise_once(bound, method)
    if state.stage.once_will_do:
        state.raise_bound(bound, method)


# -- the integer program ---------------------------------------------------------------------------------------------


def _solve(state: State) -> None:
    """The integer program over shards, of all plans."""
    answer = program.solve(state.stage.graph, state.best, state.budget.left(EXACT_LEAST), state.budget.gap / 2)
    state.offer(answer.plan, "shards")
    state.raise_bound(answer.bound, "shards")


def _can_solve(state: State) -> bool:
    """All plans of a small problem are bounded, those of a larger one where nothing else will do."""
    small = state.stage.flows <= (EXACT_FLOWS if state.budget.exact else MANY_FLOWS)
    return small and not state.done and (state.best is None or state.best.cost > 0)


def _can_solve_large(state: State) -> bool:
    large = MANY_FLOWS < state.stage.flows <= EXACT_FLOWS and not state.budget.exact
    return large and state.best is not None and not _certified(state)


def _solve_seconds(state: State) -> float:
    return state.stage.flows * EXACT_SECONDS


def _certified(state: State) -> bool:
    """Whether the best plan is certified among plans that compute nothing twice, at least."""
    return state.within(state.budget.gap, max(state.bound, state.once))


def _solve_part(state: State, problem: Problem) -> tuple[Selection | None, float] | None:
    """The best plan found of a part of the stage's problem, and a bound of this part's; None if there is no time."""
    best, budget = state.best, state.budget
    assert best is not None
    small, inverse = SHRINK.apply(problem)
    part = Stage(small, inverse, budget.deadline, more=[inverse.lower(best.chosen)])
    if not all(part.derivable):
        return None, math.inf
    if part.flows > EXACT_FLOWS or part.flows * EXACT_SECONDS > budget.left(EXACT_LEAST):
        return None
    start = min(part.plans, key=lambda plan: plan.cost, default=None)
    answer = program.solve(part.graph, start, budget.left(EXACT_LEAST), budget.gap / 2)
    plans = [plan for plan in (answer.plan, start) if plan is not None]
    return (inverse.lift(min(plans, key=lambda plan: plan.cost)) if plans else None), answer.bound


def _solve_fixed(state: State) -> None:
    """The integer program of what the dual's reduced costs leave of the plans that compute nothing twice."""
    best = state.best
    assert best is not None and state.fixed is not None
    found = _solve_part(state, state.fixed)
    if found is not None:
        plan, bound = found
        state.offer(plan, "fixed")
        _raise_once(state, min(bound, best.cost), "fixed")


def _recombine(state: State) -> None:
    """The best plan of the choices of the cheapest plans; of few at first, as that takes least."""
    better = False
    for parents in PARENTS:
        found: list[Selection] = []
        for plan in sorted(state.stage.plans, key=lambda plan: plan.cost):
            if len(found) < parents and all(plan.chosen != other.chosen for other in found):
                found.append(plan)
        answer = _solve_part(state, OfPlans(found).apply(state.stage.problem)[0]) if len(found) > 1 else None
        if answer is not None and answer[0] is not None:
            state.stage.plans.append(answer[0])
            better |= state.offer(answer[0], "recombine")
    if better and state.terms is not None:
        _ascend_terms(state)


def _nothing(state: State) -> float:
    return 0.0


#: In the order in which they run. A name may come again: what it stands for goes on with what was found meanwhile.
METHODS = (
    Method("greedy", lambda state: True, _nothing, _narrow),
    Method("shards", lambda state: state.best is None and state.stage.flows <= EXACT_FLOWS, _nothing, _solve),
    Method("local", lambda state: state.best is not None and not state.done, _nothing, _improve),
    Method("shards", _can_solve, lambda state: EXACT_START, _solve),
    Method("dual", _can_ascend, _nothing, _ascend),
    Method("fixed", lambda state: state.fixed is not None and not _certified(state), _nothing, _solve_fixed),
    Method("shards", _can_solve_large, _solve_seconds, _solve),
    Method("recombine", lambda state: state.best is not None and not _certified(state), _nothing, _recombine),
    Method("local", _can_polish, _nothing, _polish),
)
