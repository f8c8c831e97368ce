"""Access maps of ops: which operand indices a result index needs, and the op on one window of its result.

An op that accesses neighbours (slice, pad, concatenate, convolution, ...) is computed on shards whose windows overlap
or are on a shifted grid. Along a windowed dimension a device computes result indices ``[start, stop)`` from exactly the
operand indices that they access. On shards, starts, paddings and offsets therefore vanish, except for the boundaries of
the tensors, which are boxes of global indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from eggshard.program.attributes import Attributes

if TYPE_CHECKING:
    from eggshard.program.placement import Dim


class Reach(NamedTuple):
    """The access offsets of an op: one result index reads operand places ``scale * j + first`` to ``scale * j + last``.

    j is the index along result dimension ``dim``, or, where ``mirrored``, minus that index. Operand index i is at place
    ``divisor * i``; the places between are holes. Indices outside the operand are not read (the op's form says what
    replaces them), or, where ``wrapped``, are taken modulo the operand's size.
    """

    dim: int
    first: int = 0
    last: int = 0
    scale: int = 1
    wrapped: bool = False
    mirrored: bool = False
    divisor: int = 1

    def elements(self, low: int, high: int) -> tuple[int, int]:
        """The operand indices ``[start, stop)`` that result indices ``[low, high)`` need, at least one."""
        start, stop = (-(-place // self.divisor) for place in self._places(low, high))
        return start, max(stop, start + 1)

    def edges(self, window: Dim) -> tuple[int, int]:
        """How many holes the shards of a window of the result need before and after their elements.

        Negative: as many places are skipped. It is the same for all shards: their tiles begin at elements.
        """
        high = window.tile + window.high
        (first, end), (start, stop) = self._places(window.low, high), self.elements(window.low, high)
        return self.divisor * start - first, end - self.divisor * (stop - 1) - 1

    def _places(self, low: int, high: int) -> tuple[int, int]:
        return self.scale * low + self.first, self.scale * (high - 1) + self.last + 1


class Window(NamedTuple):
    """What slides along one dimension: element k of the window of result index r is at ``r * stride + k * dilation``
    of the operand, after ``base_dilation - 1`` elements are put between its elements and padding around them."""

    size: int = 1
    stride: int = 1
    base_dilation: int = 1
    dilation: int = 1
    low: int = 0
    high: int = 0

    def result_size(self, n: int) -> int:
        """How many windows fit along a dimension of size n."""
        padded_size = self.low + (max(n - 1, 0) * self.base_dilation + 1 if n else 0) + self.high
        reach = (self.size - 1) * self.dilation + 1 if self.size else 0
        return max(0, (padded_size - reach) // self.stride + 1)

    @property
    def passes(self) -> bool:
        """Whether the windows are the elements, one by one."""
        return self == Window(dilation=self.dilation)

    @property
    def unpadded(self) -> Window:
        """The window on an operand that has its padding already."""
        return self._replace(low=0, high=0, base_dilation=1)

    @property
    def edges(self) -> tuple[int, int, int]:
        """(low, high, interior) padding."""
        return self.low, self.high, self.base_dilation - 1

    def reach(self, dim: int, n: int) -> Reach | None:
        """What of an operand dimension of size n an index of result dimension ``dim`` needs; None if it passes.

        None, too, where windows span more than half of the dimension: then even the one of two devices would need all
        that the other one holds.
        """
        span = (self.size - 1) * self.dilation
        if self.passes or self.size == 0 or 2 * span > n * self.base_dilation:
            return None
        return Reach(dim, -self.low, span - self.low, self.stride, divisor=self.base_dilation)

    def summed_reach(self, dim: int, n: int, results: int) -> Reach | None:
        """What of an operand dimension of size n an element of the window, at ``dim`` of what slides, meets in all of
        the ``results``; None where `reach` says more, or where these span more than half of the dimension."""
        span = (results - 1) * self.stride
        if min(self.size, n) < 2 or not results or 2 * span > n * self.base_dilation or self.reach(dim, n) is not None:
            return None
        return Reach(dim, -self.low, span - self.low, self.dilation, divisor=self.base_dilation)


def padding_on_windows(
    windows: Sequence[tuple[Window, int, int, int]], windowed: Windowed
) -> tuple[tuple[tuple[int, int], ...], Box]:
    """The (low, high) padding of windows on shards, and the box of the operand around which there is padding instead.

    windows: with each the operand's dimension, its size, and the result's dimension.
    """
    widths, box = [], []
    for window, dim, n, result in windows:
        edges, reach = (window.low, window.high), window.reach(result, n)
        if result in windowed and max(edges) > 0:
            box.append((dim, 0, n))
        widths.append(reach.edges(windowed[result]) if reach is not None and result in windowed else edges)
    return tuple(widths), tuple(box)


#: The result dimensions that are computed through reaches, and the window of each.
Windowed: TypeAlias = "Mapping[int, Dim]"

#: Per operand and dimension its reach; None where the dimension has no counterpart, or none with a window.
Reaches = tuple[tuple[Reach | None, ...], ...]

#: (dimension, start, stop): a half-open range of global indices along a dimension. Dimensions left out are whole.
Box = tuple[tuple[int, int, int], ...]


#: The fills that repeat an operand's own elements, as `numpy.pad` names them.
EDGE_MODES = ("edge", "reflect", "symmetric")


def repeated_index(index: np.ndarray, size: int, mode: str) -> np.ndarray:
    """The index inside a dimension of this size whose element stands at ``index``, at most one size beyond its ends.

    >>> repeated_index(np.arange(-2, 5), 3, "edge").tolist()
    [0, 0, 0, 1, 2, 2, 2]
    >>> repeated_index(np.arange(-2, 5), 3, "reflect").tolist()
    [2, 1, 0, 1, 2, 1, 0]
    >>> repeated_index(np.arange(-2, 5), 3, "symmetric").tolist()
    [1, 0, 0, 1, 2, 2, 1]
    """
    if mode == "edge":
        nearest: np.ndarray = np.clip(index, 0, size - 1)
        return nearest
    skipped = 1 if mode == "reflect" else 0
    return np.where(index < 0, skipped - 1 - index, np.where(index < size, index, 2 * size - 1 - skipped - index))


class Run(NamedTuple):
    """``length`` indices from ``start`` on, ``step`` apart."""

    start: int
    step: int
    length: int

    @property
    def bounds(self) -> tuple[int, int, int]:
        """The (start, limit, stride) of a slice that holds the run's indices in ascending order."""
        last = self.start + (self.length - 1) * self.step
        return min(self.start, last), max(self.start, last) + 1, max(abs(self.step), 1)

    @property
    def inside(self) -> Run:
        """The run's indices within the slice of its bounds."""
        return Run(self.length - 1 if self.step < 0 else 0, (self.step > 0) - (self.step < 0), self.length)

    @property
    def indices(self) -> np.ndarray:
        return self.start + self.step * np.arange(self.length)


def extension(mode: str, n: int, lhs: int, rhs: int) -> tuple[Run, Run]:
    """The indices that extend a dimension of size n at either end, as `repeated_index` says.

    >>> extension("reflect", 3, 2, 1)
    (Run(start=2, step=-1, length=2), Run(start=1, step=-1, length=1))
    """
    if mode == "edge":
        return Run(0, 0, lhs), Run(n - 1, 0, rhs)
    skipped = 1 if mode == "reflect" else 0
    return Run(lhs - 1 + skipped, -1, lhs), Run(n - 1 - skipped, -1, rhs)


class Filled(NamedTuple):
    """Outside ``box`` (in the operand's indices) an operand is overwritten before the op sees it.

    ``value``: the number of a scalar operand, or the name of a monoid whose identity it is, or ``edge``, ``reflect``,
    ``symmetric``: the operand's own elements, as `numpy.pad` repeats them beyond its ends.
    """

    operand: int
    box: Box
    value: int | str


class Layer(NamedTuple):
    """Inside ``box`` (in the result's indices) the result is this operand, whose corner lies at the box's."""

    operand: int
    box: Box


@dataclass(frozen=True)
class WindowForm:
    """An op on one window of its result.

    First operands are filled. Then the op with these ``attributes`` is applied to them (None: it leaves operand 0 as
    it is). Where there are ``layers`` instead, the result is operand 0 of the first layer overlaid by the later ones.
    """

    attributes: Attributes | None = None
    fills: tuple[Filled, ...] = ()
    layers: tuple[Layer, ...] = ()
