"""The traffic of a communicating step as one device sees it: boxes of its peers' operands that become boxes of its own
results, and the operands of its group that it combines.

Engines with a process per device move this traffic and so need not know the steps. Peers are logical device ids, and
pieces from the device itself are local copies. All devices' pieces together equal what the simulator does with the
step (`eggshard.simulate.simulator.perform`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from eggshard.engines.ranks.view import group_of
from eggshard.errors import LoweringError
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.simulate.device_arrays import combined
from eggshard.simulate.group_simulation import combined_by, groups_of
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange, PieceExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.moves import Moves, moved_axes
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
    ReduceScatter,
    Resize,
    Slice,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

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
    """The group's operands combined, of which each member keeps a box as its whole result.

    members: in the order in which their operands are combined. boxes: what each keeps; kept: this device's. by: a
    monoid's name, or a region of two scalars.
    """

    members: tuple[int, ...]
    operand: int
    result: int
    by: str | Region
    boxes: tuple[Box, ...]
    kept: Box

    def combine(self, parts: list[np.ndarray]) -> np.ndarray:
        """Equal boxes of the members' operands, in the members' order, combined."""
        return combined(self.by, parts) if isinstance(self.by, str) else combined_by(self.by, np.stack(parts))


class Traffic(NamedTuple):
    """All that one step moves to and from one device.

    received: no two target boxes meet. It includes what the device copies from its own operands. sent: what other
    devices receive from this one; of any two devices, the one's ``sent`` to the other and the other's ``received`` from
    it are in the same order. outside: what results hold where no piece lies.
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
    return _traffic(action, mesh, operands, device)


def moves_data(action: Action) -> bool:
    """Whether a step has traffic, if only from a device to itself."""
    return _traffic.has(action)


_traffic: Handlers[Traffic] = Handlers("traffic")
_traffic.refuses("moves no data between devices", BoxSelect, Branch, Crop, DeviceNumber, EdgeFill, KeepFirst, Local,
                 Loop, Mask, OnFirstDevice, Resize, Slice)


def _pieces(
    device: int, received: Callable[[int], Iterable[Piece]], readers: Iterable[int], outside: Outside = "nothing",
    group: tuple[int, ...] = (),
) -> Traffic:
    """Build one device's traffic from the pieces that devices receive.

    received: the pieces of a device, its own included; the sender is the peer. readers: devices that may read this
    device's operands.
    """
    sent = []
    for reader in sorted({*readers} - {device}):
        sent += [p._replace(peer=reader) for p in received(reader) if p.peer == device]
    return Traffic(device, tuple(received(device)), tuple(sent), (), outside, group)


def _uncovered(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces that overwrite earlier ones, cut so that no two targets meet."""
    found: list[Piece] = []
    for piece in pieces:
        found = [rest for earlier in found for rest in _cut(earlier, piece)]
        found.append(piece)
    return found


def _cut(piece: Piece, later: Piece) -> Iterator[Piece]:
    """What a later piece leaves of a piece."""
    apart = any(b <= low or high <= a for (a, b), (low, high) in zip(piece.target, later.target, strict=False))
    if piece.result != later.result or apart:
        yield piece
        return
    for dim, (low, high) in enumerate(later.target):
        start, stop = piece.target[dim]
        inside = max(start, low), min(stop, high)
        for part in ((start, inside[0]), (inside[1], stop)):
            if part[0] < part[1]:
                yield _within(piece, dim, *part)
        piece = _within(piece, dim, *inside)


def _within(piece: Piece, dim: int, start: int, stop: int) -> Piece:
    """The part of a piece between two indices of its target's dimension."""
    shift = piece.source[dim][0] - piece.target[dim][0]
    source, target = list(piece.source), list(piece.target)
    source[dim], target[dim] = (start + shift, stop + shift), (start, stop)
    return piece._replace(source=tuple(source), target=tuple(target))


@_traffic.handles(AllGather, AllToAll)
def _(action: AllGather | AllToAll, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    group = _along_axes(mesh, action.axes, device)
    sources, targets = (action.moves, ()) if isinstance(action, AllGather) else (action.sources, action.targets)
    return _pieces(device, lambda d: _gathered(mesh, operands[0].shape, sources, targets, d), group, group=group)


@_traffic.handles(CollectivePermute)
def _(action: CollectivePermute, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    whole = _whole(operands[0].shape)
    if len({s for s, _ in action.pairs}) < len(action.pairs) or len({r for _, r in action.pairs}) < len(action.pairs):
        raise LoweringError("a device sends or receives twice in one collective-permute")
    receives = any(receiver == device for _, receiver in action.pairs)
    return _pieces(
        device, lambda d: [Piece(s, 0, whole, 0, whole) for s, r in action.pairs if r == d],
        (r for s, r in action.pairs if s == device), "nothing" if receives else "zeros")


@_traffic.handles(Exchange, BoxExchange)
def _(action: PieceExchange, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    sent, kept = action.tables(mesh)

    def received(to: int) -> Iterator[Piece]:
        for pieces in (*kept, *sent):
            for i in np.flatnonzero(pieces.receivers == to):
                source = _at(pieces.source_starts[i].tolist(), action.piece)
                target = _at(pieces.target_starts[i].tolist(), action.piece)
                yield Piece(int(pieces.senders[i]), 0, _inside(source, operands[0].shape), 0,
                            _inside(target, action.shape))

    readers = (r for pieces in sent for r in pieces.receivers[pieces.senders == device].tolist())
    return _pieces(device, lambda to: _uncovered(received(to)), readers, "poison")


@_traffic.handles(WindowExchange)
def _(action: WindowExchange, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    group = _along_axes(mesh, action.axes, device)
    moving = [pair for loads in action.travelling for load in loads for pair in load]

    def received(to: int) -> Iterator[Piece]:
        position = group.index(to)
        for i, part in enumerate(action.exchanges):
            shape = operands[i].shape
            offset, old = part.offsets[int(mesh.index(part.over)[to])], shape[part.dim]
            low, high = max(0, offset), min(part.new, offset + old)
            if low < high:
                kept = _along(shape, part.dim, low - offset, high - low)
                yield Piece(to, i, kept, i, _along(shape, part.dim, low, high - low))
        for i, slab in (*moving, *action.staying):
            part, shape = action.exchanges[i], operands[i].shape
            for sender, receiver in slab.pairs:
                if receiver == position:
                    source = _along(shape, part.dim, slab.source_starts[sender], slab.width)
                    target = _along(shape, part.dim, slab.target_starts[receiver], slab.width)
                    new = (*shape[: part.dim], part.new, *shape[part.dim + 1 :])
                    yield Piece(group[sender], i, _inside(source, shape), i, _inside(target, new))

    return _pieces(device, lambda to: _uncovered(received(to)), group, "poison")


@_traffic.handles(AllReduce, ReduceScatter)
def _(action: AllReduce | ReduceScatter, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    members = _along_axes(mesh, action.axes, device)
    moves = action.moves if isinstance(action, ReduceScatter) else ()
    return _combined(device, members, action.monoid, operands, lambda t, m: slice_box(mesh, t.shape, moves, m))


def _combined(
    device: int, members: tuple[int, ...], by: str | Region, operands: tuple[TensorType, ...],
    kept: Callable[[TensorType, int], Box],
) -> Traffic:
    """One device's traffic in a reduction of which each member keeps a box of every operand."""
    reductions = []
    for i, type_ in enumerate(operands):
        boxes = tuple(kept(type_, member) for member in members)
        reductions.append(Reduction(members, i, i, by, boxes, boxes[members.index(device)]))
    return Traffic(device, reductions=tuple(reductions))


@_traffic.handles(GroupCollective)
def _(action: GroupCollective, mesh: Mesh, operands: tuple[TensorType, ...], device: int) -> Traffic:
    group = next(tuple(group) for group in groups_of(mesh.size, action) if device in group)
    attributes, count = action.attributes, len(group)

    def part(type_: TensorType, dim: int, to: int) -> Box:
        n = type_.shape[dim] // count
        return _along(type_.shape, dim, group.index(to) * n, n)

    def received(to: int) -> Iterator[Piece]:
        for i, type_ in enumerate(operands):
            gather = action.name == "all_gather"
            source = _whole(type_.shape) if gather else part(type_, attributes["split_dimension"], to)
            dim = attributes["all_gather_dim" if gather else "concat_dimension"]
            shape = tuple(stop - start for start, stop in source)
            for k, sender in enumerate(group):
                yield Piece(sender, i, source, i, _along(shape, dim, k * shape[dim], shape[dim]))

    if action.name == "all_reduce":
        return _combined(device, group, action.regions[0], operands, lambda t, m: _whole(t.shape))
    if action.name == "reduce_scatter":
        return _combined(
            device, group, action.regions[0], operands, lambda t, m: part(t, attributes["scatter_dimension"], m))
    return _pieces(device, received, group, group=group)


def _along_axes(mesh: Mesh, axes: tuple[str, ...], device: int) -> tuple[int, ...]:
    """The device's group along these axes, in order."""
    return tuple(int(d) for d in group_of(mesh, axes, device))


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
