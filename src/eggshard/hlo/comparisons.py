"""Comparisons in total order, as XLA's pass ComparisonExpander leaves them in compiled programs, read back.

It compares the floats' bits as integers, with all but the sign inverted where that is set. An order of bits as integers
has no meaning over a field, and the order of floats has one.
"""

from __future__ import annotations

from typing import Any

from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.ops.numerics import is_unsigned
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op
from eggshard.program.types import integer_limits, is_float


def read_compare(reader: RegionReader, operation: Any, name: str) -> None:
    """A compare of integers that are total-order keys as one of the floats that they are of."""
    floats = tuple(x for v in reader.operands(operation) if (x := _ordered(reader, v)) is not None)
    if len(floats) < 2:
        return reader.read_op(operation, name)
    direction = reader.attributes(operation, "compare", reader.operands(operation))["comparison_direction"]
    attributes = Attributes(comparison_direction=direction, compare_type="TOTALORDER")
    reader.add(operation, "compare", (), attributes, floats)


def _ordered(reader: RegionReader, value: int) -> int | None:
    """The float x of select(bits < 0, highest ^ bits, bits), with bits those of x; None for other values."""
    chosen = _made_by(reader, value, "select")
    if chosen is None:
        return None
    negative, inverted, bits = chosen.operands
    below, flip = _made_by(reader, negative, "compare"), _made_by(reader, inverted, "xor")
    cast = _made_by(reader, bits, "bitcast_convert")
    if below is None or flip is None or cast is None or below.attributes["comparison_direction"] != "LT":
        return None
    (x,), types = cast.operands, reader.builder.types
    if not is_float(types[x].dtype) or types[x].shape != types[bits].shape:
        return None
    ends = (_number(reader, below.operands[1]), *(_number(reader, v) for v in flip.operands if v != bits))
    signed = below.operands[0] == bits and not is_unsigned(types[bits].dtype)
    return x if signed and ends == (0, integer_limits(types[bits].dtype)[1]) else None


def _made_by(reader: RegionReader, value: int, name: str) -> Op | None:
    """The op of this name that makes a value; the ops asked for stand near the end."""
    made = next((op for op in reversed(reader.builder.ops) if value in op.results), None)
    return made if made is not None and made.name == name else None


def _number(reader: RegionReader, value: int) -> int | None:
    """The one number that all elements of a constant are, a broadcast one too."""
    spread = _made_by(reader, value, "broadcast_in_dim")
    constant = reader.constant(value if spread is None else spread.operands[0])
    return int(constant["value"].array.flat[0]) if constant is not None and constant["value"].splat else None
