"""Search for plans that take less memory, by pricing the bytes that steps touch and by running steps in strips.

A price per byte (a Lagrange multiplier) steers placements and reshardings towards smaller shards; the memory of each
plan found is then read from `Plan.memory`, and its cost from the user's own model. Reordering steps does not help,
since the compiler schedules for itself. Loops do: the steps that hold most run in strips (`strip_mining.py`), one loop
after the other until the plan fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from eggshard.costmodel.pricing import Pricer, step_info
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.costmodel.schedule import scheduled
from eggshard.limits import Deadline
from eggshard.memory.model import Memory
from eggshard.memory.prediction import memory_of, predicted
from eggshard.memory.strips.strip_mining import Cut, cuts
from eggshard.plan.reasons import Reasons
from eggshard.plan.record import PlanRecord
from eggshard.steps.steps import StepPlan

#: Ratio of successive prices per byte tried, and the part of the plan's cost that memory makes at the first one
#: (`python -m bench memory` notices these and the following limits).
_FACTOR, _FIRST = 4.0, 1 / 16
#: Prices tried before a memory limit counts as out of reach, and bisection steps between the last two prices.
_PRICES, _HALVINGS = 8, 3
#: The most loops over strips in a plan, and the fraction of its temporaries' bytes that each loop must save.
_LOOPS, _SAVING = 4, 0.01
#: The part of what a loop saves in most strips that it may save less in fewer, where more loops are to follow.
_LOST = 0.1
#: The number of other plans, those with least memory, tried in strips if the cheapest plan in strips does not fit.
_LEAST = 1
#: Relative cost above the cheapest plan's at which a plan in strips is good enough to stop the search.
_NEAR = 0.01


@dataclass(frozen=True)
class MemoryPriced:
    """A cost model with a price, in seconds, on every byte that a step reads or writes."""

    model: CostModel
    price: float

    def seconds(self, step: StepInfo) -> float:
        """The model's answer, and the price of the bytes."""
        return self.model.seconds(step) + self.price * step.memory_bytes


#: Plans at a cost model; the plan at the user's own is known.
Planner = Callable[[CostModel], PlanRecord]


def cheapest_within(
    limit: float, cheapest: PlanRecord, planner: Planner, whole: float = 0, deadline: Deadline | None = None
) -> tuple[PlanRecord | None, int]:
    """The cheapest plan found whose memory stays within ``limit`` bytes, None if none does; and the least peak found.

    ``cheapest`` is the best plan without a limit, and is returned where it fits. ``whole``: what all plans take at
    least that do every step whole. After the deadline no more plans are made, and the one found says so.
    """
    deadline = deadline or Deadline()
    if memory_of(cheapest).peak <= limit:
        return cheapest, memory_of(cheapest).peak
    found = [in_strips_within(limit, cheapest, deadline)]
    if memory_of(found[0]).peak > limit or found[0].cost.total > (1 + _NEAR) * cheapest.cost.total:
        others = [cheapest.baseline, *(_at_prices_within(limit, cheapest, planner, deadline) if whole <= limit else ())]
        found += others
        if all(memory_of(p).peak > limit for p in found):
            least = sorted(others, key=lambda p: memory_of(p).peak)[:_LEAST]
            tried = (p for p in least if p.device_program != cheapest.device_program and not deadline.passed)
            found += [in_strips_within(limit, p, deadline) for p in tried]
    within = [p for p in found if memory_of(p).peak <= limit]
    best = min(within, key=lambda p: p.cost.total, default=None)
    if best is not None and deadline.passed:
        best = replace(best, search=replace(best.search, notes=(*best.search.notes, "memory: ended by the time limit")))
    return best, min(memory_of(p).peak for p in found)


def _at_prices_within(limit: float, cheapest: PlanRecord, planner: Planner, deadline: Deadline) -> list[PlanRecord]:
    """The plans found at rising prices, until one fits, and at prices between the last two."""
    found: list[PlanRecord] = []
    low = high = 0.0
    for price in prices(cheapest):
        if deadline.passed:
            return found
        found.append(at_price(cheapest, planner, price))
        low, high = high, price
        if memory_of(found[-1]).peak <= limit:
            break
    if memory_of(found[-1]).peak <= limit:
        for _ in range(_HALVINGS):
            if deadline.passed:
                break
            middle = (low * high) ** 0.5 if low else high / _FACTOR
            found.append(at_price(cheapest, planner, middle))
            low, high = (low, middle) if memory_of(found[-1]).peak <= limit else (middle, high)
    return found


def in_strips_within(limit: float, plan: PlanRecord, deadline: Deadline) -> PlanRecord:
    """The plan with loops over strips: the cheapest one found that fits, or else the one that takes least."""
    program, memory = plan.device_program, memory_of(plan)
    pricer = Pricer(plan.cost_model, plan.mesh)
    for _ in range(_LOOPS):
        fitting: list[tuple[float, int, StepPlan]] = []
        least: tuple[Memory, Cut] | None = None
        for again in (False, True):
            for cut in () if fitting else cuts(program, again):
                if deadline.passed:
                    break
                taken = predicted(cut.into(cut.parts[-1]))
                if taken.peak < (memory if least is None else least[0]).peak:
                    least = taken, cut
                if taken.peak <= limit:
                    form, fits = _in_fewest(cut, limit)
                    fitting.append((pricer.program(form), fits.peak, form))
        if fitting:
            program = min(fitting, key=lambda f: f[:2])[2]
            break
        if least is None or deadline.passed or least[0].temporaries > (1 - _SAVING) * memory.temporaries:
            break
        program, memory = _in_fewest(least[1], least[0].peak + _LOST * (memory.peak - least[0].peak))
    if program is plan.device_program:
        return plan
    search = replace(plan.search, notes=(*plan.search.notes, "memory: steps in strips"))
    return replace(plan, device_program=program, search=search)


def _in_fewest(cut: Cut, most: float) -> tuple[StepPlan, Memory]:
    """The program cut into as few strips as take no more than ``most`` bytes, or into most of all."""
    for parts in cut.parts:
        form = cut.into(parts)
        taken = predicted(form)
        if taken.peak <= most:
            break
    return form, taken


def prices(plan: PlanRecord, count: int = _PRICES) -> Iterator[float]:
    """Prices per byte, in seconds, from one that a plan hardly feels to one that decides everything."""
    touched = bytes_touched(plan.device_program)
    price = _FIRST * (plan.cost.total or 1.0) / max(touched, 1.0)
    for _ in range(count):
        yield price
        price *= _FACTOR


def bytes_touched(program: StepPlan) -> float:
    """The bytes that all steps read and write, as cost models see them."""
    return sum(
        step_info(program.mesh, s.action, tuple(program.types[v] for v in s.operands)).memory_bytes
        for s in program.steps
    )


def at_price(cheapest: PlanRecord, planner: Planner, price: float) -> PlanRecord:
    """The plan found at a price per byte, with its cost under the user's model and what is known of every plan."""
    return at_other_prices(
        cheapest, planner, MemoryPriced(cheapest.cost_model, price), f"memory: {price:.3g} s per byte",
        "a charge on every byte that a step touches is in these prices: by it the search kept to the memory limit")


def at_other_prices(cheapest: PlanRecord, planner: Planner, model: CostModel, note: str, why: str) -> PlanRecord:
    """The plan found under another model, with its cost under the user's and what is known of every plan.

    cheapest: a plan under the user's model. note: for the search; why: what to say of prices in the plan's reasons.
    """
    plan = planner(model)
    known = cheapest.search
    pricer = Pricer(cheapest.cost_model, plan.mesh)
    steps = scheduled(plan.device_program, pricer) if pricer.overlap else plan.device_program
    search = replace(
        plan.search, bound=known.bound, once=known.once, terms=0.0, capped=known.capped or plan.search.capped,
        shared=known.shared, sharing=known.sharing, left_out=known.left_out, notes=(*plan.search.notes, note))
    return replace(plan, device_program=steps, cost_model=cheapest.cost_model, search=search,
                   baseline_factory=cheapest.baseline_factory, reasons_factory=partial(_noted, plan, why))


def _noted(plan: PlanRecord, why: str, names: Mapping[int, str]) -> Reasons:
    """The reasons of a plan found under other prices."""
    return replace(plan.reasons_for(names), note=why)


def front(plans: Iterable[PlanRecord]) -> list[PlanRecord]:
    """The plans that no other undercuts both in cost and in memory, cheapest first."""
    kept: list[PlanRecord] = []
    for plan in sorted(plans, key=lambda p: (p.cost.total, memory_of(p).peak)):
        if not kept or memory_of(plan).peak < memory_of(kept[-1]).peak:
            kept.append(plan)
    return kept
