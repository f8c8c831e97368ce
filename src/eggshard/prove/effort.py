"""What a run of a proof takes, estimated from sizes before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eggshard.ops import registry
from eggshard.ops.regions.counted_loops import find_counter, integer
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import UNKNOWN_TRIPS, Loop
from eggshard.steps.nested import nested
from eggshard.steps.steps import Local, StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Seconds for calling an op on one device, for an element that it makes, and for a floating-point operation of products
#: and convolutions, both of whose halves are counted; measured on one core, of two that were busy.
_CALL, _ELEMENT, _PRODUCT = 5e-5, 1.2e-8, 4e-10
_PRODUCTS = ("convolution", "dot", "dot_general")


def least_seconds(plan: PlanRecord) -> float:
    """Seconds that no proof takes less than, known without a look at sizes; equal layers are looked at once each."""
    return _CALL * (len(plan.program.region.ops) + len(plan.steps))


def seconds_per_run(plan: PlanRecord) -> float:
    """Seconds, to within a few times, in which program and device program are evaluated once."""
    return seconds_of(plan.program.region) + _of_steps(plan.device_program)


def _of_op(
    name: str, attributes: Attributes, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> float:
    elements = sum(t.elements for t in results)
    work = registry.get(name).flops(attributes, tuple(operands), tuple(results))
    if name in _PRODUCTS:
        return _CALL + _ELEMENT * elements + _PRODUCT * work
    if name == "sort":  # a network of comparisons, both ways
        work *= 4 * max(operands[0].elements, 2).bit_length()
    if name == "reduce_window":  # by doubling
        work = elements * math.log2(2 + work / max(elements, 1))
    return _CALL + _ELEMENT * max(elements, work)


def seconds_of(region: Region) -> float:
    """Seconds, to within a few times, in which a region is evaluated once."""
    total = 0.0
    made = {v: op for op in region.ops for v in op.results}
    for op in region.ops:
        types = [region.types[v] for v in op.operands], [region.types[v] for v in op.results]
        total += _of_op(op.name, op.attributes, *types)
        times = 1
        if op.name == "while":
            counter = find_counter(*op.regions)
            start = None if counter is None else integer(made.get(op.operands[counter.position]))
            trips = None if counter is None or start is None else counter.trips(start)
            times = UNKNOWN_TRIPS if trips is None else trips
        total += times * sum(seconds_of(inner) for inner in op.regions)
    return total


def _of_steps(plan: StepPlan) -> float:
    total, devices = 0.0, plan.mesh.size
    for step in plan.steps:
        action = step.action
        operands, results = [plan.types[v] for v in step.operands], [plan.types[v] for v in step.results]
        if isinstance(action, Local):
            total += devices * _of_op(action.name, action.attributes, operands, results)
            if registry.get(action.name).pointwise:  # all devices at a time
                total -= (devices - 1) * _CALL
            total += devices * sum(seconds_of(inner) for inner in action.regions)
        else:
            total += _CALL * (1 + action.messages * devices * (not isinstance(action, Loop)))
            total += _ELEMENT * devices * sum(t.elements for t in results)
        total += sum(inner.times * _of_steps(inner.program) for inner in nested(action))
    return total
