"""Physical steps on windows: halo regions (slabs) exchanged with neighbours, and fills beyond a tensor's ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.windowing import EDGE_MODES
from eggshard.placement.slabs import Slab
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType
from eggshard.steps.steps import Action, Pairs


@dataclass(frozen=True, slots=True)
class Crop(Action):
    """Hold another window of dimension ``dim``: of the shard of size ``old``, what falls into the one of size ``new``.

    ``offsets``: per position along ``over`` where the old shard begins in the new one (negative: what lies below is
    cut off). The rest of the new shard is unspecified.
    """

    dim: int
    over: tuple[str, ...]
    new: int
    offsets: tuple[int, ...]
    kind: ClassVar[str] = "window"

    def cuts(self, operand: TensorType) -> bool:
        """Whether all devices cut the same rows out of the old shard, which compilers read in place."""
        at = self.offsets[0]
        return len(set(self.offsets)) == 1 and at <= 0 and at + operand.shape[self.dim] >= self.new

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (_resized(operands[0], self.dim, self.new),)

    def touched(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return 0.0 if self.cuts(operands[0]) else Action.touched(self, mesh, operands)


#: Slabs, and whose operand's they are, that the same devices send to the same devices, one after the other.
Load = tuple[tuple[int, Slab], ...]
#: The loads of one collective-permute: no device sends two of them, or receives two.
Loads = tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class WindowExchange(Action):
    """Slabs of one or several values, sent along the same axes. All values have one element type.

    Slabs with equal pairs of senders and receivers travel together, in one collective-permute: one after the other
    in row-major order. Rounds in which every device sends to itself are local copies.
    """

    kind: ClassVar[str] = "halo-exchange"

    @property
    def exchanges(self) -> tuple[HaloExchange, ...]:
        """What becomes of each operand."""
        raise NotImplementedError

    @property
    def axes(self) -> tuple[str, ...]:
        return self.exchanges[0].over

    @property
    def travelling(self) -> tuple[Loads, ...]:
        """The loads of each collective-permute."""
        out: dict[Pairs, list[tuple[int, Slab]]] = {}
        for i, part in enumerate(self.exchanges):
            for slab in part.rounds:
                if any(sender != receiver for sender, receiver in slab.pairs):
                    out.setdefault(slab.pairs, []).append((i, slab))
        return tuple((tuple(slabs),) for slabs in out.values())

    @property
    def staying(self) -> Load:
        """The slabs that devices send to themselves."""
        return tuple(
            (i, slab) for i, part in enumerate(self.exchanges) for slab in part.rounds
            if all(sender == receiver for sender, receiver in slab.pairs)
        )

    @property
    def messages(self) -> int:
        return len(self.travelling)

    @property
    def collectives(self) -> dict[str, int]:
        return {"collective-permute": self.messages} if self.messages else {}

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        dtypes = {t.dtype for t in operands}
        if len(dtypes) != 1:
            raise LoweringError(f"an exchange of slabs is of values of one element type, not of {sorted(dtypes)}")
        return tuple(_resized(t, part.dim, part.new) for part, t in zip(self.exchanges, operands, strict=True))

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        position = mesh.index(self.axes)
        out = np.zeros(mesh.size)
        for loads in self.travelling:
            away = [receiver for sender, receiver in pairs_of(loads) if sender != receiver]
            out += np.isin(position, away) * self._bytes(loads, operands)
        return out

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Return the serial bytes: permutes follow one another, and not all devices receive in each of them."""
        return self.serial_bytes(mesh, operands)

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return sum((self._bytes(loads, operands) for loads in self.travelling), 0.0)

    def staged(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Slabs that travel together are copied, that is read and written, once on either side.

        So is every load of a permute that devices send different loads in: all of them make all, and take their own.
        """
        return sum(
            (4 * len(loads) * self._bytes(loads, operands) for loads in self.travelling
             if len(loads) > 1 or len(loads[0]) > 1),
            0.0,
        )

    @property
    def hops(self) -> int:
        count = len(self.exchanges[0].offsets)
        apart = ({abs(receiver - sender) for sender, receiver in pairs_of(loads)} for loads in self.travelling)
        return sum(max(min(distance, count - distance) for distance in distances) for distances in apart)

    def _bytes(self, loads: Loads, operands: tuple[TensorType, ...]) -> float:
        """Return the bytes of one collective-permute: its longest load, to which the others are padded."""
        return float(max(
            sum(_resized(operands[i], self.exchanges[i].dim, slab.width).bytes for i, slab in load) for load in loads
        ))


@dataclass(frozen=True, slots=True)
class HaloExchange(WindowExchange):
    """`Crop`, then slabs from other devices along ``over`` are put where the new shard lacks them.

    Each round sends equal slabs within every group along ``over``; devices of a group are numbered by their position
    in it. Rounds between different devices share a collective-permute, the narrower slabs filled up.
    """

    dim: int
    over: tuple[str, ...]
    new: int
    offsets: tuple[int, ...]
    rounds: tuple[Slab, ...]

    @property
    def exchanges(self) -> tuple[HaloExchange, ...]:
        return (self,)

    @property
    def travelling(self) -> tuple[Loads, ...]:
        alone = super(HaloExchange, self).travelling
        if len(alone) < 2:
            return alone

        def width(loads: Loads) -> int:
            return sum(slab.width for _, slab in loads[0])

        shared: list[Loads] = []
        ends: list[tuple[set[int], set[int]]] = []  # who sends and who receives in each
        for loads in sorted(alone, key=width, reverse=True):
            senders, receivers = ({pair[end] for pair in pairs_of(loads)} for end in (0, 1))
            k = next((k for k, (sending, receiving) in enumerate(ends)
                      if sending.isdisjoint(senders) and receiving.isdisjoint(receivers)), None)
            if k is None:
                shared.append(loads)
                ends.append((senders, receivers))
            else:
                shared[k] += loads
                ends[k] = ends[k][0] | senders, ends[k][1] | receivers
        return tuple(shared) if len(shared) < len(alone) else alone

    @property
    def sides(self) -> dict[str, int]:
        """Indices received below and above what a device had, by the busiest device of each round."""
        out: Counter[str] = Counter()
        for slab in self.rounds:
            below = {slab.target_starts[r] < self.offsets[r] for _, r in slab.pairs}
            out["either side" if len(below) > 1 else "below" if True in below else "above"] += slab.width
        return {side: out[side] for side in ("below", "above", "either side") if out[side]}


@dataclass(frozen=True, slots=True)
class JointExchange(WindowExchange):
    """Exchanges of several values at once, one per operand. LoweringError unless all are over the same axes.

    ``shared``: the loads of each collective-permute, where devices do not all send slabs of the same values, or not
    to the same devices; they carry what the parts' rounds do but for what stays on its device. Empty: a permute for
    every list of pairs.
    """

    parts: tuple[HaloExchange, ...]
    shared: tuple[Loads, ...] = ()

    def __post_init__(self) -> None:
        over = {part.over for part in self.parts}
        if len(over) != 1:
            raise LoweringError(f"a joint exchange is along one list of axes, and not along {sorted(over)}")
        if self.shared:
            for loads in self.shared:
                pairs = pairs_of(loads)
                if len({s for s, _ in pairs}) < len(pairs) or len({r for _, r in pairs}) < len(pairs):
                    raise LoweringError(f"a device sends or receives two loads of one collective-permute: {pairs}")
            sent = Counter(m for loads in self.shared for load in loads for i, slab in load for m in moves_of(i, slab))
            if sent != Counter(m for i, part in enumerate(self.parts) for slab in part.rounds
                               for m in moves_of(i, slab)):
                raise LoweringError("the loads of a joint exchange are not what its parts send")

    @property
    def exchanges(self) -> tuple[HaloExchange, ...]:
        return self.parts

    @property
    def travelling(self) -> tuple[Loads, ...]:
        return self.shared or super(JointExchange, self).travelling

    @property
    def staying(self) -> Load:
        if not self.shared:
            return super(JointExchange, self).staying
        own = (
            (i, slab._replace(pairs=tuple((s, r) for s, r in slab.pairs if s == r)))
            for i, part in enumerate(self.parts) for slab in part.rounds
        )
        return tuple((i, slab) for i, slab in own if slab.pairs)


class Move(NamedTuple):
    """What one device sends to another of one operand: ``width`` rows, from and to where in their shards."""

    operand: int
    sender: int
    receiver: int
    source_start: int
    target_start: int
    width: int


def moves_of(operand: int, slab: Slab) -> list[Move]:
    """What the devices of a slab send to others."""
    return [
        Move(operand, s, r, slab.source_starts[s], slab.target_starts[r], slab.width) for s, r in slab.pairs if s != r
    ]


def pairs_of(loads: Loads) -> Pairs:
    """The senders and receivers of one collective-permute."""
    return tuple(chain.from_iterable(load[0][1].pairs for load in loads))


#: ``[devices]`` each: where ``[low, high)`` begins and ends in each device's shard.
Range = tuple[np.ndarray, np.ndarray]


class BoxSlab(NamedTuple):
    """A box of one shape in every shard, around what the shard holds of a box of global indices.

    starts: per dimension where it begins, ``[devices]``. ranges: what of it is in the box, along dimensions of that.
    """

    starts: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    ranges: dict[int, Range]


@dataclass(frozen=True, slots=True)
class BoxSelect(Action):
    """Select the first operand inside a box of global indices and the second outside it.

    box: per dimension (dimension, its window, start, stop); the shard at position p along the window's axes begins at
    global index ``p * tile + low``. Windows are not wrapped: there an index lies both inside and outside the tensor.
    Both operands have the result's local type; the second may be a scalar.
    """

    box: tuple[tuple[int, Dim, int, int], ...]
    kind: ClassVar[str] = "select"

    def __post_init__(self) -> None:
        for dim, window, start, stop in self.box:
            if window.wrapped:
                raise LoweringError(
                    f"[{start}, {stop}) of dimension {dim} is no range of the wrapped window {window}; compute the op "
                    "at a window that is not wrapped"
                )

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0],)

    def touched(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """What a slab has of both operands, and is written over the second, if it is no new array."""
        slab = self.slab(mesh, *operands)
        return Action.touched(self, mesh, operands) if slab is None else 3.0 * operands[0].with_shape(slab.shape).bytes

    def ranges(self, mesh: Mesh) -> dict[int, Range]:
        """By dimension which indices of each device's shard are in the box."""
        return {dim: local_range(mesh, window, start, stop) for dim, window, start, stop in self.box}

    def slab(self, mesh: Mesh, inside: TensorType, outside: TensorType) -> BoxSlab | None:
        """What is written over the second operand; None if that is nothing, over half of it, or of a scalar."""
        if outside != inside:
            return None
        ranges = self.ranges(mesh)
        if not np.logical_and.reduce([low < high for low, high in ranges.values()]).any():
            return None
        starts, shape = [np.zeros(mesh.size, int)] * inside.rank, list(inside.shape)
        for dim, (low, high) in ranges.items():
            shape[dim] = int((high - low).max())
            starts[dim] = np.minimum(low, inside.shape[dim] - shape[dim])
            ranges[dim] = low - starts[dim], high - starts[dim]
        slab = inside.with_shape(tuple(shape))
        return BoxSlab(tuple(starts), slab.shape, ranges) if 2 * slab.elements <= inside.elements else None


@dataclass(frozen=True, slots=True)
class EdgeFill(Action):
    """What a shard holds outside the tensor along ``dim``, of global size ``size``, is filled from the tensor's ends.

    ``mode`` as in `numpy.pad`: ``edge`` repeats the end, ``reflect`` mirrors at the end element, ``symmetric`` mirrors
    beyond it. The window is not wrapped, and every shard with elements both in and outside the tensor holds those that
    its outside repeats. What would be mirrored twice stays unspecified, and so do shards wholly outside the tensor.
    """

    dim: int
    window: Dim
    size: int
    mode: str
    kind: ClassVar[str] = "edge"

    def __post_init__(self) -> None:
        if self.window.wrapped:
            raise LoweringError(f"nothing of the wrapped window {self.window} lies outside the tensor to be filled")
        if self.mode not in EDGE_MODES:
            raise LoweringError(f"the mode {self.mode!r} fills no edges; there are {', '.join(EDGE_MODES)}")

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands


def local_range(mesh: Mesh, window: Dim, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """``[devices]`` each: where in its shard a device finds global indices ``[start, stop)``, clipped to the shard."""
    first = mesh.index(window.axes) * window.tile + window.low
    low: np.ndarray = np.clip(start - first, 0, window.size)
    return low, np.maximum(low, np.clip(stop - first, 0, window.size))


def _resized(type_: TensorType, dim: int, size: int) -> TensorType:
    shape = list(type_.shape)
    shape[dim] = size
    return type_.with_shape(tuple(shape))
