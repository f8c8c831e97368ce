"""The methods of the portfolio as a table, in the order in which they run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from eggshard.selection.bounds.bound import cheap_bound, least_derivations
from eggshard.selection.exact import program
from eggshard.selection.exact.highs import SolverError
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio.state import Stage, State, flow_count
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.parts import affordable, choice_count, of_plans
from eggshard.selection.reductions.presolve import shrink
from eggshard.selection.search.ascent import Terms, ascend
from eggshard.selection.verify import complete

#: Fraction of the choices that must be left out for the search to begin again with the rest (`python -m bench
#: extraction` notices all constants of this table).
WORTHWHILE = 0.2
#: Numbers of flows above which dual ascent runs in place of the integer program, to the relative gap `CLOSE` (the last
#: hundredth would take as long as all the rest).
MANY_FLOWS, CLOSE = 2000, 1e-2
#: Number of flows above which the integer program does not run.
EXACT_FLOWS = 20_000
#: Seconds on a usual core that dual ascent takes per flow and per class, that the integer program takes per flow, and
#: that this may have in any case.
FLOW_WORK, CLASS_WORK, EXACT_WORK, EXACT_LEAST = 3e-6, 8e-4, 1e-3, 1.0
#: How often dual ascent may continue with the terms of a neighbour, and the fraction by which that must be cheaper.
TERMS, WORTH = 3, 1e-3
#: Relative saving below which a plan does not replace one that has a certificate.
NEGLIGIBLE = 1e-6
#: The number of known plans recombined in each successive round.
PARENTS = (4, 8)


class Method(NamedTuple):
    """A method: its public name, whether it is worth running, and what it does."""

    name: str
    applies: Callable[[State], bool]
    run: Callable[[State], None]


def run(state: State) -> None:
    """Run the methods that were asked for, until the best plan is certified or time runs out."""
    state.begin()
    for method in METHODS:
        if method.name not in state.methods or not method.applies(state):
            continue
        try:
            method.run(state)
        except SolverError as error:  # whatever the solver does, the plan so far stands
            state.notes.append(f"solver: {type(error).__name__}: {error}"[:300])
        if method.name != "greedy":
            state.note(method.name)
        if time.monotonic() > state.budget.deadline:
            state.notes.append(f"{method.name}: time ran out")
            return


# -- greedy and local search -----------------------------------------------------------------------------------------


def _narrow(state: State) -> None:
    """Raise the bound by what is cheap to find; leave out what costs more than the best plan, and begin again.

    Bounds of the smaller problem hold for plans that cost no more than the best.
    """
    stage = state.stage
    least = least_derivations(stage.graph)
    state.raise_bound(cheap_bound(stage.graph, least), "cheap")
    if state.proved:
        return
    state.further()
    best = state.best
    if best is None or state.done:
        return
    part = affordable(stage.problem, least.placed, best.cost * (1 + state.budget.gap))
    if choice_count(part) > (1 - WORTHWHILE) * choice_count(stage.problem):
        return
    problem, inner = shrink(part)
    smaller = Stage(problem, stage.inverse.then(inner), state.budget.deadline)
    for plan in stage.plans:
        smaller.adopt(inner.lower(plan.chosen))
    state.enter(smaller)
    state.raise_bound(cheap_bound(state.stage.graph), "cheap")


def _improve(state: State) -> None:
    """Local search from every plan to begin with, both ways; of many choices from the cheapest, one way, as dual ascent
    finds others."""
    stage = state.stage
    starts = sorted(stage.plans, key=lambda plan: plan.cost)[: 1 if stage.many else None]
    for start, operands_first in itertools.product(starts, [False] if stage.many else [False, True]):
        plan = stage.search.improve(start.chosen, operands_first=operands_first)
        state.offer(plan, "local")
        stage.keep(plan)


def _polish(state: State) -> None:
    """Local search from the best plan: within the gap there may be cheaper plans next door, e.g. where weights lie far
    apart."""
    best, stage = state.best, state.stage
    assert best is not None
    plan = stage.search.improve(best.chosen)
    # Next to nothing is not worth the certificate of the terms.
    if state.of_its_terms(best) and plan is not None and not state.of_its_terms(plan):
        plan = plan if plan.cost < (1 - NEGLIGIBLE) * best.cost else None
    state.offer(plan, "local")


def _can_polish(state: State) -> bool:
    """Not a plan that is proved, or certified among those of its terms."""
    return state.best is not None and not state.proved and not state.within_terms(CLOSE)


# -- dual ascent -----------------------------------------------------------------------------------------------------


def _can_ascend(state: State) -> bool:
    """Not where only bounds of all plans count, which the integer program gives."""
    large = state.stage.flows > (EXACT_FLOWS if state.budget.exact else MANY_FLOWS)
    return large and state.best is not None and state.best.cost > 0 and not state.done


def _can_ascend_further(state: State) -> bool:
    """Where plans of other terms than the best plan's may be that much cheaper."""
    far = not state.within(state.budget.far, state.bound)
    return far and _can_ascend(state) and not _close(state) and not (state.terms and state.terms.all_plans)


def _enough(state: State) -> float:
    """The relative gap that will do: in a large problem as far as dual ascent goes."""
    return max(state.budget.gap, CLOSE if state.stage.flows > EXACT_FLOWS else 0.0)


def _close(state: State) -> bool:
    """Whether the best plan is certified among plans that compute nothing twice, at least."""
    return state.within(_enough(state), max(state.bound, state.once))


def _ascend(state: State) -> None:
    """Dual ascent among all plans."""
    stage, budget, best = state.stage, state.budget, state.best
    assert best is not None
    if not budget.affords(_ascent_work(stage.problem)):
        state.notes.append(f"once: {stage.flows} flows are too many")
        return
    whole = ascend(stage.graph, stage.search, best.cost, max(budget.gap, CLOSE), budget.deadline)
    _take(state, whole.plan)
    _raise_once(state, whole.bound, "once")


def _ascend_terms(state: State) -> None:
    """Dual ascent among the plans of the best plan's terms, again where its best has a cheaper neighbour of other
    terms."""
    stage, budget = state.stage, state.budget
    for _ in range(TERMS):
        best = state.best
        assert best is not None
        terms = Terms(stage.problem, best)
        if not budget.affords(_ascent_work(terms.problem), patient=True):
            return
        plan = terms.ascend(CLOSE, budget.deadline)
        state.terms = terms
        state.notes.append(f"dual: bound {terms.bound:.9g} of plans of these terms that compute nothing twice")
        better = stage.search.improve(plan.chosen) if _take(state, plan) and plan is not None else None
        if terms.all_plans:
            _raise_once(state, terms.bound, "dual")
            return
        if better is None or plan is None or better.cost > (1 - WORTH) * plan.cost or not _take(state, better):
            return


def _ascent_work(problem: Problem) -> float:
    return flow_count(problem) * FLOW_WORK + len(problem.choices) * CLASS_WORK


def _take(state: State, plan: Selection | None) -> bool:
    """Keep a plan to put together with others; whether it is the cheapest yet."""
    state.stage.keep(plan)
    return state.offer(plan, "dual")


def _raise_once(state: State, bound: float, method: str) -> None:
    """Raise the no-recomputation bound, and that of all plans where some optimal plan computes nothing twice."""
    state.raise_once(bound, method)
    if state.stage.once_will_do:
        state.raise_bound(bound, method)


# -- the integer program ---------------------------------------------------------------------------------------------


def _can_solve(state: State) -> bool:
    """All plans of a small problem are bounded, those of a larger one where nothing else will do."""
    most = EXACT_FLOWS if state.budget.exact or state.best is None else MANY_FLOWS
    return state.stage.flows <= most and not state.done and (state.best is None or state.best.cost > 0)


def _can_solve_large(state: State) -> bool:
    """Those that were too large before dual ascent, where there is time."""
    flows = state.stage.flows
    large = MANY_FLOWS < flows <= EXACT_FLOWS and not state.budget.exact
    return large and state.best is not None and not _close(state) and flows * EXACT_WORK <= state.budget.work


def _solve(state: State) -> None:
    """The integer program over shards, of all plans."""
    answer = _solved(state, state.stage.graph, state.best)
    state.offer(answer.plan, "shards")
    state.raise_bound(answer.bound, "shards")


def _solved(state: State, graph: Graph, incumbent: Selection | None) -> program.Answer:
    budget = state.budget
    answer = program.solve(graph, incumbent, max(budget.work, EXACT_LEAST), budget.gap / 2, budget.deadline)
    budget.work -= answer.work
    return answer


def _can_recombine(state: State) -> bool:
    """Not a plan that is hardly dearer than the best one of its terms, let alone than all others."""
    if state.best is None or state.best.cost <= 0 or _close(state):
        return False
    return not state.within_terms(max(WORTH, _enough(state)))


def _recombine(state: State) -> None:
    """The best plan of the choices of the cheapest plans; of few at first, as that takes least, and of more if that
    gives a better one."""
    for parents in PARENTS:
        found = sorted(state.stage.plans, key=lambda plan: plan.cost)[:parents]
        plan = _recombined(state, found) if len(found) > 1 else None
        state.stage.keep(plan)
        if not state.offer(plan, "recombine"):
            break
    if state.terms is not None and not state.of_its_terms(state.best):
        _ascend_terms(state)


def _recombined(state: State, parents: Sequence[Selection]) -> Selection | None:
    """The best plan found of the choices of some plans, the cheapest first; None for too many flows."""
    small, inverse = shrink(of_plans(state.stage.problem, parents))
    if flow_count(small) > EXACT_FLOWS:
        return None
    plan = _solved(state, Graph(small), complete(small, inverse.lower(parents[0].chosen))).plan
    return None if plan is None else inverse.lift(plan)


#: In the order in which they run. A name may come again: what it stands for goes on with what was found meanwhile.
METHODS = (
    Method("greedy", lambda state: True, _narrow),
    Method("local", lambda state: state.best is not None and not state.done, _improve),
    Method("shards", _can_solve, _solve),
    Method("dual", _can_ascend, _ascend_terms),
    Method("once", _can_ascend_further, _ascend),
    Method("shards", _can_solve_large, _solve),
    Method("recombine", _can_recombine, _recombine),
    Method("local", _can_polish, _polish),
)
