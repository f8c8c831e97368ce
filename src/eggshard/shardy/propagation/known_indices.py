"""Analysis of integer tensors: bounds of their elements, and the dimensions along which they count positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxlib.mlir import ir

from eggshard.program.dense import parse_dense
from eggshard.shardy.module import ShardyModule, shape
from eggshard.shardy.traits import is_static

CONSTANTS = ("stablehlo.constant", "sdy.constant")
RESHAPES = ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.convert")
OPS = (*CONSTANTS, *RESHAPES, "stablehlo.iota", "stablehlo.clamp", "stablehlo.select", "stablehlo.compare")


class Known(NamedTuple):
    """low, high: bounds of all elements, inclusive.

    counted: the dimensions along which every element is its own position: ``value[i0, i1, ...] == i_d``.
    """

    low: int
    high: int
    counted: frozenset[int] = frozenset()

    def joined(self, other: Known) -> Known:
        """What is known of a value that is, element by element, one or the other."""
        return Known(min(self.low, other.low), max(self.high, other.high), self.counted & other.counted)


def known_indices(module: ShardyModule) -> dict[Any, Known]:
    """What is known of the module's integer values; those of which nothing is known are not there.

    Iotas and constants are followed through what reshapes and selects them: enough to see that the index ``i < 0 ? i +
    n : i`` which frontends write of a position ``i`` is that position.
    """
    found: dict[Any, Known] = {}
    for op in module.walk(*OPS):  # what an op uses comes before it, or around it
        result = op.results[0]
        if not is_static(result) or not isinstance(result.type.element_type, ir.IntegerType):
            continue
        known = _known(op, [found.get(operand) for operand in op.operands])
        if known is not None and _holds(result.type.element_type, known):
            found[result] = known
    return found


def _known(op: Any, operands: Sequence[Known | None]) -> Known | None:
    """What an op's result is known to be, by what is known of its operands."""
    if op.name in CONSTANTS:
        return _constant(op.attributes["value"])
    if op.name == "stablehlo.iota":
        dim = ir.IntegerAttr(op.attributes["iota_dimension"]).value
        return Known(0, shape(op.results[0])[dim] - 1, frozenset({dim}))
    if op.name == "stablehlo.select":
        return _selected(*operands)
    given = [known for known in operands if known is not None]
    if len(given) < len(operands):
        return None
    if op.name == "stablehlo.compare":
        return _compared(str(op.attributes["comparison_direction"]), *given)
    if op.name == "stablehlo.clamp":
        least, value, most = given
        return value if least.high <= value.low and value.high <= most.low else None
    (value,) = given
    return value._replace(counted=frozenset(_kept(op, value.counted)))


def _constant(attribute: Any) -> Known | None:
    if not isinstance(attribute, ir.DenseIntElementsAttr) or not len(attribute):
        return None
    if attribute.is_splat:
        return Known(int(attribute[0]), int(attribute[0]))
    array = parse_dense(str(attribute))
    positions = np.ogrid[tuple(map(slice, array.shape))]
    counted = frozenset(d for d, along in enumerate(positions) if (array == along).all())
    return Known(int(array.min()), int(array.max()), counted)


def _selected(wanted: Known | None, true: Known | None, false: Known | None) -> Known | None:
    if wanted is not None and wanted.low == wanted.high:
        return true if wanted.low else false
    return true.joined(false) if true is not None and false is not None else None


def _compared(direction: str, a: Known, b: Known) -> Known | None:
    """Whether all elements compare alike: 1 if they do, 0 if none does."""
    below, not_above = (a.high < b.low, a.low >= b.high), (a.high <= b.low, a.low > b.high)
    always, never = {
        "LT": below, "LE": not_above, "GE": below[::-1], "GT": not_above[::-1],
        "EQ": (a.low == a.high == b.low == b.high, a.high < b.low or b.high < a.low),
        "NE": (a.high < b.low or b.high < a.low, a.low == a.high == b.low == b.high),
    }[direction.split()[-1].rstrip(">")]  # fmt: skip
    return Known(1, 1) if always else Known(0, 0) if never else None


def _kept(op: Any, counted: frozenset[int]) -> list[int]:
    """The dimensions of a result that are those of the operand, of the same positions."""
    before, after = shape(op.operands[0]), shape(op.results[0])
    if op.name == "stablehlo.convert":
        return list(counted)
    if op.name == "stablehlo.broadcast_in_dim":
        targets = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        return [targets[d] for d in counted if before[d] == after[targets[d]]]
    places = {(before[d], math.prod(before[d + 1:])) for d in counted}
    return [d for d, size in enumerate(after) if (size, math.prod(after[d + 1:])) in places]


def _holds(type_: Any, known: Known) -> bool:
    """Whether an integer type has all values within the bounds, so that none has wrapped around."""
    width = int(type_.width)
    least, end = (0, 1 << width) if width == 1 or type_.is_unsigned else (-1 << (width - 1), 1 << (width - 1))
    return least <= known.low and known.high < end
