"""Values that are partial sums along axes: where they are reduced, and where they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.planner.propagation.projection import Projection
from eggshard.program.axes import Axes, difference, in_mesh_order
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import REDUCTION, OpShardingRule
from eggshard.program.sharding import DimSharding
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_axis_list
from eggshard.shardy.reshards import insertion
from eggshard.shardy.reshards.axis_lists import continuation
from eggshard.shardy.reshards.common_axes import agreed_axes
from eggshard.shardy.reshards.insertion import all_reduce, replace_uses
from eggshard.shardy.reshards.values import OnMesh, Values, allowing, fully_closed


def unreduced_axes(sharding: TensorSharding | None) -> Axes:
    return sharding.sharding.unreduced if sharding else ()


def reduce_operand(
    values: Values, op: Any, number: int, source: TensorSharding | None, user: TensorSharding | None, at: Any,
) -> TensorSharding | None:
    """Sum an operand's partial values along axes that its user does not keep unreduced; returns its new sharding."""
    if source is None or not unreduced_axes(source):
        return source
    mesh = values.on_mesh(source).mesh
    if user is not None:
        _same_mesh(values, op, source, user)
    axes = difference(unreduced_axes(source), unreduced_axes(user), mesh.axes)
    if not axes:
        return source
    reduced = source.updated(unreduced=difference(unreduced_axes(source), axes, mesh.axes))
    op.operands[number] = all_reduce(op.operands[number], axes, reduced, at)
    return reduced


def reduce_operands(values: Values, op: Any) -> None:
    """Sum the partial values of an op's operands along the axes that its results do not keep unreduced.

    ShardingError if its results keep different ones.
    """
    operands = [values.sharding(operand) for operand in op.operands]
    results = [values.sharding(result) for result in op.results]
    for number, sharding in enumerate(results):
        if unreduced_axes(sharding) != unreduced_axes(results[0]):
            raise ShardingError(
                f"{op.name}: result {number} has sharding {sharding}, result 0 {results[0]}; all results of an op "
                "must be unreduced along the same axes")
    if op.name == "sdy.sharding_group":  # names values, and does not look at them
        return
    at = ir.InsertionPoint(op)
    for number, sharding in enumerate(operands):
        reduce_operand(values, op, number, sharding, results[0] if results else None, at)


def reduce_results(
    values: Values, op: Any, projection: Projection, chosen: Sequence[Axes] | None, rule: OpShardingRule, on: OnMesh,
) -> None:
    """Sum an op's results along the axes that shard its reduction factors, but those that stay unreduced.

    chosen: the axes of each factor; None if only partial values that the result keeps unreduced tell that there are
    any.
    """
    if not op.results:
        return
    kept = unreduced_axes(values.sharding(op.results[0]))
    if chosen is None and not kept:
        return
    axes: list[Any] = []
    for factor in rule.of_kind(REDUCTION):
        found = agreed_axes(projection, factor) if chosen is None else chosen[factor]
        if found is None:
            raise ShardingError(
                f"{op.name}: the result is unreduced along {', '.join(map(str, kept))}, but the operands' shardings of "
                "a reduced dimension differ; give them the same")
        axes += found
    reduced = in_mesh_order(difference(axes, kept, on.mesh.axes), on.mesh.axes)
    if not reduced:
        return
    at = ir.InsertionPoint.after(op)
    for result in list(op.results):
        if _is_reduced(result, reduced, on.mesh):
            continue
        sharding = values.sharding(result) or fully_closed(on.name, result)
        if allowing(sharding, reduced) != sharding:
            sharding = allowing(sharding, reduced)
            values.set_sharding(result, sharding)
        replace_uses(result, all_reduce(result, reduced, sharding, at))


def _is_reduced(result: Any, axes: Axes, mesh: Mesh) -> bool:
    """Whether all that uses a result is a sum along these axes: explicit reshards have been inserted before."""
    users = [use.owner.operation for use in result.uses]
    return bool(users) and all(
        user.name == "sdy.all_reduce"
        and not difference(axes, read_axis_list(str(user.attributes["reduction_axes"])), mesh.axes) for user in users)


def make_unreduced(
    values: Values, op: Any, number: int, target: TensorSharding | None, at: Any,
) -> TensorSharding | None:
    """Turn an operand into partial values along the axes of the target that it is not unreduced along yet.

    Replicated ones give all but one zeros, sharded ones are put among zeros; other dimensions are resharded first.
    The operand's sharding then; None if nothing was to be done. ShardingError if the operand has other partial values.
    """
    value = op.operands[number]
    source = values.sharding(value)
    if source is None or target is None or not unreduced_axes(target):
        return None
    _same_mesh(values, op, source, target)
    mesh = values.on_mesh(source).mesh
    had, wanted = unreduced_axes(source), unreduced_axes(target)
    new = difference(wanted, had, mesh.axes)
    if not new:
        return None
    if difference(had, wanted, mesh.axes):
        raise ShardingError(
            f"{op.name}: operand {number} with sharding {source} is wanted as {target}; partial sums along an axis "
            "cannot be made where others are summed, reshard in two steps")
    dims, sharded, moves = _aligned(source, target, new, mesh)
    if moves:
        value = insertion.reshard(value, allowing(source.updated(dims=dims)), at)
    last = source
    replicated = difference(new, [axis for axes in sharded for axis in axes], mesh.axes)
    if replicated:
        unreduced = in_mesh_order((*had, *replicated), mesh.axes)
        last = TensorSharding(source.mesh, target.updated(dims=dims, unreduced=unreduced).sharding)
        value = insertion.replicated_to_unreduced(value, replicated, last, at)
    if any(sharded):
        last = target
        value = insertion.sharded_to_unreduced(value, sharded, target, at)
    op.operands[number] = value
    return last


def _aligned(
    source: TensorSharding, target: TensorSharding, new: Axes, mesh: Mesh,
) -> tuple[tuple[DimSharding, ...], list[Axes], bool]:
    """The dimensions before partial values are made along new axes: those of the target, but for axes that turn into
    partial values.

    Also per dimension these axes, and whether the source has to be resharded to it.
    """
    dims, sharded, moves = [], [], False
    for had, wanted in zip(source.dims, target.dims, strict=True):
        extra = continuation(had.axes, wanted.axes, mesh)
        if extra and not difference(extra, new, mesh.axes):
            dims.append(had)
            sharded.append(extra)
        else:
            moves |= extra != ()
            dims.append(wanted)
            sharded.append(())
    if not moves:  # dimensions that are open here or there stay as they are
        dims = [had if had.axes == dim.axes else dim for had, dim in zip(source.dims, dims, strict=True)]
    return tuple(dims), sharded, moves


def _same_mesh(values: Values, op: Any, source: TensorSharding, user: TensorSharding) -> None:
    first, second = values.on_mesh(source), values.on_mesh(user)
    if (first.mesh, first.maximal) != (second.mesh, second.maximal):
        raise ShardingError(
            f"{op.name}: a value with sharding {source} is used with sharding {user}; partial sums stay on their mesh, "
            "reduce or reshard the value first")
