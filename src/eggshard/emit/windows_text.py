"""Writer of steps on windows (shards with halos) as StableHLO text.

A shard is assembled along one dimension from what the device had and the halo regions that it receives. Where a part
covers the same rows on all devices that have it, as in a halo exchange, everything is static and the shard is one
concatenation; otherwise each device looks its rows up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from eggshard.emit.body_text import EMITTED, SCALAR, BodyText, Value, integers
from eggshard.placement.slabs import Slab
from eggshard.program.types import TensorType
from eggshard.steps.window_steps import (
    BoxSelect,
    Crop,
    EdgeFill,
    HaloExchange,
    Loads,
    Range,
    WindowExchange,
    pairs_of,
)


class _Part(NamedTuple):
    """Rows ``[start, stop)`` of a shard in the making.

    They are the rows from ``at`` on of a value (None: nothing yet), and matter on the positions ``known`` only.
    """

    start: int
    stop: int
    value: Value | None
    at: int
    known: frozenset[int]

    def cut(self, start: int, stop: int) -> _Part:
        """The rows of it that lie in a range."""
        start, stop = max(start, self.start), min(stop, self.stop)
        return self._replace(start=start, stop=stop, at=self.at + start - self.start)


class Strip(NamedTuple):
    """Rows ``[start, stop)`` of a shard, of which those from this device's limit on are outside a range, or, with
    ``outside_first``, those before it."""

    start: int
    stop: int
    limits: np.ndarray
    outside_first: bool

    @property
    def everywhere(self) -> bool:
        """Whether all of it is outside, on all devices."""
        size = self.stop - self.start
        return bool((self.limits >= size).all() if self.outside_first else (self.limits <= 0).all())


def strips_outside(size: int, low: np.ndarray, high: np.ndarray) -> list[Strip] | None:
    """The strips of so many rows that lie outside some device's range ``[low, high)``; None if they are over half."""
    first, last = int(low.max()), int(high.min())
    if first + size - last > size // 2:
        return None
    below = [Strip(0, first, low, True)] if first else []
    return below + ([Strip(last, size, high - last, False)] if last < size else [])


class WindowText(BodyText):
    """The body of a device program: steps on windows."""

    @EMITTED.handles(Crop)
    def _crop(self, action: Crop, operands: Sequence[Value]) -> list[Value]:
        """The old shard in a new one."""
        (x,) = operands
        return [self._joined(self._laid(x, action), action.dim, x.type)]

    @EMITTED.handles(WindowExchange)
    def _window_exchange(self, action: WindowExchange, operands: Sequence[Value]) -> list[Value]:
        """Each old shard in a new one, and what it lacks, received by collective-permutes."""
        got: list[list[tuple[Value, Slab]]] = [[] for _ in operands]
        for loads in action.travelling:
            sent = [[self._cut_slab(operands[i], action.exchanges[i], slab) for i, slab in load] for load in loads]
            arrived = self._permuted_loads(sent, loads, action.axes)
            for load, rows_of in zip(loads, arrived, strict=True):
                for (i, slab), rows in zip(load, rows_of, strict=True):
                    got[i].append((rows, slab))
        for i, slab in action.staying:
            got[i].append((self._cut_slab(operands[i], action.exchanges[i], slab), slab))
        out = []
        for x, part, pieces in zip(operands, action.exchanges, got, strict=True):
            parts = self._laid(x, part)
            for rows, slab in pieces:
                parts = self._put_slab(parts, x.type, rows, part, slab)
            out.append(self._joined(parts, part.dim, x.type))
        return out

    @EMITTED.handles(BoxSelect)
    def _box_select(self, action: BoxSelect, operands: Sequence[Value]) -> list[Value]:
        """The first operand inside a box of global indices, the second outside it, one dimension after the other.

        A small part of each shard is written over the second operand, which compilers do in place.
        """
        inside, outside = operands
        slab = action.slab(self.mesh, inside.type, outside.type)
        if slab is not None:
            corner = [self._unknown_start(starts) if n < m else self.integer(0)
                      for starts, n, m in zip(slab.starts, slab.shape, inside.type.shape, strict=True)]
            new, old = (self.dynamic_slice(x, corner, slab.shape) for x in operands)
            return [self.dynamic_update_slice(outside, self._in_ranges(new, old, slab.ranges), corner)]
        ranges = action.ranges(self.mesh)
        if any((low == high).all() for low, high in ranges.values()):
            return [outside if outside.type == inside.type else self.broadcast(outside, inside.type.shape)]
        return [self._in_ranges(inside, outside, ranges)]

    def _in_ranges(self, inside: Value, outside: Value, ranges: Mapping[int, Range]) -> Value:
        """The first value at this device's indices ``[low, high)`` of every dimension given, else the second."""
        out = inside
        for dim, (low, high) in ranges.items():
            out = self.within(out, dim, low, high, outside)
        return out

    @EMITTED.handles(EdgeFill)
    def _edge_fill(self, action: EdgeFill, operands: Sequence[Value]) -> list[Value]:
        """What lies beyond the tensor's ends, from the rows inside of them."""
        (x,) = operands
        dim, size = action.dim, action.window.size
        start = self.mesh.index(action.window.axes) * action.window.tile + action.window.low
        first, last = -start, action.size - 1 - start  # where in a shard the tensor's ends lie
        below, above = (first > 0) & (first < size) & (last >= 0), (last >= 0) & (last < size - 1) & (first < size)
        out = x
        if below.any():
            width = int(first[below].max())
            rows = self._beyond(x, action, below, width, first, 2 * first - width, 0)
            out = self.within(out, dim, np.where(below, first, 0), np.full_like(last, size), rows)
        if above.any():
            width = int((size - 1 - last)[above].max())
            rows = self._beyond(x, action, above, width, last, 2 * (last + 1) - size, size - width)
            out = self.within(out, dim, np.zeros_like(first), np.where(above, last + 1, size), rows)
        return [out]

    def within(self, x: Value, dim: int, low: np.ndarray, high: np.ndarray, other: Value) -> Value:
        """x where the index along a dimension lies in this device's range ``[low, high)``, elsewhere the other value.

        The other is a scalar, or of the same shape. Only what lies outside some device's range is selected and written
        back, where that is less than half: an index test per element of the whole would keep compilers from vector
        code for all that it is fused with.
        """
        shape = x.type.shape
        strips = strips_outside(shape[dim], low, high)
        if strips is None:
            conditions = [self._compared("GE", shape, dim, low)] if low.any() else []
            conditions += [self.below(shape, dim, high)] if (high < shape[dim]).any() else []
            if other.type != x.type:
                other = self.broadcast(other, shape)
            return self.select(reduce(lambda a, b: self.op("and", [a, b], a.type), conditions), x, other)
        for strip in strips:
            x = self.strip(x, shape, (0,) * len(shape), dim, strip, other, self.in_place)
        return x

    def strip(
        self, x: Value, shape: tuple[int, ...], at: tuple[int, ...], dim: int, strip: Strip, other: Value,
        in_place: bool = False,
    ) -> Value:
        """x with the other value in what of a strip is outside this device's range; the strip is one of a box of this
        shape that begins in x as stated, and so is the other value, unless it is a scalar.

        in_place: x is an array that nothing else reads, and the result is one, too.
        """
        starts, stops = [0] * len(shape), list(shape)
        starts[dim], stops[dim] = strip.start, strip.stop
        cut = tuple(b - a for a, b in zip(starts, stops, strict=True))
        rows = self.slice(other, starts, stops) if other.type.rank else self.broadcast(other, cut)
        corner = [self.integer(a + b) for a, b in zip(at, starts, strict=True)]
        if not strip.everywhere:
            if in_place:
                corner[dim] = self._unknown(at[dim] + strip.start)
            old = self.dynamic_slice(x, corner, cut)
            below = self.below(cut, dim, strip.limits)
            rows = self.select(below, *((rows, old) if strip.outside_first else (old, rows)))
        return self.dynamic_update_slice(x, rows, corner)

    def _unknown_start(self, starts: np.ndarray) -> Value:
        """This device's start; see `_unknown`."""
        first = int(starts[0])
        return self._unknown(first) if (starts == first).all() else self.per_device(starts)

    def _unknown(self, number: int) -> Value:
        """A number that XLA:CPU does not know when it compiles.

        An update of what a slice at the same starts has read is in place, and one kernel. With constants for starts
        the slice is a static one, of which XLA:CPU does not see that, and it copies the whole array.
        """
        if self.platform != "cpu" or self.mesh.size == 1:
            return self.integer(number)
        return self.op("add", [self.unknown_zero(), self.integer(number)], SCALAR)

    def below(self, shape: tuple[int, ...], dim: int, limits: np.ndarray) -> Value:
        """An i1 of this shape: whether the index along a dimension is below this device's limit."""
        return self._compared("LT", shape, dim, limits)

    def _compared(self, direction: str, shape: tuple[int, ...], dim: int, limits: np.ndarray) -> Value:
        line = (shape[dim],)
        iota = self.op("iota", (), TensorType(line, "i32"), "iota_dimension = 0 : i64")
        holds = self.compare(direction, iota, self.broadcast(self.per_device(limits), line))
        return holds if line == shape else self.broadcast(holds, shape, (dim,))

    def _beyond(
        self, x: Value, action: EdgeFill, devices: np.ndarray, width: int, end: np.ndarray, mirrored: np.ndarray,
        at: int,
    ) -> Value:
        """A shard whose rows from ``at`` on are what repeats beyond one end, on the devices given.

        ``end`` is where the end lies in each shard. ``mirrored`` is where the rows begin that are its mirror image in
        ``symmetric`` mode; the end itself is not repeated in ``reflect`` mode.
        """
        dim, shape = action.dim, x.type.shape
        taking = set(np.flatnonzero(devices).tolist())
        everyone = np.arange(self.mesh.size)
        if action.mode == "edge":
            row = self._rows(x, dim, end, everyone, taking, 1)
            line = self.reshape(row, (*shape[:dim], *shape[dim + 1 :]))
            return self.broadcast(line, shape, [d for d in range(len(shape)) if d != dim])
        if action.mode == "reflect":
            mirrored = mirrored + (1 if at == 0 else -1)
        used = mirrored[devices]
        low, high = max(0, -int(used.min())), max(0, int(used.max()) + width - shape[dim])
        rows = self._rows(self._padded(x, dim, low, high), dim, mirrored + low, everyone, taking, width)
        rows = self.op("reverse", [rows], rows.type, f"dimensions = {integers((dim,))}")
        return self._padded(rows, dim, at, shape[dim] - at - width)

    # Slabs that are sent and received.

    def _cut_slab(self, x: Value, action: HaloExchange, slab: Slab) -> Value:
        """What a device sends in a round."""
        position = self.mesh.index(action.over)
        starts = np.array(slab.source_starts)[position]
        return self._rows(x, action.dim, starts, position, [sender for sender, _ in slab.pairs], slab.width)

    def _permuted_loads(
        self, sent: Sequence[Sequence[Value]], loads: Loads, axes: tuple[str, ...]
    ) -> list[list[Value]]:
        """What arrives of the pieces of each load, in one collective-permute; devices send one of the loads."""
        pairs = self.mesh.groups(axes)[:, np.array(pairs_of(loads), int).reshape(-1, 2)].reshape(-1, 2)
        if len(sent) == 1 and len(sent[0]) == 1:
            return [[self.permute(sent[0][0], pairs)]]
        lines = [self.in_a_line(pieces) for pieces in sent]
        size = max(line.type.elements for line in lines)
        packed, *others = (self.resize(line, (size,)) for line in lines)
        position = self.mesh.index(axes)
        for line, load in zip(others, loads[1:], strict=True):
            packed = self.chosen(np.isin(position, [s for s, _ in load[0][1].pairs]), line, packed)
        packed = self.permute(packed, pairs)
        return [self.apart(packed, pieces) for pieces in sent]

    def in_a_line(self, pieces: Sequence[Value]) -> Value:
        """Values of one element type, one after the other in row-major order."""
        flat = [self.reshape(x, (x.type.elements,)) for x in pieces]
        if len(flat) == 1:
            return flat[0]
        size = sum(x.type.elements for x in flat)
        return self.op("concatenate", flat, flat[0].type.with_shape((size,)), "dimension = 0 : i64")

    def apart(self, line: Value, pieces: Sequence[Value]) -> list[Value]:
        """What stands in a line in the places of these values, in their shapes (`in_a_line`)."""
        ends = np.cumsum([x.type.elements for x in pieces]).tolist()
        return [self.reshape(self.slice(line, [end - x.type.elements], [end]), x.type.shape)
                for x, end in zip(pieces, ends, strict=True)]

    def _put_slab(
        self, parts: Sequence[_Part], type_: TensorType, rows: Value, action: HaloExchange, slab: Slab
    ) -> list[_Part]:
        """The parts of a shard with what a device received in a round; ``type_`` is the old shard's."""
        receivers = frozenset(receiver for _, receiver in slab.pairs)
        starts = {slab.target_starts[r] for r in receivers}
        if len(starts) == 1:
            return self._overlaid(parts, starts.pop(), rows, action, receivers)
        return self._put_rows(self._joined(parts, action.dim, type_), rows, action, slab)

    # Parts of a shard along one dimension.

    def _laid(self, x: Value, action: Crop | HaloExchange) -> list[_Part]:
        """The old shard in the new one."""
        old, new, offsets = x.type.shape[action.dim], action.new, np.array(action.offsets)
        nothing = _Part(0, new, None, 0, frozenset())
        kept = (offsets < new) & (offsets + old > 0)
        positions = frozenset(np.flatnonzero(kept).tolist())
        if not positions:
            return [nothing]
        used = offsets[kept]
        if used.min() == used.max():
            return self._overlaid([nothing], int(used[0]), x, action, positions)
        low, high = max(0, int(used.max())), max(0, new - old - int(used.min()))
        position = self.mesh.index(action.over)
        starts = low - np.where(kept, offsets, used.min())[position]
        rows = self._rows(self._padded(x, action.dim, low, high), action.dim, starts, position, positions, new)
        return [_Part(0, new, rows, 0, positions)]

    def _overlaid(
        self, parts: Sequence[_Part], start: int, value: Value, action: Crop | HaloExchange, positions: frozenset[int]
    ) -> list[_Part]:
        """Parts, overwritten from a row on by a value at some positions along the action's axes."""
        stop = start + value.type.shape[action.dim]
        over, out = _Part(start, stop, value, 0, positions), []
        for part in parts:
            if part.start < start:
                out.append(part.cut(part.start, start))
            if max(part.start, start) < min(part.stop, stop):
                new, old = over.cut(part.start, part.stop), part.cut(start, stop)
                if old.known <= positions:
                    out.append(new)
                else:
                    here = np.isin(self.mesh.index(action.over), list(positions))
                    rows = (self._taken(part, action.dim, value.type) for part in (new, old))
                    chosen = self.chosen(here, *rows)
                    out.append(_Part(new.start, new.stop, chosen, 0, old.known | positions))
            if part.stop > stop:
                out.append(part.cut(stop, part.stop))
        return [part for part in out if part.start < part.stop]

    def _put_rows(self, out: Value, piece: Value, action: HaloExchange, slab: Slab) -> list[_Part]:
        """The shard with a slab at rows that differ between devices."""
        position = self.mesh.index(action.over)
        starts = [self.integer(0)] * out.type.rank
        starts[action.dim] = self.per_device(np.array(slab.target_starts)[position])
        out = self.put(out, piece, starts, np.isin(position, [r for _, r in slab.pairs]))
        return [_Part(0, action.new, out, 0, frozenset(range(len(action.offsets))))]

    def _joined(self, parts: Sequence[_Part], dim: int, type_: TensorType) -> Value:
        """The shard; what no part fills is zero."""
        merged: list[_Part] = []
        for part in parts:
            last = merged[-1] if merged else None
            follows = last and (part.value is None or last.at + last.stop - last.start == part.at)
            if last and follows and last.value == part.value:
                merged[-1] = last._replace(stop=part.stop)
            else:
                merged.append(part)
        size, filled = parts[-1].stop, [part for part in merged if part.value is not None]
        if len(filled) == 1:
            only = filled[0]
            return self._padded(self._taken(only, dim, type_), dim, only.start, size - only.stop)
        pieces = [self._taken(part, dim, type_) for part in merged]
        if len(pieces) == 1:
            return pieces[0]
        return self.op("concatenate", pieces, _resized(type_, dim, size), f"dimension = {dim} : i64")

    def _taken(self, part: _Part, dim: int, type_: TensorType) -> Value:
        """A part's rows."""
        size = part.stop - part.start
        if part.value is None:
            return self.splat(_resized(type_, dim, size), "add")
        starts, limits = [0] * type_.rank, list(part.value.type.shape)
        starts[dim], limits[dim] = part.at, part.at + size
        return self.slice(part.value, starts, limits)

    def _padded(self, x: Value, dim: int, low: int, high: int) -> Value:
        """x with zeros before and after it along one dimension."""
        return self.pad(x, *([n if d == dim else 0 for d in range(x.type.rank)] for n in (low, high)))

    def _rows(
        self, x: Value, dim: int, starts: np.ndarray, position: np.ndarray, taking: Iterable[int], width: int
    ) -> Value:
        """Rows from each device's own start on; devices at positions that do not take any get some others."""
        takes = np.isin(position, list(taking))
        first = int(starts[takes][0])
        if (starts[takes] == first).all():
            return self._taken(_Part(0, width, x, first, frozenset()), dim, x.type)
        corner = [self.integer(0)] * x.type.rank
        corner[dim] = self.per_device(np.where(takes, starts, first))
        return self.dynamic_slice(x, corner, _resized(x.type, dim, width).shape)


def _resized(type_: TensorType, dim: int, size: int) -> TensorType:
    return type_.with_shape((*type_.shape[:dim], size, *type_.shape[dim + 1 :]))
