"""Sharing of one reshard among reshards of a value in several shapes and dimension orders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from eggshard.program.axes import Axes, AxisRef, Sizes, merged
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text
from eggshard.shardy.module import SHARDING, ShardyModule, create, shape, uses

RESHARD, RESHAPE, TRANSPOSE = "sdy.reshard", "stablehlo.reshape", "stablehlo.transpose"
#: Of a dimension, major to minor: in row-major order of another tensor, the distance of indices, and their number.
Steps = tuple[tuple[int, int], ...]
#: Per axis how far apart its shards begin in that order, in parts where a shard is of several runs of elements.
Shards = dict[AxisRef, Steps]


class Moved(NamedTuple):
    """What a value's elements are moved by, none of them to another device: a reshape, or a transpose."""

    type: Any
    permutation: tuple[int, ...] = ()


def same_shards(first: TensorSharding, second: TensorSharding) -> bool:
    """Whether two shardings leave the same on every device, whatever propagation might make of them."""
    one, other = first.sharding, second.sharding
    return (
        first.mesh == second.mesh and first.axes == second.axes and one.replicated == other.replicated
        and (one.unreduced, one.reduction, one.device) == (other.unreduced, other.reduction, other.device))


def share_in_other_shapes(module: ShardyModule) -> bool:
    """Let a reshard be the result of an earlier one of the same elements, brought into its shape; whether one was."""
    for op in module.walk(RESHARD):
        value = _shared_reshard(module, op) if uses(op.results[0]) else None
        if value is not None:
            op.results[0].replace_all_uses_with(value)
            op.erase()
            return True
    return False


def _shared_reshard(module: ShardyModule, op: Any) -> Any:
    """The result of an earlier reshard of the same elements to the same devices, in this reshard's shape; else None.

    jaxlib's canonicalisation shares a reshard with those of the reshaped or transposed value too, but leaves on reshape
    and transpose the sharding from before.
    """
    target = TensorSharding.parse(str(op.attributes["sharding"]))
    root, path = _root(op.operands[0])
    wanted = _shards(_dims(root, path), target, module.mesh(target).axes)
    if wanted is None or target.sharding.unreduced or target.sharding.device is not None:
        return None
    for other in _reshards(root):
        if other.block != op.block or not other.is_before_in_block(op):
            continue
        to = TensorSharding.parse(str(other.attributes["sharding"]))
        if to.mesh != target.mesh or to.sharding.unreduced or to.sharding.device is not None:
            continue
        other_path = _root(other.operands[0])[1]
        dims = _dims(root, other_path)
        if _shards(dims, to, module.mesh(to).axes) == wanted:
            value = _written(module, op, other, _between(other_path, path), dims, wanted, target)
            if value is not None:
                return value
    return None


def _written(
    module: ShardyModule, op: Any, other: Any, moves: Sequence[Moved], dims: tuple[Steps, ...] | None,
    wanted: Shards, target: TensorSharding,
) -> Any:
    """Write the moves that lead from another reshard's result, with their shardings stated; None if one has none."""
    shardings = []
    for move in moves:
        dims = _after(dims, move)
        sharding = _sharding(wanted, dims, target, module.mesh(target).axes)
        if sharding is None:
            return None
        shardings.append(sharding)
    value = other.results[0]
    for i, (move, sharding) in enumerate(zip(moves, shardings, strict=True)):
        stated = {SHARDING: per_value_text([target if i + 1 == len(moves) else sharding])}
        if move.permutation:
            stated["permutation"] = f"array<i64: {', '.join(map(str, move.permutation))}>"
        value = create(TRANSPOSE if move.permutation else RESHAPE, [value], [move.type], stated, op).results[0]
    return value


# -- paths -----------------------------------------------------------------------------------------------------------


def _root(value: Any) -> tuple[Any, list[Any]]:
    """The value before reshapes and transposes, and these in the order in which they apply."""
    path: list[Any] = []
    while not isinstance(value, ir.BlockArgument) and value.owner.name in (RESHAPE, TRANSPOSE):
        path.append(value.owner.operation)
        value = value.owner.operands[0]
    return value, path[::-1]


def _reshards(value: Any) -> Iterator[Any]:
    """Reshards of a value in whatever shape, the results of which are used."""
    for user, _ in uses(value):
        if user.name == RESHARD and uses(user.results[0]):
            yield user
        elif user.name in (RESHAPE, TRANSPOSE):
            yield from _reshards(user.results[0])


def _between(before: Sequence[Any], after: Sequence[Any]) -> list[Moved]:
    """The moves from what one path from a value leads to, to what another one leads to."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    back = [Moved(step.operands[0].type, _inverse(_permutation(step))) for step in reversed(before[same:])]
    moves: list[Moved] = []
    for move in [*back, *(Moved(step.results[0].type, _permutation(step)) for step in after[same:])]:
        if moves and not moves[-1].permutation and not move.permutation:
            moves.pop()
        moves.append(move)
    return moves


def _permutation(step: Any) -> tuple[int, ...]:
    if step.name == RESHAPE:
        return ()
    return tuple(int(d) for d in ir.DenseI64ArrayAttr(step.attributes["permutation"]))


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(permutation.index(d) for d in range(len(permutation)))


# -- where elements lie ----------------------------------------------------------------------------------------------


def _dims(root: Any, path: Sequence[Any]) -> tuple[Steps, ...] | None:
    """A value's dimensions in the root's order; None where a reshape parts them unevenly."""
    sizes = shape(root)
    if any(n <= 0 for n in sizes):
        return None
    dims: tuple[Steps, ...] | None = tuple(
        ((math.prod(sizes[i + 1 :]), n),) if n > 1 else () for i, n in enumerate(sizes))
    for step in path:
        dims = _after(dims, Moved(step.results[0].type, _permutation(step)))
    return dims


def _after(dims: tuple[Steps, ...] | None, move: Moved) -> tuple[Steps, ...] | None:
    if dims is None:
        return None
    if move.permutation:
        return tuple(dims[d] for d in move.permutation)
    left = [step for steps in dims for step in steps]
    out: list[Steps] = []
    for n in move.type.shape:
        taken = _taken(left, n)
        if taken is None:
            return None
        joined: list[tuple[int, int]] = []
        for distance, count in taken[0]:
            if joined and joined[-1][0] == distance * count:
                joined[-1] = (distance, count * joined[-1][1])
            else:
                joined.append((distance, count))
        out.append(tuple(joined))
        left = taken[1]
    return tuple(out)


def _taken(steps: Sequence[tuple[int, int]], count: int) -> tuple[Steps, list[tuple[int, int]]] | None:
    """The major steps that make so many, and those that are left; None where no steps make as many."""
    left, taken = list(steps), []
    while count > 1:
        distance, n = left.pop(0) if left else (0, 0)
        if n and count % n == 0:
            taken.append((distance, n))
            count //= n
        elif n and n % count == 0:
            taken.append((distance * n // count, count))
            left.insert(0, (distance, n // count))
            count = 1
        else:
            return None
    return tuple(taken), left


def _shards(dims: tuple[Steps, ...] | None, sharding: TensorSharding, sizes: Sizes) -> Shards | None:
    """Where axes begin their shards; None if these are uneven. Tensors of equal ones lie on the same devices."""
    if dims is None:
        return None
    out: Shards = {}
    for steps, axes in zip(dims, sharding.axes, strict=True):
        left = list(steps)
        for axis in axes:
            taken = _taken(left, axis.devices(sizes))
            if taken is None:
                return None
            out[axis], left = taken
    return out


def _sharding(
    wanted: Shards, dims: tuple[Steps, ...] | None, like: TensorSharding, sizes: Sizes
) -> TensorSharding | None:
    """The sharding of which axes begin their shards so; None if there is none."""
    if dims is None:
        return None
    left, out = dict(wanted), list[Axes]()
    for steps in dims:
        remaining, axes = list(steps), list[AxisRef]()
        while True:
            fits = ((axis, _taken(remaining, axis.devices(sizes))) for axis in left)
            axis, taken = next(((a, t) for a, t in fits if t is not None and t[0] == left[a]), (None, None))
            if axis is None or taken is None:
                break
            del left[axis]
            axes.append(axis)
            remaining = taken[1]
        out.append(merged(axes, sizes))
    return None if left else TensorSharding.closed(like.mesh, out)
