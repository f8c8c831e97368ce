"""Reshards of one value in several shapes: one reshard, and a reshape of its result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.mesh import AxisRef
from eggshard.shardy.attributes import TensorSharding, per_value_text
from eggshard.shardy.module import SHARDING, ShardyModule, create, shape, uses
from eggshard.shardy.sub_axes import Sizes, size_of


def shared_reshard(module: ShardyModule, op: Any) -> Any:
    """The result of an earlier reshard of the same elements to the same devices, in this reshard's shape; else None.

    jaxlib's canonicalisation shares such reshards too, but leaves on the reshape the sharding from before.
    """
    target = TensorSharding.parse(str(op.attributes["sharding"]))
    wanted = strides(shape(op.results[0]), target, module.mesh(target).axes)
    if wanted is None or target.sharding.unreduced or not any(target.axes):
        return None
    before = {inner.operation for inner in _before(op)}
    for other in _reshards(_root(op.operands[0])):
        if other not in before or not uses(other.results[0]):
            continue
        to = TensorSharding.parse(str(other.attributes["sharding"]))
        same_mesh = to.mesh == target.mesh and not to.sharding.unreduced and to.sharding.device is None
        if same_mesh and strides(shape(other.results[0]), to, module.mesh(to).axes) == wanted:
            if other.results[0].type == op.results[0].type:
                return other.results[0]
            attributes = {SHARDING: per_value_text([target])}
            return create("stablehlo.reshape", [other.results[0]], [op.results[0].type], attributes, op).results[0]
    return None


def strides(shape_: tuple[int, ...], sharding: TensorSharding, sizes: Sizes) -> dict[AxisRef, int] | None:
    """Per axis the distance between its shards in the row-major order of elements; None if shards are uneven.

    Tensors of the same elements in different shapes lie on the same devices if these are equal.
    """
    out: dict[AxisRef, int] = {}
    for i, (n, axes) in enumerate(zip(shape_, sharding.axes, strict=True)):
        length = n * math.prod(shape_[i + 1 :])
        for axis in axes:
            if length == 0 or n % size_of(axis, sizes):
                return None
            n //= size_of(axis, sizes)
            length //= size_of(axis, sizes)
            out[axis] = length
    return out


def _root(value: Any) -> Any:
    """The value before reshapes."""
    while not isinstance(value, ir.BlockArgument) and value.owner.name == "stablehlo.reshape":
        value = value.owner.operands[0]
    return value


def _reshards(value: Any) -> Iterator[Any]:
    """Reshards of a value and of its reshapes."""
    for user, _ in uses(value):
        if user.name == "sdy.reshard":
            yield user
        elif user.name == "stablehlo.reshape":
            yield from _reshards(user.results[0])


def _before(op: Any) -> Iterator[Any]:
    for inner in op.block.operations:
        if inner.operation == op:
            return
        yield inner
