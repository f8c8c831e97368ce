"""Plans that compute much more than the baseline for little are searched for again, where computing is dearer.

What is computed on several devices in place of being sent is what cost models err on most: virtual devices share
cores, kernels run slower than their samples, memory comes fresh from the system. So to compute over a tenth more must
be worth a tenth of the time (`Limits.flops`), or be cheaper even if computing took twice as long; and a plan that is
nearly as cheap mostly computes no more.
"""

from __future__ import annotations

from dataclasses import replace

from eggshard.costmodel import WeightedSum
from eggshard.costmodel.units import SECONDS, unit_of
from eggshard.memory.search import Planner, at_other_prices
from eggshard.plan.record import PlanRecord

#: The part of the baseline's time to which a plan's must fall that computes more.
WORTH = 0.9
#: So many times as much computing costs where plans are searched for again.
DEARER = 2.0
#: Why a plan is its baseline: nothing failed.
NOTHING_THRIFTY = "what the search found cheaper than the baseline computes more, and saves too little by it"


def thrifty(plan: PlanRecord, most: float, planner: Planner) -> PlanRecord:
    """Return the plan, or one in place of a wasteful one: the cheapest found where computing is dearer, or the
    baseline. Wasteful is over ``most`` times what the baseline computes for little.

    planner: plans the same program under another model, as long as there is time. A model whose prices are no seconds
    decides alone.
    """
    if unit_of(plan.cost_model) != SECONDS or not _wasteful(plan, most):
        return plan
    prices = WeightedSum(((1.0, plan.cost_model),))
    dearer = prices.with_kinds({"local": DEARER * prices})
    found = at_other_prices(plan, planner, dearer, f"computing at {DEARER:g} times its price",
                            "computing costs more in these prices, by which the search computed no more than it must")
    if not _wasteful(found, most) and found.cost.total < plan.baseline.cost.total:
        return found
    late = tuple(dict.fromkeys((*plan.search.late, *found.search.late)))
    search = replace(plan.search, method="baseline", fallback=NOTHING_THRIFTY, late=late)
    return replace(plan.baseline, search=search,
                   baseline_factory=plan.baseline_factory, calling_convention=plan.calling_convention)


def _wasteful(plan: PlanRecord, most: float) -> bool:
    """Whether a plan computes much more than the baseline, saves little, and nothing if computing is dearer."""
    ours, theirs, more = plan.cost, plan.baseline.cost, DEARER - 1
    return (plan.flops > most * plan.baseline.flops and ours.total > WORTH * theirs.total
            and ours.total + more * ours.compute > theirs.total + more * theirs.compute)
