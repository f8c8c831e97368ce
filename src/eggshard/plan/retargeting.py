"""Retarget a device program to another number of devices: data-parallel programs, stencils, reductions over an axis.

Shards keep their local types; there are more or fewer of them. A step that does not depend on a device count is kept.
Tables over positions are stretched (`stretching`), and global indices keep their distance from the nearer end of the
tensor. Anything else that depends on the number of devices is refused, with the step named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from eggshard.errors import LoweringError, MeshError
from eggshard.plan.stretching import anchored, constant, next_only, stretched_numbers, stretched_pairs, stretched_slab
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.nested import with_nested
from eggshard.steps.piece_steps import Exchange, Round
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
    Step,
    StepPlan,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, JointExchange, Loads

Types = tuple[TensorType, ...]


def on_mesh(plan: StepPlan, mesh: Mesh) -> StepPlan:
    """The device program on a mesh with the same axes in the same order, of any sizes.

    MeshError for other axes. LoweringError, naming the step, where a shard's type depends on the number of devices, or
    what a device does depends on its position by no rule that holds for other numbers.
    """
    if tuple(plan.mesh.axes) != tuple(mesh.axes):
        raise MeshError(f"the program is on axes {list(plan.mesh.axes)} and cannot be put on {list(mesh.axes)}; give a "
                        "mesh with the same axes in the same order")
    return plan if plan.mesh == mesh else _on_mesh(plan, mesh)


def _on_mesh(plan: StepPlan, mesh: Mesh) -> StepPlan:
    steps = tuple(_step(plan, i, step, mesh) for i, step in enumerate(plan.steps))
    return replace(plan, mesh=mesh, steps=steps, held=())  # of tensors of other sizes now


def _step(plan: StepPlan, i: int, step: Step, mesh: Mesh) -> Step:
    operands = tuple(plan.types[v] for v in step.operands)
    stated = tuple(plan.types[v] for v in step.results)
    try:
        action = retargeted(step.action, plan.mesh, mesh, operands)
        made = action.result(mesh, operands)
        if made != stated:
            raise LoweringError(
                f"each device's part of its result would be {', '.join(map(str, made))} instead of "
                f"{', '.join(map(str, stated))}: it depends on the number of devices; plan for that number"
            )
    except (LoweringError, ValueError) as error:
        what = " ".join(filter(None, (f"step {i}", step.action.kind, step.label)))
        raise LoweringError(f"{what} cannot go from mesh {plan.mesh.axes} to {mesh.axes}: {error}") from None
    return step if action is step.action else replace(step, action=action)


#: (action, old mesh, new mesh, operands' local types) -> what devices of the new mesh do in place of it, on operands of
#: the same types. LoweringError where it depends on a number of devices by no rule that holds for other numbers.
retargeted: Handlers[Action] = Handlers("retargeting")


@retargeted.handles(AllGather, AllReduce, AllToAll, KeepFirst, OnFirstDevice, ReduceScatter, Resize, Slice)
def _(action: Action, old: Mesh, new: Mesh, operands: Types) -> Action:
    """Return the action unchanged: none of its fields depends on the number or position of devices."""
    return action


@retargeted.handles(Local)
def _(action: Local, old: Mesh, new: Mesh, operands: Types) -> Action:
    if _same(action.sized, old, new):
        return action
    raise LoweringError(
        f"it finds a place in a tensor by the size of all of it, which is sharded over {', '.join(action.sized)}; plan "
        "for that number of devices"
    )


@retargeted.handles(Loop, Branch)
def _(action: Action, old: Mesh, new: Mesh, operands: Types) -> Action:
    return with_nested(action, lambda inner: _on_mesh(inner, new))


@retargeted.handles(Mask)
def _(action: Mask, old: Mesh, new: Mesh, operands: Types) -> Action:
    shards = Dim(action.shard_axes, operands[0].shape[action.dim])
    return replace(action, size=_anchored(action.size, shards, old, new))


@retargeted.handles(EdgeFill)
def _(action: EdgeFill, old: Mesh, new: Mesh, operands: Types) -> Action:
    if _anchored(0, action.window, old, new):
        raise LoweringError(f"its window {action.window} is counted from the tensor's end; plan for that number")
    return replace(action, size=_anchored(action.size, action.window, old, new))


@retargeted.handles(BoxSelect)
def _(action: BoxSelect, old: Mesh, new: Mesh, operands: Types) -> Action:
    return BoxSelect(tuple(
        (dim, window, _anchored(start, window, old, new), _anchored(stop, window, old, new))
        for dim, window, start, stop in action.box
    ))


@retargeted.handles(Crop)
def _(action: Crop, old: Mesh, new: Mesh, operands: Types) -> Action:
    return action if _same(action.over, old, new) else replace(
        action, offsets=constant(action.offsets, new.count(action.over))
    )


@retargeted.handles(HaloExchange)
def _(action: HaloExchange, old: Mesh, new: Mesh, operands: Types) -> Action:
    if _same(action.over, old, new):
        return action
    before, count = old.count(action.over), new.count(action.over)
    ends = next_only(action.rounds, before)
    rounds = (stretched_slab(slab, before, count, ends) for slab in action.rounds)
    return replace(action, offsets=constant(action.offsets, count), rounds=tuple(r for r in rounds if r.pairs))


@retargeted.handles(JointExchange)
def _(action: JointExchange, old: Mesh, new: Mesh, operands: Types) -> Action:
    if _same(action.axes, old, new):
        return action
    parts = [retargeted(part, old, new, (operand,)) for part, operand in zip(action.parts, operands, strict=True)]
    halos = tuple(part for part in parts if isinstance(part, HaloExchange))
    counts = old.count(action.axes), new.count(action.axes)
    try:
        shared = tuple(filter(None, (_loads(loads, *counts) for loads in action.shared)))
        return JointExchange(halos, shared)
    except LoweringError:  # what travels together is a matter of speed
        return JointExchange(halos)


def _loads(loads: Loads, old: int, new: int) -> Loads:
    ends = next_only((slab for load in loads for _, slab in load), old)
    out = (tuple((i, stretched_slab(slab, old, new, ends)) for i, slab in load) for load in loads)
    kept = tuple(load for load in out if load[0][1].pairs)
    if any(slab.pairs != load[0][1].pairs for load in kept for _, slab in load):
        raise LoweringError("slabs that travel together would go to different devices")
    return kept


@retargeted.handles(CollectivePermute)
def _(action: CollectivePermute, old: Mesh, new: Mesh, operands: Types) -> Action:
    crossed = _crossed(old, action.pairs)
    if all(old.axes[a] == new.axes[a] for a in crossed):
        return replace(action, pairs=_alike(old, new, action.pairs))
    axes = (*(a for a in action.over if a in crossed), *(a for a in crossed if a not in action.over))
    pattern = _positions(old, axes, action.pairs)
    return replace(action, pairs=_spread(new, axes, stretched_pairs(pattern, old.count(axes), new.count(axes))))


@retargeted.handles(BoxExchange)
def _(action: BoxExchange, old: Mesh, new: Mesh, operands: Types) -> Action:
    return retargeted(action.listed(old), old, new, operands)


@retargeted.handles(Exchange)
def _(action: Exchange, old: Mesh, new: Mesh, operands: Types) -> Action:
    return replace(
        action, rounds=tuple(_round(old, new, r) for r in action.rounds),
        local=tuple(_round(old, new, r) for r in action.local),
    )


def _round(old: Mesh, new: Mesh, given: Round) -> Round:
    """A round of pieces that keep within one position along the axes that change, and are alike at each."""
    starts = (_rows(old, new, rows) for rows in (given.source_starts, given.target_starts))
    return Round(_alike(old, new, given.pairs), *starts)


def _rows(old: Mesh, new: Mesh, rows: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    kept = _kept(old, new)
    parts = np.array(rows).reshape(old.size, -1)[old.groups(kept)]
    if (parts != parts[0]).any():
        raise LoweringError(_DIFFERS)
    out = np.empty((new.size, parts.shape[-1]), int)
    out[new.groups(kept)] = parts[0]
    return tuple(map(tuple, out.tolist()))


@retargeted.handles(GroupCollective)
def _(action: GroupCollective, old: Mesh, new: Mesh, operands: Types) -> Action:
    if not action.names_devices:
        raise LoweringError("its groups are of replicas, and do not tell which devices communicate")
    groups = _alike(old, new, action.attributes["replica_groups"])
    return replace(action, attributes=action.attributes.updated(replica_groups=groups))


@retargeted.handles(DeviceNumber)
def _(action: DeviceNumber, old: Mesh, new: Mesh, operands: Types) -> Action:
    if action.authored and old.axes != new.axes:
        raise LoweringError(
            "the program computes with its devices' numbers, and may know in what it computes how many there are; plan "
            "for that number of devices"
        )
    numbers = np.array(action.numbers)[old.grid]
    names = list(old.axes)
    varying = [i for i in range(numbers.ndim) if (numbers != numbers.take([0], i)).any()]
    counts = [new.axes[a] for a in names]
    numbers = numbers[tuple(slice(None) if i in varying else slice(1) for i in range(numbers.ndim))]
    if any(old.axes[names[i]] != counts[i] for i in varying):
        small = stretched_numbers(
            numbers.reshape([old.axes[names[i]] for i in varying]), [names[i] for i in varying],
            [counts[i] for i in varying],
        )
        numbers = small.reshape([counts[i] if i in varying else 1 for i in range(len(names))])
    out = np.empty(new.size, int)
    out[new.grid.reshape(-1)] = np.broadcast_to(numbers, counts).reshape(-1)
    return DeviceNumber(tuple(out.tolist()))


_DIFFERS = (
    "what devices do differs from place to place along the axes whose size changes, by no rule that would tell what "
    "others do; plan for that number of devices"
)


def _same(axes: Iterable[str], old: Mesh, new: Mesh) -> bool:
    """Whether there are as many devices along each of these axes."""
    return all(old.axes[a] == new.axes[a] for a in axes)


def _anchored(index: int, window: Dim, old: Mesh, new: Mesh) -> int:
    return anchored(index, window, old.count(window.axes), new.count(window.axes))


def _kept(old: Mesh, new: Mesh) -> tuple[str, ...]:
    """The axes whose size does not change."""
    return tuple(a for a in old.axes if old.axes[a] == new.axes[a])


def _crossed(mesh: Mesh, pairs: Iterable[tuple[int, ...]]) -> tuple[str, ...]:
    """The axes along which members of some pair or group differ."""
    where = mesh.coordinates
    return tuple(a for a in mesh.axes if any(len({int(where[a][d]) for d in group if d >= 0}) > 1 for group in pairs))


def _positions(mesh: Mesh, axes: tuple[str, ...], groups: Iterable[tuple[int, ...]]) -> Pairs:
    """Groups that differ along these axes only, by position along them; the same at each place along the others."""
    rows = mesh.groups(axes)
    row, position = np.empty(mesh.size, int), mesh.index(axes)
    row[rows] = np.arange(len(rows))[:, None]
    found: list[list[tuple[int, ...]]] = [[] for _ in rows]
    for group in groups:
        members = [d for d in group if d >= 0]
        if len({int(row[d]) for d in members}) > 1:
            raise LoweringError(_DIFFERS)
        found[int(row[members[0]])].append(tuple(int(position[d]) if d >= 0 else d for d in group))
    first = sorted(found[0])
    if any(sorted(part) != first for part in found):
        raise LoweringError(_DIFFERS)
    return tuple(first)  # type: ignore[arg-type]


def _spread(mesh: Mesh, axes: tuple[str, ...], pattern: Iterable[tuple[int, ...]]) -> Pairs:
    """Groups by position along these axes, at each place along the others."""
    rows = mesh.groups(axes).tolist()
    return tuple(tuple(row[p] if p >= 0 else p for p in group) for row in rows for group in pattern)  # type: ignore


def _alike(old: Mesh, new: Mesh, groups: Pairs) -> Pairs:
    """Groups within one position along the axes that change, and alike at each, on the new mesh."""
    kept = _kept(old, new)
    return _spread(new, kept, _positions(old, kept, groups))
