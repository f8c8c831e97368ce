"""Rules on chains of element type conversions. Rules that move conversions, as unary ops, are in the movement files."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.ops import numerics
from eggshard.program.types import is_float

rules = RuleList()

_TYPES = ("f32", "bf16", "f16", "i32", "i8", "ui8", "i1", "f64")
_TO = [{"dtype": d} for d in _TYPES]

#: (exponent bits, mantissa bits) of the binary floating-point formats with infinities and subnormals as IEEE 754's.
_FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "f8E5M2": (5, 2)}


def holds_all(wide: str, narrow: str) -> bool:
    """Whether every value of a type is a value of another, NaN, infinities and signed zeros included."""
    if wide == narrow:
        return True
    if narrow in _FORMATS:
        return wide in _FORMATS and all(a >= b for a, b in zip(_FORMATS[wide], _FORMATS[narrow], strict=True))
    if is_float(narrow):
        return False
    bits = 1 if narrow == "i1" else numerics.bit_width(narrow)
    signed = narrow != "i1" and not numerics.is_unsigned(narrow)
    if wide in _FORMATS:
        exponent, mantissa = _FORMATS[wide]
        return bits - signed <= mantissa + 1 and bits - signed < 1 << (exponent - 1)
    if not numerics.is_integer(wide):
        return False
    width = numerics.bit_width(wide)
    if numerics.is_unsigned(wide):
        return not signed and width >= bits
    return width >= bits + (not signed)


@rules.add(
    "convert[c](x) => x",
    says="a type conversion that changes nothing left out",
    cases=each(x=tensors((7,), dtypes=_TYPES), c=_TO),
)
def identity_convert(m: Match) -> Any:
    return m.x == m.result


@rules.add(
    "convert[outer](convert[inner](x)) => convert[outer](x)",
    says="converted directly, without the type in between",
    cases=each(x=tensors((7,), dtypes=_TYPES), inner=_TO, outer=_TO),
)
def convert_of_convert(m: Match) -> Any:
    """Applies where the inner conversion is lossless. Narrowing wraps integers, and saturates and rounds floats."""
    middle, target = m.type("inner").dtype, m.result.dtype
    if not is_float(m.x.dtype) and is_float(middle) and target not in ("f32", "f64"):
        return False
    return holds_all(middle, m.x.dtype) and "i1" not in (middle, target)
