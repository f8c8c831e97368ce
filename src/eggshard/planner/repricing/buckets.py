"""All-reduces that share latencies: which sums may, and the search that may be asked twice for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import StepInfo
from eggshard.plan.record import Search
from eggshard.planner.encoding.encode import Encoding
from eggshard.planner.state import Scheduled
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.selection.independence import may_be_independent
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Action, StepPlan

#: The part of a plan's cost that latencies of all-reduces may be for no other search to be asked where they count.
LITTLE = 5e-3
#: Relative difference of costs that rounding of sums may cause.
ROUNDING = 1e-12


class Shared(Pricer):
    """Prices at which all-reduces pay for their data alone, as if they all shared the latency of one.

    However they are joined, they cost no less: joint steps pay one latency, and for their data no less than the share
    of a step of any size (`_MUCH`), or than what more data costs more.
    """

    #: So many times the data stands for any amount of it: the latency is nothing beside it.
    _MUCH = 1e9

    def __init__(self, base: Pricer):
        super().__init__(base.model, base.mesh)
        self.base = base

    def latency(self, axes: tuple[str, ...]) -> float:
        """The price of an all-reduce of nothing."""
        return self.base.info(StepInfo("all-reduce", self.mesh, axes=axes, group=self.mesh.count(axes), messages=1))

    def byte(self) -> float:
        """The price of an all-reduce's byte over all axes."""
        axes = tuple(self.mesh.axes)
        return self.info(StepInfo("all-reduce", self.mesh, axes=axes, group=self.mesh.size, messages=1, wire_bytes=1.0,
                                  memory_bytes=1.0))

    def info(self, step: StepInfo) -> float:
        if step.kind != "all-reduce":
            return self.base.info(step)
        much, none = self.base.info(_times(step, self._MUCH)), self.base.info(_times(step, 0.0))
        return max(0.0, min(much / self._MUCH, self.base.info(step) - none))

    def many(self, steps: StepColumns) -> np.ndarray:
        prices = self.base.many(steps)
        for row in np.flatnonzero(np.array([head.kind == "all-reduce" for head in steps.heads])[steps.head]):
            prices[row] = self.info(steps.step(int(row)))
        return prices

    def know(self, steps: Iterable[StepInfo]) -> None:
        self.base.know(steps)

    def __call__(self, action: Action, *operands: TensorType) -> float:
        inside = isinstance(action, (Loop, Branch))
        return self.base(action, *operands) if inside else super().__call__(action, *operands)


def _times(step: StepInfo, times: float) -> StepInfo:
    """The step with so many times the data."""
    return replace(step, wire_bytes=times * step.wire_bytes, memory_bytes=times * step.memory_bytes,
                   copied_bytes=times * step.copied_bytes, runs=times * step.runs)


def in_buckets(encoding: Encoding, pricer: Pricer, planned: Callable[..., Scheduled]) -> Scheduled:
    """The cheapest plan where all-reduces pay no latency in the search, or a latency each, unless the former will do.

    Plans in which none is shared cost no less than the latter search's bound, others no less than the former's and one
    latency. Of what is found of no latency alone, all plans cost no less than its bound.

    Where a latency costs no more than a byte, as of a model of bytes, there is nothing to share.

    planned: called with prices; and with the plan so far, to be returned where the user ends the search.
    """
    latency = least_latency(encoding, pricer)
    if latency is None:
        return planned(pricer)
    if latency <= Shared(pricer).byte():
        alone = planned(pricer)
        least = max(0.0, _of_all(alone.search) - latency * len(encoding.placements))
        return replace(alone, search=replace(alone.search, shared=True, sharing=least))
    together = planned(Shared(pricer))
    least, bound = pricer.program(together.steps), _of_all(together.search)
    if hardly_shared(pricer, together.steps):
        return together
    alone = planned(pricer, together)
    cost, found = pricer.program(alone.steps), alone.search
    best = together if least < cost * (1 - ROUNDING) else alone
    note = f"buckets: cost {least:.9g}, bound {bound:.9g} if all-reduces share latencies; else cost {cost:.9g}"
    return replace(best, search=replace(
        best.search, bound=found.bound, once=found.once, terms=found.terms, shared=True,
        sharing=min(_of_all(found), bound + latency), notes=(*found.notes, note)))


def hardly_shared(pricer: Pricer, steps: StepPlan) -> bool:
    """Whether all that a plan pays for latencies of all-reduces is little: no other plan can save more."""
    return pricer.program(steps) <= (1 + LITTLE) * Shared(pricer).program(steps)


def _of_all(search: Search) -> float:
    """The bound of plans whose conversions of a value share what they may."""
    return min(search.bound, search.sharing) if search.shared else search.bound


def least_latency(encoding: Encoding, pricer: Pricer) -> float | None:
    """The seconds of the least latency that all-reduces may share; None where no two of them can be independent."""
    partial = {}
    for c, (places, choices) in enumerate(zip(encoding.placements, encoding.problem.choices, strict=True)):
        made = [places[choice.out] for choice in choices]
        if found := [p.partial for p in made if isinstance(p, Placement) and p.partial]:
            partial[c] = max(found, key=len)
    if not may_be_independent(encoding.problem, list(partial)):
        return None
    return min(Shared(pricer).latency((a,)) for axes in partial.values() for a in axes)


def weighted_sums(pricer: Pricer) -> tuple[str, str]:
    """What to say of the prices of decisions, and their unit: of a machine that overlaps, no times of schedules."""
    if isinstance(pricer, Shared):
        return "all-reduces are priced without the latency that they may share", ""
    if not pricer.overlap:
        return "", ""
    return ("prices are weighted sums of what every resource is held for: what the search compared, no times of "
            "schedules"), "weighted seconds"
