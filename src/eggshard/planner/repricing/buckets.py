"""All-reduces that share latencies: which sums may, and what a search pays for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import StepInfo
from eggshard.egraph.graph import EGraph
from eggshard.plan.record import Search
from eggshard.planner.encoding.encode import NOTHING, partial_sum_monoids
from eggshard.planner.state import Encoded, Scheduled
from eggshard.program.types import TensorType
from eggshard.selection.independence import may_be_independent
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Action, AllReduce, StepPlan

#: The part of a plan's cost that latencies of all-reduces may be for no other search to be asked where they count.
LITTLE = 5e-3
#: The part of a latency that every all-reduce pays in the search of a large e-graph, where the baseline does not say
#: which, and the most nodes of a small one: see decision 52.
PART, FEW_NODES = 0.25, 300
#: What a search at parts of latencies says of its bounds.
NOT_BOUNDED = "which all-reduces share a latency"
#: Relative difference of costs that rounding of sums may cause.
ROUNDING = 1e-12


class Shared(Pricer):
    """Prices at which all-reduces pay for their data, and ``part`` of a latency.

    part: 0 as if they all shared the latency of one. However they are joined, they cost no less than that: joint steps
    pay one latency, and for their data no less than the share of a step of any size (`_MUCH`), or than what more data
    costs more.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shared) and other.base is self.base and other.part == self.part

    def __hash__(self) -> int:
        return hash((id(self.base), self.part))

    #: So many times the data stands for any amount of it: the latency is nothing beside it.
    _MUCH = 1e9

    def __init__(self, base: Pricer, part: float = 0.0):
        super().__init__(base.model, base.mesh)
        self.base, self.part = base, part

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
        much, none, whole = (self.base.info(_times(step, times)) for times in (self._MUCH, 0.0, 1.0))
        data = max(0.0, min(much / self._MUCH, whole - none))
        return data + self.part * (whole - data)

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


def prices_to_begin(
    pricer: Pricer, graph: EGraph, roots: Sequence[int], part: Callable[[], float], nodes: int = 0,
    handed: Mapping[int, Sequence[int]] = NOTHING, inside: Iterable[tuple[EGraph, Sequence[int]]] = (),
) -> Pricer:
    """The prices under which a region is searched first.

    part: of a latency, that each sum of a large e-graph pays. nodes: of the e-graph that stands for it, if not of this
    one. handed: classes that are others (`partial_sum_monoids`). inside: graphs and roots of regions inside it that are
    searched with it.
    """
    if pricer.overlap or not latencies_count(pricer):
        return pricer
    if may_share(graph, roots, handed) or any(may_share(*region) for region in inside):
        return Shared(pricer, part() if max(nodes, graph.size) > FEW_NODES else 0.0)
    return pricer


def part_paid(steps: StepPlan) -> float:
    """The part of their latencies that the sums of a device program pay, whose all-reduces are joined."""
    sums = [len(step.operands) for step in steps.steps if isinstance(step.action, AllReduce)]
    return len(sums) / sum(sums) if sums else PART


def in_buckets(
    pricer: Pricer, first: Encoded, encoded: Callable[[Pricer], Encoded], planned: Callable[..., Scheduled]
) -> Scheduled:
    """The cheapest plan found where all-reduces may share latencies.

    Of a large e-graph, it is that of one search in which each pays part of a latency, without a bound of all plans. Of
    a small one, that of two, in which they pay no latency, or a latency each, unless the former will do. Plans in which
    none is shared cost no less than the latter search's bound, others no less than the former's and one latency. Of
    what is found of no latency alone, all plans cost no less than its bound.

    Where a latency costs no more than a byte, as of a model of bytes, there is nothing to share.

    first: the problem under `prices_to_begin`. encoded: the problem under others. planned: called with a problem; and
    with the plan so far, to be returned where the user ends the search.
    """
    prices, together = first.plans.context.pricer, planned(first)
    if not isinstance(prices, Shared):
        if pricer.mesh.size == 1 or latencies_count(pricer) or not may_share(first.graph, [c for c, _ in first.roots]):
            return together
        least = max(0.0, _of_all(together.search) - least_latency(pricer) * len(first.encoding.placements))
        return replace(together, search=replace(together.search, shared=True, sharing=least))
    if prices.part:
        return replace(together, search=replace(
            together.search, shared=True, sharing=0.0, left_out=(*together.search.left_out, NOT_BOUNDED)))
    if hardly_shared(pricer, together.steps):
        return together
    least, bound = pricer.program(together.steps), _of_all(together.search)
    alone = planned(encoded(pricer), together)
    cost, found = pricer.program(alone.steps), alone.search
    best = together if least < cost * (1 - ROUNDING) else alone
    note = f"buckets: cost {least:.9g}, bound {bound:.9g} if all-reduces share latencies; else cost {cost:.9g}"
    return replace(best, search=replace(
        best.search, bound=found.bound, once=found.once, terms=found.terms, shared=True,
        sharing=min(_of_all(found), bound + least_latency(pricer)), notes=(*found.notes, note)))


def hardly_shared(pricer: Pricer, steps: StepPlan) -> bool:
    """Whether all that a plan pays for latencies of all-reduces is little: no other plan can save more."""
    return pricer.program(steps) <= (1 + LITTLE) * Shared(pricer).program(steps)


def _of_all(search: Search) -> float:
    """The bound of plans whose conversions of a value share what they may."""
    return min(search.bound, search.sharing) if search.shared else search.bound


def may_share(graph: EGraph, roots: Sequence[int], handed: Mapping[int, Sequence[int]] = NOTHING) -> bool:
    """Whether two sums of partial values may be independent, so that their all-reduces may share a latency."""
    sums = [c for c, monoids in enumerate(partial_sum_monoids(graph, handed)) if monoids]
    needs = [[node.children for node in eclass.nodes] for eclass in graph.classes]
    return may_be_independent(needs, [*roots, *graph.effects], sums)


def latencies_count(pricer: Pricer) -> bool:
    """Whether an all-reduce's latency costs more than a byte."""
    return pricer.mesh.size > 1 and least_latency(pricer) > Shared(pricer).byte()


def least_latency(pricer: Pricer) -> float:
    """The seconds of the least latency of an all-reduce along one axis."""
    return min(Shared(pricer).latency((a,)) for a, size in pricer.mesh.axes.items() if size > 1)


def weighted_sums(pricer: Pricer) -> tuple[str, str]:
    """What to say of the prices of decisions, and their unit: of a machine that overlaps, no times of schedules."""
    if isinstance(pricer, Shared):
        part = f"{100 * pricer.part:g} % of" if pricer.part else "without"
        return f"all-reduces are priced {'with ' if pricer.part else ''}{part} the latency that they may share", ""
    if not pricer.overlap:
        return "", ""
    return ("prices are weighted sums of what every resource is held for: what the search compared, no times of "
            "schedules"), "weighted seconds"
