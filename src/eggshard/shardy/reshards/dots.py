"""The one product whose result is resharded, for less to reshard, where explicit reshards are only optimizations."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.planner.propagation.projection import Projection
from eggshard.program.axes import Axes, AxisRef, any_overlap
from eggshard.program.op_sharding_rule import REDUCTION, OpShardingRule
from eggshard.shardy.module import elements
from eggshard.shardy.reshards import insertion
from eggshard.shardy.reshards.values import OnMesh, Values

DOTS = ("stablehlo.dot", "stablehlo.dot_general")


def reshard_result(values: Values, op: Any, projection: Projection, rule: OpShardingRule, on: OnMesh) -> None:
    """Compute a product as its operands are sharded and reshard the result, if all of this holds:

    the operands agree; one dimension of the result differs from the one operand that has it, which is sharded there
    and no smaller than the result; and the result is sharded there by the axes of the contraction, in their order.
    It is then an all-reduce and a reshard of the result instead of a reshard of an operand and a reduce-scatter.
    """
    stated = values.beyond_barriers(op.results)[0]
    found = _conflict(op, projection, rule)
    if found is None or stated is None:
        return
    factor, axes = found
    result = projection.results[0]
    result.update(factor, axes)
    at = ir.InsertionPoint.after(op)
    value = op.results[0]
    values.set_sharding(value, result.sharding(rule.results[0], rule, on.mesh, on.name))
    insertion.replace_uses(value, insertion.reshard(value, stated, at))


def _conflict(op: Any, projection: Projection, rule: OpShardingRule) -> tuple[int, Axes] | None:
    """The factor whose axes in the result give way, and its axes in the operands."""
    lhs, rhs = (tensor.factors for tensor in projection.operands)
    result = projection.results[0].factors
    sizes = [elements(value) for value in (*op.operands, op.results[0])]
    found: tuple[int, Axes] | None = None
    contracted: Axes = ()
    seen: list[AxisRef] = []
    for i, factor in enumerate(rule.factors):
        sides = [(tensor[i].axes, size) for tensor, size in zip((lhs, rhs), sizes, strict=False) if i in tensor]
        axes, size = sides[0][0], max(size for _, size in sides)
        if any(other != axes for other, _ in sides):
            return None
        if factor.kind == REDUCTION:
            contracted += axes
            continue
        if len(sides) == 1:
            if any_overlap(axes, seen):
                return None
            seen += axes
        if result[i].axes != axes:
            if found or not axes or sizes[2] > size:
                return None
            found = i, axes
    if found is None or not contracted or result[found[0]].axes != contracted:
        return None
    return found
