"""How an op acts on windows of its operands: which operand indices a result index needs, and the op on one window.

An op that looks at neighbours (slice, pad, concatenate, convolution, ...) is computed on shards whose windows overlap,
or lie on a shifted grid. Along a windowed dimension a device computes result indices ``[start, stop)`` from exactly
those operand indices that they reach, so that on the shards nothing is left of starts, paddings and offsets but the
boundaries of the tensors, which are boxes of global indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eggshard.program.program import Attributes


class Reach(NamedTuple):
    """The operand indices that one result index needs: from ``scale * j + first`` to ``scale * j + last``.

    j is the index along result dimension ``dim``. Indices outside the operand are not read (the op's form says what
    stands there instead), or, where ``wrapped``, taken modulo the operand's size.
    """

    dim: int
    first: int = 0
    last: int = 0
    scale: int = 1
    wrapped: bool = False


#: Per operand and dimension its reach; None where the dimension has no counterpart, or none with a window.
Reaches = tuple[tuple[Reach | None, ...], ...]

#: (dimension, start, stop): a half-open range of global indices along a dimension. Dimensions left out are whole.
Box = tuple[tuple[int, int, int], ...]


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
