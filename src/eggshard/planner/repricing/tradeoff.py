"""The Pareto front of time and memory over the plans of one program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from eggshard.errors import LimitError
from eggshard.limits import Deadline
from eggshard.memory.prediction import memory_of
from eggshard.memory.search import at_price, front, prices
from eggshard.plan.record import PlanRecord
from eggshard.planner.choosing.choice import chooser_of
from eggshard.planner.entry import optimize
from eggshard.planner.request import requested
from eggshard.tables import Shown

P = TypeVar("P", bound=PlanRecord)
#: Limits that plans are searched under, too, as parts of the cheapest plan's memory: only so are steps put in strips.
_LIMITS = (0.9, 0.75, 0.5)
#: What says where a program's ends lie.
_ENDS = ("shardings", "mesh", "carry")


class Front(Shown, tuple[P, ...]):
    """Plans from the cheapest to the one that takes least memory; prints as a table."""

    def __str__(self) -> str:
        lines = [f"{self[0].unit.header:>12} {'peak KiB':>12} {'temporaries':>12} {'wire KiB':>10}  collectives"]
        for plan in self:
            used = ", ".join(f"{n} {kind}" for kind, n in plan.collectives.items()) or "none"
            memory = memory_of(plan)
            lines.append(
                f"{plan.unit.text(plan.cost.total):>12} {memory.peak / 1024:12,.1f} {memory.temporaries / 1024:12,.1f} "
                f"{plan.serial_bytes / 1024:10,.1f}  {used}"
            )
        return "\n".join(lines)


def pareto(program: Any, points: int = 8, **options: Any) -> Front[PlanRecord]:
    """Return the plans found that no other one undercuts both in cost and in memory; see `eggshard.pareto`."""
    if not isinstance(points, int) or points < 1:
        raise LimitError(f"pareto: points={points!r}; give how many prices of memory to try, at least 1")
    limit, ends = options.pop("memory_limit", None), {name: options.pop(name, None) for name in _ENDS}
    request = requested(program, **{name: options[name] for name in options if name != "progress"})
    limits, deadline = request.limits, Deadline(request.limits.seconds)
    chooser = None if ends["shardings"] is None else chooser_of(request, **ends)

    def planned(**more: Any) -> PlanRecord:
        stated = {} if chooser is None else {"loaded": chooser.stated(**more)}
        return optimize(program, **{**options, "limits": replace(limits, seconds=deadline.left), **stated, **more})

    cheapest = planned()
    found = [cheapest, cheapest.baseline]
    for price in prices(cheapest, points):
        if deadline.passed:
            break
        found.append(at_price(cheapest, lambda model: planned(cost_model=model), price))
    for part in _LIMITS[:points]:
        least = int(part * memory_of(cheapest).peak)
        if deadline.passed or any(memory_of(plan).peak <= least for plan in found):
            continue
        try:
            found.append(planned(memory_limit=least))
        except LimitError:  # nor is there one below
            break
    plans = front(plan for plan in found if limit is None or memory_of(plan).peak <= limit)
    if not plans:
        plans = [planned(memory_limit=limit)]
    return Front(plans)
