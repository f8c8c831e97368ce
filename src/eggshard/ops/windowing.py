"""Access maps of ops: which operand indices a result index needs, and the op on one window of its result.

An op that accesses neighbours (slice, pad, concatenate, convolution, ...) is computed on shards whose windows overlap
or are on a shifted grid. Along a windowed dimension a device computes result indices ``[start, stop)`` from exactly the
operand indices that they access. On shards, starts, paddings and offsets therefore vanish, except for the boundaries of
the tensors, which are boxes of global indices.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def sliding_reach(
    dim: int, n: int, size: int, stride: int, base_dilation: int, dilation: int, low: int
) -> Reach | None:
    """The reach along a dimension of size n over which a window of ``size`` elements slides.

    None where windows span more than half of the dimension: then even the one of two devices would need all that the
    other one holds.
    """
    span = (size - 1) * dilation
    if size == 0 or 2 * span > n * base_dilation:
        return None
    return Reach(dim, -low, span - low, stride, divisor=base_dilation)


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
