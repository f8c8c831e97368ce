"""Local tensors of a per-device program as indices into global tensors, one dimension independently of the others.

Along a dimension with axes (x), the device at position c along x holds the elements ``index[c]`` of a global tensor's
dimension. Data movement changes indices only. A *layout* puts all devices' indices on one line again, position
``stride * c + j`` being element j of device c: it exists where devices that overlap there hold the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

#: An index of what is no element of the tensor, but the value's fill; and one of what nobody needs to know.
FILL, UNKNOWN = -1, -2


class Unreadable(Exception):
    """There is no global reading of an op; the message says why."""


class Cut(NamedTuple):
    """How a dimension is cut between devices: the axes along which they hold different elements, first major, and the
    elements from one tile to the next. Without axes all devices hold the same."""

    axes: tuple[str, ...] = ()
    stride: int = 0


@dataclass(frozen=True, eq=False)
class Dim:
    """A dimension of a local tensor. index: ``[devices along the cut's axes, elements]``, indices into dimension
    ``source`` of the roots; where source is None, what is held is the same along the dimension."""

    source: int | None
    index: np.ndarray
    cut: Cut = Cut()

    @property
    def axes(self) -> tuple[str, ...]:
        return self.cut.axes

    @property
    def size(self) -> int:
        return int(self.index.shape[1])

    @property
    def count(self) -> int:
        return int(self.index.shape[0])

    def at(self, index: np.ndarray) -> Dim:
        """The dimension with other indices."""
        return replace(self, index=index)

    def only(self, devices: np.ndarray) -> Dim:
        """The dimension of which nothing is needed on other devices."""
        return self.at(np.where(devices[:, None], self.index, UNKNOWN))

    def among(self, axes: tuple[str, ...], count: int) -> Dim:
        """The dimension seen as one that is cut along these axes; Unreadable if it is cut along others."""
        if self.axes not in ((), axes):
            raise Unreadable(f"a dimension is cut along {self.axes} and along {axes}")
        return self if self.count == count else self.at(np.repeat(self.index, count, 0))


def whole(source: int, size: int) -> Dim:
    """A dimension that all devices hold whole."""
    return Dim(source, np.arange(size)[None])


def tiled(source: int, axes: tuple[str, ...], count: int, tile: int) -> Dim:
    """A dimension that is cut into tiles."""
    return Dim(source, tile * np.arange(count)[:, None] + np.arange(tile), Cut(axes, tile))


def uniform(size: int) -> Dim:
    """A dimension along which everything is the same."""
    return Dim(None, np.zeros((1, size), np.int64))


@dataclass(frozen=True, eq=False)
class Local:
    """A local tensor. roots: global tensors, one after the other along dimension ``along``. fill: a global scalar, held
    where an index of some dimension is FILL. dims: one per dimension. hidden: dimensions of one element that devices
    hold and that the local tensor does not have."""

    roots: tuple[int, ...]
    dims: tuple[Dim, ...]
    hidden: tuple[Dim, ...] = ()
    along: int = 0
    fill: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(d.size for d in self.dims)

    def with_dim(self, d: int, dim: Dim) -> Local:
        return replace(self, dims=(*self.dims[:d], dim, *self.dims[d + 1 :]))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(d.cut for d in self.dims)

    @property
    def is_number(self) -> bool:
        """Whether it is one number, wherever it is held."""
        return not self.hidden and all(d.source is None for d in self.dims)

    @property
    def filled(self) -> set[int]:
        """The dimensions that have fill, counted from the first hidden one."""
        return {n for n, d in enumerate(self.all_dims) if (d.index == FILL).any()}

    @property
    def exposed(self) -> Local:
        """The value with its hidden dimensions before the others."""
        return replace(self, dims=self.all_dims, hidden=())

    @property
    def all_dims(self) -> tuple[Dim, ...]:
        return (*self.hidden, *self.dims)


def sliced(value: Local, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Local:
    """Some elements of each dimension; Unreadable where a stride does not divide a tile."""
    dims = []
    for dim, a, b, s in zip(value.dims, starts, limits, strides, strict=True):
        if dim.cut.stride % s:
            raise Unreadable(f"tiles of {dim.cut.stride} elements are sliced at strides of {s}")
        dims.append(Dim(dim.source, dim.index[:, a:b:s], Cut(dim.axes, dim.cut.stride // s)))
    if value.fill is not None and any((d.index == FILL).all() for d in dims):
        return Local((value.fill,), tuple(uniform(d.size) for d in dims))
    return replace(value, dims=tuple(dims))


def reversed_along(value: Local, dimensions: Iterable[int]) -> Local:
    """Dimensions whose order on each device is reversed."""
    for d in dimensions:
        value = value.with_dim(d, value.dims[d].at(value.dims[d].index[:, ::-1]))
    return value


def transposed(value: Local, permutation: Sequence[int]) -> Local:
    return replace(value, dims=tuple(value.dims[d] for d in permutation))


def padded(value: Local, fill: int, low: Sequence[int], high: Sequence[int]) -> Local:
    """Fill put around the elements of each device, or elements cut off where a width is negative.

    The value has a dimension in its roots for each of its own, and no other fill.
    """
    dims = []
    for dim, a, b in zip(value.dims, low, high, strict=True):
        index = dim.index[:, max(0, -a) : dim.size - max(0, -b)]
        dims.append(dim.at(np.pad(index, ((0, 0), (max(0, a), max(0, b))), constant_values=FILL)))
    return replace(value, dims=tuple(dims), fill=fill)


def with_units(value: Local, shape: Sequence[int]) -> Local:
    """Dimensions of one element dropped or added, so that the shape is this one.

    A dropped one is hidden; the next that is added is that one again, if devices hold different elements of it.
    """
    spare = [d for d in (*value.dims, *value.hidden) if d.size == 1 and d.source is not None]
    spare.sort(key=lambda d: not d.axes)
    rest = iter([d for d in value.dims if d.size != 1])
    dims = tuple(next(rest) if n != 1 else spare.pop(0) if spare else uniform(1) for n in shape)
    return replace(value, dims=dims, hidden=tuple(spare))


def broadcast(value: Local, shape: Sequence[int], mapping: Sequence[int]) -> Local:
    """The value repeated along further dimensions, and along those of one element."""
    spare = [d for d in value.hidden if d.axes]
    dims = [None if r in mapping or n != 1 or not spare else spare.pop(0) for r, n in enumerate(shape)]
    hidden = tuple(d for d in value.hidden if not d.axes or d in spare)
    for d, r in enumerate(mapping):
        dim = value.dims[d]
        if dim.size == shape[r]:
            dims[r] = dim
        elif dim.source is not None:
            dims[r] = dim.at(np.repeat(dim.index, shape[r], 1))
    found = (uniform(n) if d is None else d for d, n in zip(dims, shape, strict=True))
    return replace(value, dims=tuple(found), hidden=hidden)


def placed(value: Local, starts: Sequence[int], shape: Sequence[int]) -> Local:
    """The value as a box of a larger one, of which nothing else is needed."""
    dims = []
    for dim, a, n in zip(value.dims, starts, shape, strict=True):
        widths = (0, 0), (a, n - a - dim.size)
        dims.append(uniform(n) if dim.source is None else dim.at(np.pad(dim.index, widths, constant_values=UNKNOWN)))
    return replace(value, dims=tuple(dims))


def within(value: Local, box: Sequence[tuple[int, int]]) -> Local:
    """The elements [first, last) of each dimension."""
    dims = (dim.at(dim.index[:, a:b]) for dim, (a, b) in zip(value.dims, box, strict=True))
    return replace(value, dims=tuple(dims))


def forgotten(value: Local, needed: Sequence[np.ndarray]) -> Local:
    """The value without the indices of what is not needed."""
    return replace(value, dims=tuple(
        d if d.source is None or mask.all() else d.at(np.where(mask, d.index, UNKNOWN))
        for d, mask in zip(value.dims, needed, strict=True)))


def permuted(value: Local, sources: dict[tuple[str, ...], np.ndarray], zero: int) -> Local:
    """What devices receive: along each of the axes the one at position c what the one at ``sources[c]`` held, and zeros
    where that is FILL. The value has no other fill."""
    known = {d.axes for d in value.all_dims}
    if any((s == FILL).any() for axes, s in sources.items() if axes not in known):
        raise Unreadable("devices that hold the same receive it or zeros")

    def moved(dim: Dim) -> Dim:
        source = sources.get(dim.axes) if dim.axes else None
        if source is None:
            return dim
        index = np.where((source == FILL)[:, None], FILL, dim.index[source])
        return dim.at(index)

    dims, hidden = tuple(map(moved, value.dims)), tuple(map(moved, value.hidden))
    return replace(value, dims=dims, hidden=hidden, fill=zero)


class Pieces(NamedTuple):
    """Different roots of several values, one after the other along one dimension, and per value its indices there."""

    roots: tuple[int, ...]
    along: int
    places: tuple[np.ndarray, ...]


def gathered(values: Sequence[Local], d: int, size: Callable[[int, int], int]) -> Pieces:
    """What values that differ along dimension d alone have in common. size: of a root along a dimension of its."""
    first, along = values[0], values[0].dims[d].source
    if along is None or any(v.dims[d].source != along for v in values):
        raise Unreadable("its operands are constants, or of tensors in different orders")
    for value in values:
        others = [*zip(first.dims, value.dims, strict=True), *zip(first.hidden, value.hidden, strict=False)]
        if len(first.hidden) != len(value.hidden) or not all(
            alike(a, b) for i, (a, b) in enumerate(others) if i != d
        ):
            raise Unreadable("its operands lie differently along other dimensions")
        if len(value.roots) > 1 and value.along != along:
            raise Unreadable("its operands are put together along different dimensions")
    roots = tuple(dict.fromkeys(root for v in values for root in v.roots))
    sizes = {root: size(root, along) for root in roots}
    starts = dict(zip(roots, accumulate(sizes.values(), initial=0), strict=False))

    def renumbered(value: Local) -> np.ndarray:
        index = value.dims[d].index
        moved, before = index, 0
        for root in value.roots:
            inside = (index >= before) & (index < before + sizes[root])
            moved = np.where(inside, index - before + starts[root], moved)
            before += sizes[root]
        return moved

    return Pieces(roots, along, tuple(map(renumbered, values)))


def alike(a: Dim, b: Dim) -> bool:
    """Whether two dimensions hold elements of the same indices, as far as these are needed."""
    if (a.source, a.cut) != (b.source, b.cut) or a.index.shape != b.index.shape:
        return False
    return bool(((a.index == b.index) | (a.index == UNKNOWN) | (b.index == UNKNOWN)).all())


def as_fill(value: Local, like: Local, d: int, size: int) -> Local:
    """A number as fill of dimension d, of so many elements, of what is else like another value; other values as they
    are. Of a value without roots nothing is needed."""
    if not value.is_number:
        return value
    if not value.roots:
        return like.with_dim(d, like.dims[d].at(np.full((like.dims[d].count, size), UNKNOWN)))
    if like.dims[d].source is None or like.fill != value.roots[0] and like.filled - {d + len(like.hidden)}:
        raise Unreadable("a number meets what is filled with another one, or differs along no dimension")
    filled = like.dims[d].at(np.full((like.dims[d].count, size), FILL))
    return replace(like.with_dim(d, filled), fill=value.roots[0])


def layout(dim: Dim, cut: Cut, count: int, size: int) -> np.ndarray:
    """The index of each place on the line of all devices. count: devices along the cut's axes. size: the roots' along
    the dimension.

    Unreadable where devices that overlap disagree.
    """
    dim, stride = dim.among(cut.axes, count), cut.stride
    if dim.axes and dim.cut != cut:
        raise Unreadable(f"tiles of {dim.cut.stride} and of {stride} elements are combined")
    places = stride * np.arange(count)[:, None] + np.arange(dim.size)
    line = np.full((count - 1) * stride + max(dim.size, stride), UNKNOWN, np.int64)
    known = dim.index != UNKNOWN
    line[places[known]] = dim.index[known]
    if not np.array_equal(line[places[known]], dim.index[known]):
        raise Unreadable("devices hold different elements where they overlap")
    return _gone_on(line, size)


def _gone_on(line: np.ndarray, size: int) -> np.ndarray:
    """A line whose unknown places go on as the known ones before them, the first ones as those after them."""
    known = line != UNKNOWN
    if known.all() or not known.any():
        return line if known.any() else np.zeros_like(line)
    places = np.arange(len(line))
    first, last = int(np.argmax(known)), np.maximum.accumulate(np.where(known, places, -1))
    before = np.roll(line, 1)
    step = np.where(np.roll(known, 1) & (places > 0) & (before >= 0) & (line >= 0), line - before, 1)
    at = np.where(last < 0, first, last)
    on = (line[at] + np.where(last < 0, 1, step[at]) * (places - at)) % size
    return np.where(known, line, np.where(line[at] == FILL, FILL, on))
