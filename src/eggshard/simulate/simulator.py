"""The NumPy device simulator: runs a step plan on all devices of a mesh at once, without any runtime.

A value on the devices is one array ``[devices, *local shape]``, indexed by logical device id. Data that a placement
leaves unspecified (past a tensor's end, padding) is poisoned, so that a plan that uses it is found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from eggshard.errors import LoweringError, VerificationError
from eggshard.ops import registry
from eggshard.ops.arithmetic import current
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import mlir_dtype
from eggshard.simulate import group_simulation  # noqa: F401
from eggshard.simulate.device_arrays import PERFORMED, Arrays, combined, poisoned
from eggshard.simulate.window_simulation import gather_windows, scatter_windows
from eggshard.steps.authored_steps import DeviceNumber, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange, PieceExchange
from eggshard.steps.moves import Moves
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    Pairs,
    ReduceScatter,
    Resize,
    Slice,
    StepPlan,
)


def run(plan: StepPlan, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The plan's outputs, each ``[devices, *local shape]``, from its inputs in the same form.

    LoweringError if inputs do not fit the plan, or a step's results are not of the types that the plan states.
    """
    if len(shards) != len(plan.inputs):
        raise LoweringError(f"the plan has {len(plan.inputs)} inputs, but {len(shards)} were given")
    values: dict[int, np.ndarray] = {}
    for v, array in zip(plan.inputs, shards, strict=True):
        values[v] = np.asarray(array)
        _check(plan, v, values[v], f"input {v}")
    last = {v: i for i, step in enumerate(plan.steps) for v in step.operands}
    kept = {*plan.outputs}
    for i, step in enumerate(plan.steps):
        results = perform(plan.mesh, step.action, tuple(values[v] for v in step.operands))
        for v, result in zip(step.results, results, strict=True):
            _check(plan, v, result, f"result {v} of step {i} ({step.action.kind} {step.label})")
            values[v] = result
        for v in {*step.operands, *step.results}:
            if last.get(v, i) <= i and v not in kept:
                del values[v]
    return [values[v] for v in plan.outputs]


def _check(plan: StepPlan, value: int, array: np.ndarray, what: str) -> None:
    type_ = plan.types[value]
    if array.shape != (plan.mesh.size, *type_.shape) or not current().holds(array, type_.dtype):
        raise LoweringError(
            f"{what} is {mlir_dtype(array.dtype)}{list(array.shape)}, but the plan states {type_} on each of "
            f"{plan.mesh.size} devices"
        )


def scatter_to_devices(mesh: Mesh, array: np.ndarray, placement: Placement) -> np.ndarray:
    """``[devices, *local shape]``: what each device holds of an array, poisoned outside it.

    Partial placements: the first device along the partial axes holds the value, the others the monoid's identity.
    """
    out = scatter_windows(mesh, np.asarray(array), placement)
    return _keep_first(mesh, out, placement.partial, placement.monoid) if placement.partial else out


def gather_from_devices(mesh: Mesh, shards: np.ndarray, shape: Sequence[int], placement: Placement) -> np.ndarray:
    """The tensor of this shape that devices hold at a placement; partial values are combined.

    VerificationError if two devices disagree, by any bit but those of NaNs, on an element that both hold. LoweringError
    if no device holds some element.
    """
    shape, shards = tuple(shape), np.asarray(shards)
    if shards.shape != (mesh.size, *placement.local_shape):
        raise LoweringError(f"shards are {list(shards.shape)}, but {placement} holds {placement.local_shape} a device")
    if placement.partial:
        shards = _all_reduce(mesh, shards, placement.partial, placement.monoid)
    return gather_windows(mesh, shards, shape, placement)


def perform(mesh: Mesh, action: Action, operands: Arrays) -> Arrays:
    """One action on all devices: results ``[devices, *local shape]`` from such operands."""
    return PERFORMED(action, mesh, operands)


@PERFORMED.handles(Local)
def _(action: Local, mesh: Mesh, operands: Arrays) -> Arrays:
    evaluate = partial(current().evaluate, action.name)
    # Arrays that stand for the same data on all devices have no stride along them; then one device's work will do.
    alike = all(array.strides[0] == 0 or mesh.size == 1 for array in operands)
    if current().exact and registry.get(action.name).pointwise and not alike:
        rank = max(array.ndim for array in operands)
        spread = [a.reshape(mesh.size, *(1,) * (rank - a.ndim), *a.shape[1:]) for a in operands]
        return evaluate(action.attributes, spread, action.regions)
    rows = [
        evaluate(action.attributes, [array[device] for array in operands], action.regions)
        for device in range(1 if alike else mesh.size)
    ]
    if alike:
        return tuple(np.broadcast_to(r, (mesh.size, *np.shape(r))) for r in rows[0])
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


@PERFORMED.handles(Resize)
def _(action: Resize, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_resized(operands[0], action.shape),)


@PERFORMED.handles(Slice)
def _(action: Slice, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_slice(mesh, operands[0], action.moves),)


@PERFORMED.handles(AllGather)
def _(action: AllGather, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_all_gather(mesh, operands[0], action.moves),)


@PERFORMED.handles(AllToAll)
def _(action: AllToAll, mesh: Mesh, operands: Arrays) -> Arrays:
    # Each device keeps its part, along the targets, of what the group holds along the sources.
    return (_slice(mesh, _all_gather(mesh, operands[0], action.sources), action.targets),)


@PERFORMED.handles(CollectivePermute)
def _(action: CollectivePermute, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_permute(operands[0], action.pairs),)


@PERFORMED.handles(Exchange, BoxExchange)
def _(action: PieceExchange, mesh: Mesh, operands: Arrays) -> Arrays:
    (array,) = operands
    out = poisoned((mesh.size, *action.shape), array.dtype)

    size = action.piece

    def piece(shard: np.ndarray, start: np.ndarray) -> np.ndarray:
        return shard[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))]

    sent, kept = action.tables(mesh)
    for pieces in (*kept, *sent):
        for sender, receiver, begin, end in zip(*pieces, strict=True):
            piece(out[receiver], end)[...] = piece(array[sender], begin)
    return (out,)


@PERFORMED.handles(AllReduce)
def _(action: AllReduce, mesh: Mesh, operands: Arrays) -> Arrays:
    return tuple(_all_reduce(mesh, array, action.over, action.monoid) for array in operands)


@PERFORMED.handles(ReduceScatter)
def _(action: ReduceScatter, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_slice(mesh, _all_reduce(mesh, operands[0], action.axes, action.monoid), action.moves),)


@PERFORMED.handles(KeepFirst)
def _(action: KeepFirst, mesh: Mesh, operands: Arrays) -> Arrays:
    return tuple(_keep_first(mesh, array, action.over, action.monoid) for array in operands)


@PERFORMED.handles(Mask)
def _(action: Mask, mesh: Mesh, operands: Arrays) -> Arrays:
    (array,) = operands
    size = array.shape[1 + action.dim]
    index = mesh.index(action.shard_axes)[:, None] * size + np.arange(size)
    beyond = np.expand_dims(index >= action.size, tuple(i + 1 for i in range(array.ndim - 1) if i != action.dim))
    return (np.where(beyond, _identity(action.monoid, array.dtype), array),)


@PERFORMED.handles(DeviceNumber)
def _(action: DeviceNumber, mesh: Mesh, operands: Arrays) -> Arrays:
    return (np.array(action.numbers, np.uint32),)


@PERFORMED.handles(OnFirstDevice)
def _(action: OnFirstDevice, mesh: Mesh, operands: Arrays) -> Arrays:
    local, first = action.local, int(mesh.grid.reshape(-1)[0])
    results = current().evaluate(local.name, local.attributes, [a[first] for a in operands], local.regions)
    out = []
    for result, type_ in zip(results, local.result_types, strict=True):
        array = np.zeros((mesh.size, *type_.shape), current().stored(type_.dtype))
        array[first] = result
        out.append(array)
    return tuple(out)


@PERFORMED.handles(Loop)
def _(action: Loop, mesh: Mesh, operands: Arrays) -> Arrays:
    carried, turns = list(operands), 0
    while True:
        going = current().truths(run(action.condition, carried)[0])
        if action.messages:
            _agreed(going, "the condition of a loop that communicates")
        if not going.any():
            return tuple(carried)
        carried = [_where(going, new, old) for new, old in zip(run(action.body, carried), carried, strict=True)]
        turns += 1
        current().looped(turns, stated=action.trip_count or 0)


@PERFORMED.handles(Branch)
def _(action: Branch, mesh: Mesh, operands: Arrays) -> Arrays:
    selector, last = operands[0], len(action.branches) - 1
    if action.predicate:
        selector = current().truths(selector)
    if action.messages:
        _agreed(selector, "the selector of a branch that communicates")
    clamped = np.where((selector < 0) | (selector > last), last, selector)
    chosen = np.where(selector, 0, 1) if action.predicate else clamped
    taken = np.unique(chosen)
    out = run(action.branches[taken[0]], operands[1:])
    for branch in taken[1:]:
        made = run(action.branches[branch], operands[1:])
        out = [_where(chosen == branch, new, old) for new, old in zip(made, out, strict=True)]
    return tuple(out)


def _where(devices: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The new value on the devices marked, the old one on the others."""
    return new if devices.all() else np.where(devices.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _agreed(scalars: np.ndarray, what: str) -> np.ndarray:
    """The scalar that all devices hold; VerificationError if they differ: devices would wait for each other forever."""
    if (scalars != scalars[0]).any():
        raise VerificationError(f"{what} differs between devices: {scalars.tolist()}")
    first: np.ndarray = scalars[0]
    return first


def _resized(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array with its local shape cut, or padded with poison, at the high ends."""
    kept = (slice(None), *(slice(0, n) for n in shape))
    if array.shape[1:] == shape:
        return array
    if all(n <= m for n, m in zip(shape, array.shape[1:], strict=True)):
        return array[kept]
    out = poisoned((array.shape[0], *shape), array.dtype)
    out[tuple(slice(0, min(n, m)) for n, m in zip(out.shape, array.shape, strict=True))] = array[kept]
    return out


def _slice(mesh: Mesh, array: np.ndarray, moves: Moves) -> np.ndarray:
    for dim, axes in moves:
        count = mesh.count(axes)
        shape = array.shape
        if shape[1 + dim] % count:
            raise LoweringError(f"dimension {dim} of local shape {shape[1:]} does not split into {count} parts")
        parts = array.reshape(*shape[: 1 + dim], count, shape[1 + dim] // count, *shape[2 + dim :])
        array = np.moveaxis(parts, 1 + dim, 1)[np.arange(mesh.size), mesh.index(axes)]
    return array


def _all_gather(mesh: Mesh, array: np.ndarray, moves: Moves) -> np.ndarray:
    for dim, axes in moves:
        group, members = _groups(mesh, axes)
        shape = array.shape
        together = np.moveaxis(array[members], 1, 1 + dim)
        grown = (len(members), *shape[1 : 1 + dim], members.shape[1] * shape[1 + dim], *shape[2 + dim :])
        array = _of_groups(together.reshape(grown), group)
    return array


def _of_groups(arrays: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For each device its group's array; where all are one group, views of one, on which ops compute once."""
    return arrays[group] if len(arrays) > 1 else np.broadcast_to(arrays, (len(group), *arrays.shape[1:]))


def _groups(mesh: Mesh, axes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Each device's group, ``[devices]``, and the groups' members, ``[groups, size]``."""
    members = mesh.groups(axes)
    group = np.empty(mesh.size, int)
    group[members] = np.arange(len(members))[:, None]
    return group, members


def _permute(array: np.ndarray, pairs: Pairs) -> np.ndarray:
    out = np.zeros_like(array)
    if pairs:
        senders, receivers = np.array(pairs).T
        if len(set(senders.tolist())) < len(senders) or len(set(receivers.tolist())) < len(receivers):
            raise LoweringError("a device sends or receives twice in one collective-permute")
        out[receivers] = array[senders]
    return out


def _all_reduce(mesh: Mesh, array: np.ndarray, axes: Sequence[str], monoid: str) -> np.ndarray:
    groups, members = _groups(mesh, axes)
    return _of_groups(combined(monoid, [array[column] for column in members.T]), groups)


def _keep_first(mesh: Mesh, array: np.ndarray, axes: Sequence[str], monoid: str) -> np.ndarray:
    first = (mesh.index(axes) == 0).reshape(-1, *(1,) * (array.ndim - 1))
    return np.where(first, array, _identity(monoid, array.dtype))


def _identity(monoid: str, dtype: np.dtype) -> np.ndarray:
    return np.array(monoids.identity(monoid, mlir_dtype(dtype))).astype(dtype)
