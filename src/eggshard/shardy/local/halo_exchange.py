"""Computation of one op on shards that fetch the rows they need from neighbours.

The body is manual over all axes of the mesh. Along each dimension it first selects what the op needs of the tensor,
then collective-permutes these rows (`redistribution`); everything outside the tensor is the op's padding value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from eggshard.program.mesh import Mesh
from eggshard.program.sharding import atoms, gather_cuts
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text
from eggshard.shardy.local.emission import Devices, filled, padded, sliced, within, zero
from eggshard.shardy.local.redistribution import Held, Piece, Wanted, mirrored, redistribution
from eggshard.shardy.module import ShardyModule, create, shape


class Grid(NamedTuple):
    """A dimension of ``size`` indices in ``shards`` equal tiles; the last ones may lie partly or wholly behind it."""

    axes: tuple[str, ...]
    shards: int
    size: int

    @property
    def tile(self) -> int:
        return -(-self.size // self.shards)

    def held(self) -> Held:
        """What devices hold."""
        starts = tuple(d * self.tile for d in range(self.shards))
        highs = tuple(min(start + self.tile, self.size) for start in starts)
        return Held(starts, self.tile, tuple(min(s, h) for s, h in zip(starts, highs, strict=True)), highs)


@dataclass
class Shards:
    """Shards of a tensor within the body, and what of each dimension they hold."""

    value: Any
    grids: list[Grid]


@dataclass(frozen=True)
class Window:
    """What a device needs of an operand dimension: result index o needs ``size`` indices from ``o * stride - low`` on.

    They count in the operand with ``interior`` elements between any two of its own.
    """

    low: int
    size: int = 1
    stride: int = 1
    interior: int = 0


class Exchange:
    """Ops that fetch rows along one dimension after another."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices

    def assembled(
        self, sources: Sequence[tuple[Any, Held]], dim: int, grid: Grid, wanted: Wanted, fill: Any
    ) -> Any:
        """The new buffer: what it wants of each source's rows; where none has them ``fill``, unspecified if None."""
        by_value: dict[Any, list[Held]] = {}
        for value, held in sources:
            by_value.setdefault(value, []).append(held)
        slabs = [(self._slab(value, dim, grid, piece), piece)
                 for value, several in by_value.items() for piece in redistribution(several, wanted)]
        like = sources[0][0]
        joined = self._joined(slabs, dim, wanted.size)
        if joined is not None:
            return self._only(joined, dim, grid, [piece for _, piece in slabs], fill)
        sizes = list(shape(like))
        sizes[dim] = wanted.size
        out = None
        if fill is not None or not slabs:
            out = filled(like, sizes, zero(like) if fill is None else fill)
        for slab, piece in slabs:
            placed = self.devices.placed(slab, dim, grid.axes, piece.places, wanted.size, zero(slab))
            out = placed if out is None else self._chosen(placed, out, dim, grid, piece.lows, piece.highs)
        return out

    def _slab(self, value: Any, dim: int, grid: Grid, piece: Piece) -> Any:
        slab = self.devices.cut(value, dim, grid.axes, piece.sends, piece.width)
        return self.devices.moved(slab, [(grid.axes, piece.pairs)]) if piece.pairs else slab

    def _joined(self, slabs: list[tuple[Any, Piece]], dim: int, size: int) -> Any:
        """The slabs side by side, if each lies at one place on all devices and no two overlap."""
        if any(piece.place is None for _, piece in slabs) or not slabs:
            return None
        parts, end = [], 0
        for slab, piece in sorted(slabs, key=lambda pair: pair[1].place or 0):
            place = piece.place or 0
            low, high = max(place, 0), min(place + piece.width, size)
            if low < end:
                return None
            parts.append(padded(sliced(slab, dim, low - place, high - place), dim, low - end, 0, 0, zero(slab)))
            end = high
        parts[-1] = padded(parts[-1], dim, 0, size - end, 0, zero(parts[-1]))
        return stablehlo.concatenate(parts, dim) if len(parts) > 1 else parts[0]

    def _only(self, x: Any, dim: int, grid: Grid, pieces: list[Piece], fill: Any) -> Any:
        """The buffer with ``fill`` where no piece gives anything."""
        if fill is None:
            return x
        takers = [[p for p in pieces if p.lows[d] < p.highs[d]] for d in range(grid.shards)]
        lows = [min((p.lows[d] for p in takers[d]), default=0) for d in range(grid.shards)]
        highs = [max((p.highs[d] for p in takers[d]), default=0) for d in range(grid.shards)]
        assert all(sum(p.highs[d] - p.lows[d] for p in takers[d]) == highs[d] - lows[d] for d in range(grid.shards))
        return self._chosen(x, filled(x, shape(x), fill), dim, grid, lows, highs)

    def _chosen(self, x: Any, other: Any, dim: int, grid: Grid, lows: Sequence[int], highs: Sequence[int]) -> Any:
        """x from ``lows`` up to ``highs``, the other elsewhere."""
        mask = self._inside(shape(x), dim, grid, lows, highs)
        return x if mask is None else stablehlo.select(mask, x, other)

    def _inside(self, sizes: Sequence[int], dim: int, grid: Grid, lows: Sequence[int], highs: Sequence[int]) -> Any:
        """Which elements have an index from ``lows`` up to ``highs``; None for all."""
        low = self.devices.number(grid.axes, lows) if any(lows) else None
        high = self.devices.number(grid.axes, highs) if any(h != sizes[dim] for h in highs) else None
        return None if low is None and high is None else within(sizes, dim, low, high)

    # -- what ops need along one dimension ---------------------------------------------------------------------------

    def windows(self, x: Shards, dim: int, result: Grid, window: Window, fill: Any, exact: bool) -> None:
        """Make x the indices that windows of the result's tile need, in the operand with elements between its own.

        exact: travel without what lies outside of the tensor, for other dimensions that are exchanged after this one.
        """
        grid, step = x.grids[dim], window.interior + 1
        length = (result.tile - 1) * window.stride + window.size
        firsts = [d * result.tile * window.stride - window.low for d in range(grid.shards)]
        begins = [-(-first // step) for first in firsts]
        ends = [max(b, (first + length - 1) // step + 1) for b, first in zip(begins, firsts, strict=True)]
        clipped = [(max(0, b), min(grid.size, e)) for b, e in zip(begins, ends, strict=True)]
        size = max(1, max(e - b for b, e in clipped))
        whole = max(e - b for b, e in zip(begins, ends, strict=True))
        if exact and size < whole:
            begins = [min(max(0, b), max(0, grid.size - 1)) for b in begins]
        else:
            size = max(1, whole)
        buffer = self.assembled([(x.value, grid.held())], dim, grid, Wanted(tuple(begins), size), fill)
        places = [b * step - first for b, first in zip(begins, firsts, strict=True)]
        # Where nothing of the buffer is needed, it may lie anywhere behind the window.
        places = [place if -(size - 1) * step - 1 < place < length else length for place in places]
        x.value = self.devices.placed(buffer, dim, grid.axes, places, length, fill, window.interior)
        x.grids[dim] = result

    def strided(self, x: Shards, dim: int, result: Grid, start: int, stride: int) -> None:
        """Make x ``x[start::stride]``, as far as the result's tiles reach. Only these indices travel."""
        grid = x.grids[dim]
        skipped = [(start - d * grid.tile) % stride for d in range(grid.shards)]
        rows = -(-grid.tile // stride)
        value = x.value
        if stride > 1:
            slack = max(0, max(skipped) + (rows - 1) * stride + 1 - grid.tile)
            value = padded(value, dim, 0, slack, 0, zero(value))
            value = self.devices.cut(value, dim, grid.axes, skipped, (rows - 1) * stride + 1)
            value = sliced(value, dim, 0, shape(value)[dim], stride)
        starts, lows, highs = [], [], []
        for d, skip in enumerate(skipped):
            begin = (d * grid.tile + skip - start) // stride
            stop = -(-(min((d + 1) * grid.tile, grid.size) - start) // stride)
            starts.append(begin)
            lows.append(max(0, begin))
            highs.append(max(lows[-1], min(stop, result.size)))
        self._taken(x, value, dim, result, Held(tuple(starts), rows, tuple(lows), tuple(highs)))

    def reversed(self, x: Shards, dims: Sequence[int]) -> None:
        """Make x run backwards along some dimensions at once: what moves along several of them moves once."""
        sharded = [d for d in dims if x.grids[d].shards > 1]
        value = stablehlo.reverse(x.value, list(dims))
        rounds = []
        for d in sharded:
            grid = x.grids[d]
            starts = tuple(grid.size - (p + 1) * grid.tile for p in range(grid.shards))
            highs = tuple(max(0, start + grid.tile) for start in starts)
            held = Held(starts, grid.tile, tuple(min(max(0, s), h) for s, h in zip(starts, highs, strict=True)), highs)
            rounds.append(mirrored(held, wanted(grid)))
        out = None
        for pieces in itertools.product(*rounds):
            slab, mask = value, None
            for d, piece in zip(sharded, pieces, strict=True):
                slab = self.devices.cut(slab, d, x.grids[d].axes, piece.sends, piece.width)
            links = [(x.grids[d].axes, piece.pairs) for d, piece in zip(sharded, pieces, strict=True)]
            slab = self.devices.moved(slab, links)
            for d, piece in zip(sharded, pieces, strict=True):
                grid = x.grids[d]
                slab = self.devices.placed(slab, d, grid.axes, piece.places, grid.tile, zero(slab))
                inside = self._inside(shape(x.value), d, grid, piece.lows, piece.highs)
                if inside is not None:
                    mask = inside if mask is None else stablehlo.and_(mask, inside)
            out = slab if out is None or mask is None else stablehlo.select(mask, slab, out)
        x.value = value if out is None else out

    def _taken(self, x: Shards, value: Any, dim: int, result: Grid, held: Held) -> None:
        x.value = self.assembled([(value, held)], dim, result, wanted(result), None)
        x.grids[dim] = result

    def concatenated(
        self, parts: Sequence[Shards], cuts: Sequence[tuple[int, int]], dim: int, result: Grid
    ) -> Any:
        """Rows ``start`` up to ``limit`` of each part, one behind the other."""
        sources, offset = [], 0
        for part, (start, limit) in zip(parts, cuts, strict=True):
            held, shift = part.grids[dim].held(), offset - start
            lows, highs = (tuple(min(max(c, start), limit) + shift for c in row) for row in (held.lows, held.highs))
            sources.append((part.value, Held(tuple(c + shift for c in held.starts), held.size, lows, highs)))
            offset += limit - start
        return self.assembled(sources, dim, result, wanted(result), None)


def wanted(grid: Grid) -> Wanted:
    """The tiles of a dimension."""
    return Wanted(tuple(d * grid.tile for d in range(grid.shards)), grid.tile)


def grids(mesh: Mesh, sharding: TensorSharding, sizes: Sequence[int]) -> list[Grid]:
    """The dimensions of a tensor, on a mesh that is refined at the sharding's cuts."""
    named = [atoms(axes, mesh) for axes in sharding.axes]
    return [Grid(axes, mesh.count(axes), n) for axes, n in zip(named, sizes, strict=True)]


def refined(mesh: Mesh, shardings: Sequence[TensorSharding]) -> Mesh:
    """The mesh whose axes are the pieces that these shardings use."""
    return mesh.refined(gather_cuts([s.sharding for s in shardings], mesh))


def is_outermost(op: Any) -> bool:
    """Whether no axes are manual where an op stands, so that a computation over all axes can."""
    while op is not None and op.name != "func.func":
        if op.name == "sdy.manual_computation":
            return False
        op = op.parent.operation if op.parent else None
    return True


Body = Callable[[Exchange, list[Shards]], Sequence[Any]]
#: Types of tensors and their shardings.
Typed = Sequence[tuple[Any, TensorSharding]]


def on_shards(
    module: ShardyModule, channel: Iterator[int], operands: Sequence[tuple[Any, TensorSharding]], results: Typed,
    body: Body, before: Any,
) -> list[Any]:
    """The results of a computation on shards: operands with their shardings, and the results' types and shardings.

    body: from the operands' shards to those of the results. Uneven tensors are padded to equal shards before, and
    cut to their size behind it. All shardings are on one mesh.
    """
    mesh = module.mesh(results[0][1])
    fine = refined(mesh, [s for _, s in (*operands, *results)])

    def local_type(type_: Any, sharding: TensorSharding, tiles: bool) -> Any:
        type_ = ir.RankedTensorType(type_)
        dims = grids(fine, sharding, type_.shape)
        return ir.RankedTensorType.get([g.tile if tiles else g.tile * g.shards for g in dims], type_.element_type)

    with ir.InsertionPoint(before):
        inputs = [evened(module, x, sharding, local_type(x.type, sharding, False)) for x, sharding in operands]
    op = manual_computation(
        mesh, inputs, [s for _, s in operands], [local_type(*result, False) for result in results],
        [s for _, s in results], before)
    block = op.regions[0].blocks.append(*(local_type(x.type, s, True) for x, s in operands))
    with ir.InsertionPoint(block):
        shards = [Shards(argument, grids(fine, s, shape(x)))
                  for argument, (x, s) in zip(block.arguments, operands, strict=True)]
        sdy.ReturnOp(list(body(Exchange(Devices(fine, channel)), shards)))
    for unused in reversed(list(block.operations)[:-1]):
        if not any(list(result.uses) for result in unused.results):
            unused.operation.erase()
    with ir.InsertionPoint(before):
        return [trimmed(module, x, type_, s) for x, (type_, s) in zip(op.results, results, strict=True)]


def manual_computation(
    mesh: Mesh, operands: Sequence[Any], ins: Sequence[TensorSharding], types: Sequence[Any],
    outs: Sequence[TensorSharding], at: Any,
) -> Any:
    """A new manual computation over all axes of a mesh, from operands with these shardings to results of these types
    and shardings; its region is empty."""
    attributes = {
        "in_shardings": per_value_text(ins), "out_shardings": per_value_text(outs),
        "manual_axes": sdy.ManualAxesAttr.get([ir.StringAttr.get(name) for name in mesh.axes]),
    }
    return create("sdy.manual_computation", operands, types, attributes, at, regions=1)


def evened(module: ShardyModule, x: Any, sharding: TensorSharding, type_: Any) -> Any:
    """A tensor with zeros behind it up to the size of a type."""
    edges = [total - n for total, n in zip(type_.shape, shape(x), strict=True)]
    if not any(edges):
        return x
    out = stablehlo.pad(x, zero(x), [0] * len(edges), edges, [0] * len(edges))
    module.set_sharding(out, sharding)
    return out


def trimmed(module: ShardyModule, x: Any, type_: Any, sharding: TensorSharding) -> Any:
    """The first elements of a tensor, as many as the type has."""
    sizes = list(ir.RankedTensorType(type_).shape)
    if sizes == list(shape(x)):
        return x
    out = stablehlo.slice(x, [0] * len(sizes), sizes, [1] * len(sizes))
    module.set_sharding(out, sharding)
    return out
