"""Reshapes whose shardings their factors cannot express: axes that neither divide a factor nor start after its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from eggshard.planner.propagation.projection import Projection, TensorProjection
from eggshard.program.axes import Axes, AxisRef, append
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import OpShardingRule, TensorFactors
from eggshard.shardy.reshards.axis_lists import common_prefix, joined
from eggshard.shardy.reshards.common_axes import shards_of
from eggshard.shardy.reshards.values import OnMesh


def overflow_axes(projection: Projection, rule: OpShardingRule, on: OnMesh) -> list[Axes]:
    """Per factor the axes of a reshape, from those of its side with more shards, the operand if both have as many.

    Both sides take these axes anew, each where a factor first divides, and keep what they then agree on.
    """
    operand, result = projection.operands[0], projection.results[0]
    preferred = operand if shards_of(operand, on.mesh) >= shards_of(result, on.mesh) else result
    axes = [
        axis for i in range(len(rule.factors)) if i in preferred.factors
        for axis in (*preferred.factors[i].axes, *preferred.factors[i].overflow)
    ]
    sides = (operand, rule.operands[0]), (result, rule.results[0])
    for tensor, dims in sides:
        _distribute(tensor, dims, rule, axes, on.mesh)
    shardings = [tensor.sharding(dims, rule, on.mesh, on.name) for tensor, dims in sides]
    again = Projection.of(rule, shardings[:1], shardings[1:], on.mesh, closed_if_missing=True)
    found = [[t.factors[i].axes for t in again.tensors if i in t.factors] for i in range(len(rule.factors))]
    return [reduce(lambda a, b: common_prefix(a, b), axes) if axes else () for axes in found]


def _distribute(
    tensor: TensorProjection, dims: TensorFactors, rule: OpShardingRule, axes: Sequence[AxisRef], mesh: Mesh,
) -> None:
    """Give a tensor's factors these axes: each to the first that it, or a part of it, divides.

    All that follow one that no factor takes go beyond the last factor.
    """
    factors = [i for dim in dims for i in dim if i in tensor.factors]
    if not factors:
        return
    room = {i: rule.factors[i].size for i in factors}
    taken: dict[int, list[AxisRef]] = {i: [] for i in factors}
    left = list(reversed(axes))
    while left:
        before = len(left), left[-1]
        for i in factors:
            axis = left[-1]
            count = axis.devices(mesh.axes)
            common = math.gcd(room[i], count)
            if room[i] <= 1 or (common == 1 and count > 1):
                continue
            room[i] //= common
            left.pop()
            if count == common:
                append(taken[i], axis, mesh.axes)
                break
            major, minor = axis.split(common, mesh.axes)
            append(taken[i], major, mesh.axes)
            left.append(minor)
        if left and before == (len(left), left[-1]):
            break
    for i in factors:
        rest = joined((), reversed(left), mesh) if i == factors[-1] else ()
        tensor.update(i, tuple(taken[i]), rest)
