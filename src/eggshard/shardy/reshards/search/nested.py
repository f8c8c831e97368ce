"""Ops with blocks of their own, and calls: candidate placements of their operands and results, and the plans inside."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from eggshard.program.axes import axis_ref
from eggshard.program.placement import Placement, replicated
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.module import BODIES, callee, manual_axes
from eggshard.shardy.reshards.search.blocks import plan_block
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.offers import LOOPS_AND_BRANCHES, Offer, captures_of, read
from eggshard.steps.control_steps import price_of_loop, trips

Placements = tuple[Placement, ...]


def nested_offers(context: Context, op: Any) -> list[Offer] | None:
    """The offers of a loop, a branch, a computation of Shardy's, or a call; None for any other op."""
    if op not in context.nested:
        context.nested[op] = _offers(context, op)
    found: list[Offer] | None = context.nested[op]
    return found


def _offers(context: Context, op: Any) -> list[Offer] | None:
    if op.name == "stablehlo.while":
        return _loop(context, op)
    if op.name in LOOPS_AND_BRANCHES:
        return _branch(context, op)
    if op.name in BODIES:
        return [_body(context, op)]
    if op.name == "func.call":
        return [_call(context, op)]
    return None


def _loop(context: Context, op: Any) -> list[Offer]:
    """A loop carries its values where it is stated to, else as they come, or whole."""
    reading = read(context, op)
    times = max(1, trips(reading.op.attributes.get("trip_count"))) if reading else 1
    condition, body = (region.blocks[0] for region in op.regions)
    outside = captures_of(op)
    captured = tuple(_stated(context, v) for v in outside)
    offers = []
    stated = context.module.result_shardings(op) is not None
    for carried in _interfaces(context, list(op.results if stated else op.operands)):
        flag, ends = [[replicated(())]], [[p] for p in carried]
        given = _given(condition, carried, outside, captured)
        asked = plan_block(context, condition, given, flag, nested_offers, times)
        inner = plan_block(context, body, _given(body, carried, outside, captured), ends, nested_offers, times)
        seconds = price_of_loop(times, asked.seconds, inner.seconds)
        used = [held for plan in (asked, inner) for held in plan.inputs if held[0] in outside]
        offers.append(Offer(carried, carried, seconds, tuple(dict.fromkeys(used)), (asked, inner)))
    return offers


def _branch(context: Context, op: Any) -> list[Offer]:
    """A branch's results, and the values that it uses from outside, lie where they are stated to, or are whole."""
    outside = captures_of(op)
    predicate = tuple(replicated(context.type(v).shape) for v in op.operands)
    offers = []
    for results, captured in itertools.product(_interfaces(context, list(op.results)), _interfaces(context, outside)):
        inner = tuple(
            plan_block(context, region.blocks[0], _given(region.blocks[0], (), outside, captured),
                       [[p] for p in results], nested_offers)
            for region in op.regions
        )
        seconds = max((p.seconds for p in inner), default=0.0)
        offers.append(Offer(predicate, results, seconds, tuple(zip(outside, captured, strict=True)), inner))
    return offers


def _interfaces(context: Context, values: Sequence[Any]) -> list[Placements]:
    """Return the candidate interfaces of these values: their stated placements, and full replication."""
    whole = tuple(replicated(context.type(v).shape) for v in values)
    return list(dict.fromkeys([tuple(_stated(context, v) for v in values), whole]))


def _given(block: Any, carried: Placements, outside: Sequence[Any], captured: Placements) -> dict[Any, Placement]:
    return {**dict(zip(block.arguments, carried, strict=True)), **dict(zip(outside, captured, strict=True))}


def _stated(context: Context, value: Any) -> Placement:
    """Return a value's stated placement, without partial sums and without manual axes."""
    type_ = context.type(value)
    sharding = context.module.sharding(value)
    placement = context.placement(sharding, type_)
    dims = [tuple(a for a in d.axes if a in context.free.axes) for d in placement.dims]
    return context.placed(type_, dims)


def _body(context: Context, op: Any) -> Offer:
    """A manual or named computation: its operands and results lie as it says."""
    axes = manual_axes(op)
    inner = context.within(axes) if axes else context
    operands, results = _ends(context, op, "in_shardings", op.operands), _ends(context, op, "out_shardings", op.results)
    block = op.regions[0].blocks[0]
    if inner.free.size == 1:
        return Offer(operands, results, 0.0)
    *_, terminator = block.operations
    given = _inside(inner, operands, block.arguments, axes)
    asked = _inside(inner, results, terminator.operation.operands, axes)
    plan = plan_block(inner, block, dict(zip(block.arguments, given, strict=True)), [[p] for p in asked], nested_offers)
    return Offer(operands, results, plan.seconds, (), (plan,))


def _ends(context: Context, op: Any, key: str, values: Sequence[Any]) -> Placements:
    stated: Sequence[TensorSharding | None]
    stated = read_per_value(str(op.attributes[key])) if key in op.attributes else [None] * len(values)
    return tuple(context.placement(s, context.type(v)) for s, v in zip(stated, values, strict=True))


def _inside(context: Context, placements: Placements, values: Sequence[Any], axes: Sequence[str]) -> Placements:
    """Placements as the body of a computation that is manual over these axes sees them."""
    found = []
    for placement, value in zip(placements, values, strict=True):
        dims = [tuple(a for a in d.axes if axis_ref(a).name not in axes) for d in placement.dims]
        partial = tuple(a for a in placement.partial if axis_ref(a).name not in axes)
        placed = context.placed(context.type(value), dims)
        found.append(placed._replace(partial=partial, monoid=placement.monoid if partial else ""))
    return tuple(found)


def _call(context: Context, op: Any) -> Offer:
    """A call: where the function called has its arguments and its results."""
    module = context.module
    function = module.by_name[callee(op)]
    given, made = (
        tuple(context.placement(s, context.type(v)) for s, v in zip(stated, values, strict=True))
        for stated, values in (
            (module.argument_shardings(function), op.operands),
            (module.function_result_shardings(function), op.results),
        )
    )
    return Offer(given, made, 0.0)


