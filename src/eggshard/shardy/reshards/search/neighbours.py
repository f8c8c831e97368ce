"""Ops that access neighbours along a sharded dimension: Shardy keeps it sharded, and exchanges halos later.

Such a dimension (a permutation factor) stays sharded where the module states that the op's result is sharded along it,
as with Shardy's own reshards. The price is that of what the shard that lacks most needs.
"""

from __future__ import annotations

from typing import Any

from eggshard.costmodel.protocol import StepInfo
from eggshard.ops import registry
from eggshard.ops.base import PASS, REPLICATE, Factor, FactorRule
from eggshard.ops.windowing import Reach
from eggshard.placement.transfer import Strategy, enumerated
from eggshard.program.op_sharding_rule import PASS_THROUGH, PERMUTATION, OpShardingRule
from eggshard.program.placement import Placement
from eggshard.program.program import Op
from eggshard.program.types import TensorType
from eggshard.shardy.reshards.search.context import Context

Types = tuple[TensorType, ...]


def kept_sharded(
    context: Context, op: Any, read: Op, rule: OpShardingRule, types: Types, results: Types
) -> list[tuple[Strategy, float]]:
    """The strategies that shard permutation factors as the op's result is stated to be, with their exchanges' price."""
    stated = context.module.result_shardings(op)
    definition = registry.get(read.name)
    reaches = definition.reaches(read.attributes, types, results)
    if stated is None or reaches is None or len(results) != 1 or not rule.of_kind(PERMUTATION):
        return []
    wanted = context.placement(stated[0], results[0])
    moved = {f for f in rule.of_kind(PERMUTATION) if any((f,) in tensor for tensor in rule.results)}
    factors = tuple(
        Factor(f.size, PASS if f.kind == PASS_THROUGH or i in moved else REPLICATE) for i, f in enumerate(rule.factors))
    axes = {f: wanted.dims[rule.results[0].index((f,))].axes for f in moved}
    found = []
    for s in enumerated(context.free, FactorRule(factors, rule.operands, rule.results), context.orders,
                        limit=context.limits.strategies).found:
        sharded = {f for f in moved for d in [s.results[0].dims[rule.results[0].index((f,))]] if d.axes}
        if not sharded or any(s.results[0].dims[rule.results[0].index((f,))].axes != axes[f] for f in sharded):
            continue
        operands, (result,) = _placed(context, s.operands, types), _placed(context, s.results, results)
        seconds = sum(
            _exchange(context, p, t, d, reach, result, results[0])
            for p, t, row in zip(operands, types, reaches, strict=True)
            for d, reach in enumerate(row) if reach is not None and p.dims[d].axes
        )
        found.append((Strategy(operands, (result,)), seconds))
    return found


def _placed(context: Context, placements: tuple[Placement, ...], types: Types) -> tuple[Placement, ...]:
    """Place each tensor along the given axes with tiles of its own size, which differ along permutation factors."""
    return tuple(
        context.placed(t, [d.axes for d in p.dims]) for p, t in zip(placements, types, strict=True))


def _exchange(
    context: Context, operand: Placement, type_: TensorType, dim: int, reach: Reach, result: Placement, made: TensorType
) -> float:
    """What it costs to fetch the indices of an operand's dimension that a shard needs and does not hold."""
    n, tile, axes = type_.shape[dim], operand.dims[dim].tile, operand.dims[dim].axes
    if result.dims[reach.dim].axes != axes:
        return 0.0  # a dimension that nothing looks along
    size, step, most = made.shape[reach.dim], result.dims[reach.dim].tile, 0
    for shard in range(context.mesh.count(axes)):
        low, high = shard * step, min((shard + 1) * step, size)
        if low >= high:
            continue
        start, stop = reach.elements(1 - high, 1 - low) if reach.mirrored else reach.elements(low, high)
        if not reach.wrapped:
            start, stop = max(start, 0), min(stop, n)
        held = min(stop, (shard + 1) * tile) - max(start, shard * tile)
        most = max(most, stop - start - max(held, 0))
    if not most:
        return 0.0
    shape = list(operand.local_shape)
    shape[dim] = most
    sent = float(type_.with_shape(tuple(shape)).bytes)
    return context.pricer.info(StepInfo(
        "collective-permute", context.mesh, axes=axes, group=context.mesh.count(axes), wire_bytes=sent,
        messages=-(-most // max(tile, 1)), memory_bytes=2 * sent, dtype=type_.dtype, hops=1,
    ))
