"""What a communicating step moves, as one device sees it: boxes of its peers' operands that become boxes of its own
results, and operands of its group that it combines.

Engines that have a process for each device move these, and so know nothing of the steps themselves. Peers are logical
device ids, and a device's pieces from itself are local copies. All devices' pieces together are what the simulator
does with the step (`eggshard.simulate.simulator.perform`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any, Literal, NamedTuple

import numpy as np

from eggshard.engines.ranks.view import group_of
from eggshard.errors import LoweringError
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.simulate.device_arrays import combined
from eggshard.simulate.group_simulation import combined_by, groups_of
from eggshard.steps.authored_steps import GroupCollective
from eggshard.steps.exchange import BoxExchange, PieceExchange
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    Moves,
    ReduceScatter,
    Slice,
    moved_axes,
)
from eggshard.steps.window_steps import WindowExchange

#: Per dimension [start, stop).
Box = tuple[tuple[int, int], ...]
#: What a result holds where no piece lies: the pieces cover it, unspecified data, or zeros.
Outside = Literal["nothing", "poison", "zeros"]


class Piece(NamedTuple):
    """A box of an operand on one device that becomes an equal box of a result on another.

    peer: the other device: the sender of what is received, the receiver of what is sent. operand and result number
    the step's operands and results; source lies in the sender's operand, target in the receiver's result.
    """

    peer: int
    operand: int
    source: Box
    result: int
    target: Box

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.source)


class Reduction(NamedTuple):
    """The group's operands combined, of which this device keeps a box as its whole result.

    members: in the order in which their operands are combined. by: a monoid's name, or a region of two scalars.
    """

    members: tuple[int, ...]
    operand: int
    result: int
    by: str | Region
    kept: Box

    def combine(self, parts: list[np.ndarray]) -> np.ndarray:
        """Equal boxes of the members' operands, in the members' order, combined."""
        return combined(self.by, parts) if isinstance(self.by, str) else combined_by(self.by, np.stack(parts))


class Traffic(NamedTuple):
    """All that one step moves to and from one device.

    received: in order; where two target boxes meet, the later piece holds. It includes what the device copies from
    its own operands. sent: what other devices receive from this one; of any two devices, the one's ``sent`` to the
    other and the other's ``received`` from it are in the same order. outside: what results hold where no piece lies.
    group: the devices, in order, whose collective the step is: each of them receives from each. Empty for pieces
    between single devices, and for reductions, which name their members.
    """

    device: int
    received: tuple[Piece, ...] = ()
    sent: tuple[Piece, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    outside: Outside = "nothing"
    group: tuple[int, ...] = ()

    @property
    def sources(self) -> tuple[int, ...]:
        """The other devices whose operands this one reads, in ascending order."""
        read = {p.peer for p in self.received} | {m for r in self.reductions for m in r.members}
        return tuple(sorted(read - {self.device}))

    @property
    def readers(self) -> tuple[int, ...]:
        """The other devices that read this one's operands, in ascending order."""
        read = {p.peer for p in self.sent} | {m for r in self.reductions for m in r.members}
        return tuple(sorted(read - {self.device}))


def box_of(array: np.ndarray, box: Box) -> np.ndarray:
    """The view of a box of an array, a scalar's too."""
    index: tuple[Any, ...] = tuple(slice(start, stop) for start, stop in box)
    return array[(..., *index)]


def traffic_of(mesh: Mesh, action: Action, operands: tuple[TensorType, ...], device: int) -> Traffic:
    """What a step moves to and from a device, from its operands' local types.

    LoweringError for a step that does not communicate or is not known, and for pieces outside their shards.
    """
    reductions = tuple(_reductions(action, mesh, operands, device))
    if reductions:
        return Traffic(device, reductions=reductions)
    received = tuple(_received(action, mesh, operands, device))
    sent = []
    for reader in _readers(action, mesh, device):
        sent += [p._replace(peer=reader) for p in _received(action, mesh, operands, reader) if p.peer == device]
    outside: Outside = "nothing"
    if isinstance(action, (Exchange, BoxExchange, WindowExchange)):
        outside = "poison"
    elif isinstance(action, CollectivePermute) and not received:
        outside = "zeros"
    return Traffic(device, received, tuple(sent), (), outside, _group(action, mesh, device))


def moves_data(action: Action) -> bool:
    """Whether a step has traffic, if only from a device to itself."""
    return _received.dispatch(type(action)) is not _received.dispatch(Action)


@singledispatch
def _received(action: Action, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    """What a device receives, its own pieces included; the sender is the peer."""
    raise LoweringError(f"{type(action).__name__} ({action.kind}) is no step that moves data between devices")


@_received.register
def _(action: AllGather, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    return _gathered(mesh, operands[0].shape, action.moves, (), device)


@_received.register
def _(action: AllToAll, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    return _gathered(mesh, operands[0].shape, action.sources, action.targets, device)


@_received.register
def _(action: CollectivePermute, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    whole = _whole(operands[0].shape)
    if len({s for s, _ in action.pairs}) < len(action.pairs) or len({r for _, r in action.pairs}) < len(action.pairs):
        raise LoweringError("a device sends or receives twice in one collective-permute")
    for sender, receiver in action.pairs:
        if receiver == device:
            yield Piece(sender, 0, whole, 0, whole)


@_received.register(Exchange)
@_received.register(BoxExchange)
def _(action: PieceExchange, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    sent, kept = action.tables(mesh)
    for pieces in (*kept, *sent):
        for i in np.flatnonzero(pieces.receivers == device):
            source = _at(pieces.source_starts[i].tolist(), action.piece)
            target = _at(pieces.target_starts[i].tolist(), action.piece)
            yield Piece(int(pieces.senders[i]), 0, _inside(source, operands[0].shape), 0,
                        _inside(target, action.shape))


@_received.register
def _(action: WindowExchange, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    group = group_of(mesh, action.axes, device)
    position = int(np.flatnonzero(group == device)[0])
    for i, part in enumerate(action.exchanges):
        shape = operands[i].shape
        offset, old = part.offsets[int(mesh.index(part.over)[device])], shape[part.dim]
        low, high = max(0, offset), min(part.new, offset + old)
        if low < high:
            kept = _along(shape, part.dim, low - offset, high - low)
            yield Piece(device, i, kept, i, _along(shape, part.dim, low, high - low))
    moving = [pair for loads in action.travelling for load in loads for pair in load]
    for i, slab in (*moving, *action.staying):
        part, shape = action.exchanges[i], operands[i].shape
        for sender, receiver in slab.pairs:
            if receiver == position:
                source = _along(shape, part.dim, slab.source_starts[sender], slab.width)
                target = _along(shape, part.dim, slab.target_starts[receiver], slab.width)
                new = (*shape[: part.dim], part.new, *shape[part.dim + 1 :])
                yield Piece(int(group[sender]), i, _inside(source, shape), i, _inside(target, new))


@_received.register
def _(action: GroupCollective, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    group = _listed(action, mesh, device)
    position = group.index(device)
    for i, type_ in enumerate(operands):
        for k, sender in enumerate(group):
            if action.name == "all_gather":
                dim = action.attributes["all_gather_dim"]
                n = type_.shape[dim]
                yield Piece(sender, i, _whole(type_.shape), i, _along(type_.shape, dim, k * n, n))
            else:
                split, concat = action.attributes["split_dimension"], action.attributes["concat_dimension"]
                part = type_.shape[split] // len(group)
                source = _along(type_.shape, split, position * part, part)
                shape = tuple(stop - start for start, stop in source)
                yield Piece(sender, i, source, i, _along(shape, concat, k * shape[concat], shape[concat]))


@_received.register(AllReduce)
@_received.register(ReduceScatter)
def _(action: Action, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Iterator[Piece]:
    return iter(())  # it combines


def _reductions(
    action: Action, mesh: Mesh, operands: tuple[TensorType, ...], device: int
) -> Iterator[Reduction]:
    if isinstance(action, (AllReduce, ReduceScatter)):
        members = tuple(int(d) for d in group_of(mesh, action.axes, device))
        moves = action.moves if isinstance(action, ReduceScatter) else ()
        for i, type_ in enumerate(operands):
            yield Reduction(members, i, i, action.monoid, slice_box(mesh, type_.shape, moves, device))
    elif isinstance(action, GroupCollective) and action.name in ("all_reduce", "reduce_scatter"):
        members = _listed(action, mesh, device)
        for i, type_ in enumerate(operands):
            kept = _whole(type_.shape)
            if action.name == "reduce_scatter":
                dim = action.attributes["scatter_dimension"]
                part = type_.shape[dim] // len(members)
                kept = _along(type_.shape, dim, members.index(device) * part, part)
            yield Reduction(members, i, i, action.regions[0], kept)


def _group(action: Action, mesh: Mesh, device: int) -> tuple[int, ...]:
    """The devices, in order, of which each receives from each."""
    if isinstance(action, (AllGather, AllToAll)):
        return tuple(int(d) for d in group_of(mesh, action.axes, device))
    return _listed(action, mesh, device) if isinstance(action, GroupCollective) else ()


def _readers(action: Action, mesh: Mesh, device: int) -> tuple[int, ...]:
    """The other devices that may read a device's operands, in ascending order."""
    if isinstance(action, CollectivePermute):
        found = {r for s, r in action.pairs if s == device}
    elif isinstance(action, (Exchange, BoxExchange)):
        sent = action.tables(mesh).sent
        found = {r for pieces in sent for r in pieces.receivers[pieces.senders == device].tolist()}
    elif isinstance(action, GroupCollective):
        found = set(_listed(action, mesh, device))
    else:
        found = {int(d) for d in group_of(mesh, action.axes, device)}
    return tuple(sorted(found - {device}))


def slice_box(mesh: Mesh, shape: tuple[int, ...], moves: Moves, device: int) -> Box:
    """What of an array of this local shape a device keeps in a `Slice` by these moves."""
    Slice(moves).result(mesh, (TensorType(shape, "i8"),))  # it divides
    start, size = [0] * len(shape), list(shape)
    for dim, axes in moves:
        size[dim] //= mesh.count(axes)
        start[dim] += int(mesh.index(axes)[device]) * size[dim]
    return tuple((a, a + n) for a, n in zip(start, size, strict=True))


def _gathered(
    mesh: Mesh, shape: tuple[int, ...], sources: Moves, targets: Moves, device: int
) -> Iterator[Piece]:
    """The group's shards concatenated along the sources, of which a slice along the targets is kept."""
    (whole,) = AllGather(sources).result(mesh, (TensorType(shape, "i8"),))
    kept = slice_box(mesh, whole.shape, targets, device)
    for sender in group_of(mesh, moved_axes(sources), device):
        start, size = [0] * len(shape), list(shape)
        for dim, axes in sources:
            start[dim] += int(mesh.index(axes)[sender]) * size[dim]
            size[dim] *= mesh.count(axes)
        common = [(max(a, low), min(a + n, high)) for a, n, (low, high) in zip(start, shape, kept, strict=True)]
        if all(low < high for low, high in common):
            source = tuple((low - a, high - a) for (low, high), a in zip(common, start, strict=True))
            target = tuple((low - k, high - k) for (low, high), (k, _) in zip(common, kept, strict=True))
            yield Piece(int(sender), 0, source, 0, target)


def _listed(action: GroupCollective, mesh: Mesh, device: int) -> tuple[int, ...]:
    """The device's group among those that a collective lists."""
    return next(tuple(group) for group in groups_of(mesh.size, action) if device in group)


def _whole(shape: tuple[int, ...]) -> Box:
    return tuple((0, n) for n in shape)


def _at(start: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    return tuple((a, a + n) for a, n in zip(start, shape, strict=True))


def _along(shape: tuple[int, ...], dim: int, start: int, size: int) -> Box:
    """All of an array of this shape but for one dimension."""
    return tuple((start, start + size) if d == dim else (0, n) for d, n in enumerate(shape))


def _inside(box: Box, shape: tuple[int, ...]) -> Box:
    """The box; LoweringError unless it lies in an array of this shape."""
    if not all(0 <= start <= stop <= n for (start, stop), n in zip(box, shape, strict=True)):
        raise LoweringError(f"a piece at {box} lies outside its shard of shape {shape}")
    return box
