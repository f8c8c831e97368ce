"""Writes what devices hold as global tensors: roots are cut, put together, padded and repeated as the indices say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from eggshard.frontends.globalization.lines import Line
from eggshard.frontends.globalization.local_values import (
    FILL,
    UNKNOWN,
    Cut,
    Dim,
    Local,
    Unreadable,
    layout,
    tiled,
    uniform,
    with_units,
)
from eggshard.frontends.normalization.index_maps import runs_of
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType

#: Parts of which one dimension of a global tensor is put together at most.
_MOST_PARTS = 6


class GlobalWriter(RegionBuilder):
    """Builds a region of ops on global tensors. Equal ops are one. ``location`` is stated for what is written."""

    def __init__(self, mesh: Mesh, input_types: Sequence[TensorType] = ()):
        super().__init__(input_types)
        self.mesh, self.location = mesh, ""
        self._made: dict[object, tuple[int, ...]] = {}

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        key = name, tuple(operands), attributes, regions
        if key not in self._made:
            self._made[key] = self.add(name, operands, attributes, regions, location=self.location)
        return self._made[key]

    def literal(self, root: int) -> np.ndarray | None:
        """A constant's array; None for other tensors."""
        op = next((op for op in self.ops if op.name == "constant" and op.results == (root,)), None)
        return None if op is None else op.attributes["value"].array

    def length(self, value: Local, source: int | None) -> int:
        """The size of a value's roots along a dimension of theirs, all together where they follow each other in it."""
        if source is None:
            return 1
        sizes = [self.type_of(root).shape[source] for root in value.roots]
        return sum(sizes) if source == value.along else sizes[0]

    def aligned(self, value: Local, cuts: Sequence[Cut]) -> Local:
        """The value as one global tensor with all its dimensions, which are cut into tiles in their order."""
        value = self.settled(value)
        if value.hidden:
            raise Unreadable("devices hold different elements along no dimension")
        lines = [Line.of(cut, self.mesh.count(cut.axes), d.size) for d, cut in zip(value.dims, cuts, strict=True)]
        at = [None if d.source is None else layout(d, line.cut, line.devices, self.length(value, d.source))
              for d, line in zip(value.dims, lines, strict=True)]
        root = self.cut(value, dict(enumerate(at)), [line.size for line in lines])
        dims = [line.dim(i, d.size) for i, (d, line) in enumerate(zip(value.dims, lines, strict=True))]
        return Local((root,), tuple(dims))

    def solid(self, value: Local) -> Local:
        """The value with a dimension in its roots for each of its own."""
        return value if all(d.source is not None for d in value.dims) else self.aligned(value, value.cuts)

    def in_one(self, value: Local) -> Local:
        """The value with one root."""
        return replace(value, roots=(self.concatenate(value.roots, value.along),), along=0)

    def filled_by(self, value: Local, fill: int) -> Local:
        """The value with this fill or none: another one is made a tensor."""
        where = value.filled
        if value.fill == fill or not where:
            return replace(value, fill=value.fill if where else None)
        if len(where) > 1 or value.hidden:
            return self.aligned(value, value.cuts)
        (d,) = where
        dim, source = value.dims[d], value.dims[d].source
        if source is None or len(value.roots) > 1 and value.along != source:
            return self.aligned(value, value.cuts)
        shape = self.type_of(value.roots[0]).shape
        number = self.broadcast(_known(value.fill), (*shape[:source], 1, *shape[source + 1 :]))
        index = np.where(dim.index == FILL, self.length(replace(value, along=source), source), dim.index)
        return replace(value.with_dim(d, dim.at(index)), roots=(*value.roots, number), along=source, fill=None)

    def settled(self, value: Local) -> Local:
        """The value without hidden dimensions of which all devices hold the same element."""
        gone: dict[int | None, np.ndarray] = {
            h.source: np.where(h.index[0] == UNKNOWN, 0, h.index[0])
            for h in value.hidden if h.source is not None and not h.axes}
        hidden = tuple(h for h in value.hidden if h.axes)
        if not gone:
            return replace(value, hidden=hidden)
        if value.fill is not None and any((index == FILL).any() for index in gone.values()):
            raise Unreadable("a dimension of fill alone is dropped")
        roots = self._picked(value, gone)
        left = [d for d in range(self.type_of(roots[0]).rank) if d not in gone]
        shapes = [self.type_of(root).shape for root in roots]
        roots = [self.reshape(r, [shape[d] for d in left]) for r, shape in zip(roots, shapes, strict=True)]
        place: dict[int | None, int] = {d: n for n, d in enumerate(left)}

        def moved(dim: Dim) -> Dim:
            return replace(dim, source=place.get(dim.source))

        return replace(value, roots=tuple(roots), along=place.get(value.along, 0),
                       dims=tuple(map(moved, value.dims)), hidden=tuple(map(moved, hidden)))

    def reshaped(self, value: Local, shape: Sequence[int]) -> Local:
        """The value in another shape. Dimensions that are merged or split are those of whole tiles, cut along the first
        of them alone; others stay as they are."""
        if [n for n in value.shape if n != 1] == [n for n in shape if n != 1]:
            return with_units(value, shape)
        value = self.aligned(value, value.cuts)
        cuts = [Cut()] * len(shape)
        for before, after in _groups(value.shape, shape):
            cut = [d for d in before if value.dims[d].axes]
            first = next((d for d in before if value.shape[d] != 1), -1)
            if cut and (cut != [first] or value.dims[first].cut.stride != value.shape[first]):
                raise Unreadable("it merges or splits a dimension that is cut, and not along the first part")
            if cut:
                leading = next(d for d in after if shape[d] != 1)
                cuts[leading] = Cut(value.dims[first].axes, shape[leading])
        counts = [self.mesh.count(cut.axes) for cut in cuts]
        root = self.reshape(value.roots[0], [n * k for n, k in zip(shape, counts, strict=True)])
        lines = [Line.of(cut, k, n) for cut, k, n in zip(cuts, counts, shape, strict=True)]
        return Local((root,), tuple(line.dim(d, n) for d, (line, n) in enumerate(zip(lines, shape, strict=True))))

    def spread(self, value: Local, rank: int, d: int, cut: Cut) -> Local:
        """What each device holds one or a tile of, along no dimension, as tiles of dimension d. rank: of what it meets,
        for which a scalar stands."""
        dims = value.dims or (uniform(1),) * rank
        tile = dims[d]
        fits = tile.size <= cut.stride if tile.source is None else tile.size == cut.stride
        if len(value.hidden) > 1 or tile.axes or not fits:
            raise Unreadable("a number of each device meets a tensor that is cut along the same axes")
        size = tile.size
        dims = tuple(uniform(cut.stride) if n == d and tile.source is None else dim for n, dim in enumerate(dims))
        value = replace(value, dims=dims)
        count = self.mesh.count(cut.axes)
        seen = value.exposed
        root = self.aligned(seen, seen.cuts).roots[0]
        order = [*range(1, d + 1), 0, *range(d + 1, rank + 1)]
        if order != sorted(order):
            root = self.op("transpose", root, permutation=tuple(order))
        shape = list(self.type_of(root).shape)
        root = self.reshape(root, [*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]])
        made = [Line.of(dim.cut, self.mesh.count(dim.axes), dim.size).dim(n, dim.size) for n, dim in enumerate(dims)]
        made[d] = tiled(d, cut.axes, count, cut.stride)
        made[d] = made[d].at(made[d].index[:, :size])
        return Local((root,), tuple(made))

    def cut(self, value: Local, at: Mapping[int, np.ndarray | None], sizes: Sequence[int]) -> int:
        """A global tensor with some of a value's dimensions, at these indices of its roots, and as large as ``sizes``
        where the value is the same along a dimension."""
        own = {d: index for d, index in at.items() if index is not None}
        sources = [value.dims[d].source for d in own]
        roots = self._picked(value, {value.dims[d].source: index for d, index in own.items()})
        (root,) = roots
        if set(sources) != set(range(self.type_of(root).rank)):
            raise Unreadable("it is of a tensor with further dimensions")
        order = tuple(s for s in sources if s is not None)
        if order != tuple(sorted(order)):
            root = self.op("transpose", root, permutation=order)
        return self.broadcast(root, tuple(sizes), [n for n, d in enumerate(at) if d in own])

    def _picked(self, value: Local, picked: Mapping[int | None, np.ndarray]) -> list[int]:
        """The elements at these indices of some dimensions of a value's roots, which become one if the dimension that
        they follow each other in is among them."""
        roots = list(value.roots)
        for source in sorted((s for s in picked if s is not None), key=lambda s: s != value.along):
            if source == value.along:
                roots = [self._put_together(roots, source, picked[source], value.fill)]
            else:
                roots = [self._put_together([r], source, picked[source], value.fill) for r in roots]
        return roots

    def _put_together(self, parts: Sequence[int], dim: int, index: np.ndarray, fill: int | None) -> int:
        """The elements at these indices of parts that follow each other in a dimension, and fill."""
        ends = np.cumsum([self.type_of(p).shape[dim] for p in parts])
        shape = self.type_of(parts[0]).shape
        part = np.where(index == FILL, FILL, np.searchsorted(ends, index, side="right"))
        edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(index)]
        blocks = list(zip(edges, edges[1:], strict=False))
        if len(blocks) > _MOST_PARTS:
            raise Unreadable(f"it is put together of {len(blocks)} parts")
        low, high = (b - a if part[a] == FILL else 0 for a, b in (blocks[0], blocks[-1]))
        made = []
        for a, b in blocks:
            if part[a] == FILL:
                inner = 0 < a and b < len(index) or len(blocks) == 1
                made += [self.broadcast(_known(fill), (*shape[:dim], b - a, *shape[dim + 1 :]))] if inner else []
                continue
            runs = runs_of(index[a:b] - (ends[part[a] - 1] if part[a] else 0))
            if runs is None or len(runs) > _MOST_PARTS:
                raise Unreadable("it is put together of many parts")
            made.append(self.picked(parts[part[a]], dim, runs))
        root = self.concatenate(made, dim)
        if len(blocks) == 1 or not (low or high):
            return root
        widths = {name: tuple(w if d == dim else 0 for d in range(len(shape)))
                  for name, w in (("edge_padding_low", low), ("edge_padding_high", high), ("interior_padding", 0))}
        return self.op("pad", root, _known(fill), **widths)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The fewest consecutive dimensions of two shapes that have as many elements as each other, of both."""
    groups, i, j = [], 0, 0
    while i < len(before) or j < len(after):
        left: list[int] = []
        right: list[int] = []
        a = b = 1
        while not left and not right or a != b:
            if i < len(before) and (a <= b or j == len(after)):
                a, i = a * before[i], i + 1
                left.append(i - 1)
            else:
                b, j = b * after[j], j + 1
                right.append(j - 1)
        groups.append((left, right))
    return groups


def _known(fill: int | None) -> int:
    if fill is None:
        raise Unreadable("it is filled with nothing")
    return fill
