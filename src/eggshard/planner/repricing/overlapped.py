"""Planning for machines that overlap communication with computation: the cheapest plan by its schedule's makespan.

Extraction adds up prices, and a schedule takes less than their sum. It takes at least as long as every resource is
busy, and so at least any weighted mean of those times, which is a sum again. Selections under weighted prices
(`Weighted`) thus give different cheap plans and a bound on the schedules of all plans. Weights come in turns from
Kelley's cutting planes, where the plans so far promise the highest bound, and from the exposed time of the fastest
plan so far. Every plan found is scheduled and the fastest is kept; the critical path gives a second bound. Bodies of
loops, branches and manual computations are planned once, in the same way, for all weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eggshard.costmodel.pricing import Chains, Pricer, Weighted
from eggshard.costmodel.schedule import COMPUTE, Schedule, scheduled as in_order
from eggshard.planner.derivation import least_values
from eggshard.planner.state import Scheduled
from eggshard.selection.exact.highs import Model, SolverError
from eggshard.selection.problem import Problem
from eggshard.spmd.joining import JOINABLE, joined
from eggshard.steps.steps import StepPlan
from eggshard.steps.window_steps import WindowExchange

#: The number of weightings of resources that are tried besides plain sums (`python -m bench overlap`).
WEIGHTINGS = 6
#: The least weight of a resource (weights are fractions of 1), so that no step is free.
LEAST = 1e-4


def fastest(
    price: Pricer, select: Callable[[Pricer], Scheduled], problem: Callable[[Pricer], Problem],
    gap: float, late: Callable[[], bool],
) -> Scheduled:
    """The plan found whose schedule takes least, with a bound on the time of every schedule.

    price: of the model. select: the plan for which these prices add up to least, with bounds on such sums. problem:
    the selection problem under these prices. gap: ends the search. late: whether no more may be begun.
    """
    links = price.channels(())
    found = select(price)
    best, seconds = found, price.program(found.steps)
    # With the weight w on computing and (1 - w) / links on each link, no step counts less than w of its price.
    plain = 1 / (1 + price.overlap * len(links))
    bound, once = plain * found.search.bound, plain * found.search.once
    capped, shared, notes = found.search.capped, found.search.shared, [f"plain sums: {seconds:.9g} s"]
    sharing = plain * found.search.sharing
    if seconds - max(bound, once) > gap * seconds:
        chain = longest_chain(problem(Chains(price)))
        bound = max(bound, chain)
        notes.append(f"chains of steps: bound {chain:.9g} s")
    busy = [price.schedule(found.steps).busy]
    names = (COMPUTE, *links)
    tried: set[tuple[float, ...]] = set()
    while len(tried) < WEIGHTINGS and seconds - max(bound, once) > gap * seconds and not late():
        # By turns what may prove most, and what is worth saving in the fastest plan so far.
        ways = [weigh(busy, names), exposed(price.schedule(best.steps), names)]
        fresh = [w for w in (ways if len(tried) % 2 else reversed(ways)) if _rounded(w) not in tried]
        if not fresh:
            break
        weights = fresh[0]
        tried.add(_rounded(weights))
        found = select(Weighted(price, weights))
        busy.append(price.schedule(found.steps).busy)
        taken = price.program(found.steps)
        bound, once = max(bound, found.search.bound), max(once, found.search.once)
        capped, shared = capped or found.search.capped, shared or found.search.shared
        sharing = max(sharing, found.search.sharing)
        shown = ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())
        notes.append(f"weights {shown}: {taken:.9g} s, bound {max(found.search.bound, found.search.once):.9g} s")
        if taken < seconds * (1 - 1e-9):
            best, seconds = found, taken
    search = replace(best.search, bound=bound, once=max(bound, once), terms=0.0, capped=capped, shared=shared,
                     sharing=sharing, notes=(*best.search.notes, *notes))
    return replace(best, search=search)


def ordered(steps: StepPlan, pricer: Pricer) -> StepPlan:
    """The steps, joined where that is cheaper, in the order of their schedule if computing hides communication.

    What waits to be joined hides less; then all-reduces are joined only where the schedule gets shorter.
    """
    if not pricer.overlap:
        return joined(steps, pricer)
    ways = (in_order(joined(steps, pricer, kinds), pricer) for kinds in ((WindowExchange,), JOINABLE))
    return min(ways, key=pricer.program)


def exposed(schedule: Schedule, names: Sequence[str]) -> dict[str, float]:
    """Weights of resources by what saving a second of them would save of a schedule.

    All of it while nothing else is held, half while computing and communication go on at the same time.
    """
    hidden = dict.fromkeys(names, 0.0)
    for work, seconds in zip(schedule.work, schedule.hidden, strict=True):
        for channel in work.channels:
            hidden[channel] += seconds
    hidden[COMPUTE] = max((h for name, h in hidden.items() if name != COMPUTE), default=0.0)
    worth = {name: max(LEAST, 1 - hidden[name] / (2 * (schedule.busy.get(name) or math.inf))) for name in names}
    whole = sum(worth.values())
    return {name: part / whole for name, part in worth.items()}


def weigh(busy: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    """The weights of resources, with sum 1, for which the least weighted mean of a plan's times is most.

    busy: per plan the seconds for which each resource is held.
    """
    times = np.array([[plan.get(name, 0.0) for name in names] for plan in busy])
    scale = times.max() or 1.0
    free = 1 - LEAST * len(names)
    model = Model()
    # Columns: what each weight is above the least one, and the bound. Rows: the plans' times above it, the sum.
    model.add_columns(np.array([0.0] * len(names) + [-1.0]), np.array([free] * len(names) + [2.0]),
                      np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    for row in times / scale:
        columns = np.arange(len(names) + 1)
        model.add_rows(np.array([-LEAST * row.sum()]), np.array([math.inf]), np.zeros(len(columns), int), columns,
                       np.array([*row, -1.0]))
    model.add_rows(np.array([free]), np.array([free]), np.zeros(len(names), int), np.arange(len(names)),
                   np.ones(len(names)))
    try:
        above = np.clip(model.solve_linear(1.0).values[:-1], 0.0, None)
    except SolverError:
        above = np.ones(len(names))
    weights = LEAST + free * above / (above.sum() or 1.0)
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))


def _rounded(weights: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(round(weight, 3) for weight in weights.values())


def longest_chain(problem: Problem) -> float:
    """Seconds before which no plan has all roots, if a choice waits for what it needs, however much runs at once.

    A choice is no earlier than any need.
    """
    at_once = [[s._replace(needs=()) if s.cost < 0 else s for s in made] for made in problem.choices]  # `Chains.NEVER`

    def converted(shard: tuple[int, int], seconds: float) -> Iterator[tuple[int, float]]:
        row = seconds + problem.conversions[shard[0]][shard[1]]
        return zip(range(len(row)), row.tolist(), strict=True)

    found = least_values(
        replace(problem, choices=at_once), lambda _, choice, seconds: max(0.0, seconds + choice.cost), converted)
    return max((found.get(root, 0.0) for root in problem.roots), default=0.0)
