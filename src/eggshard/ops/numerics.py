"""Element types in NumPy, with XLA's conversions and rounding where NumPy's differ.

As in XLA, narrow floats (f16, bf16, f8) are computed in f32 and rounded once per op, and sub-byte integers in a byte.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eggshard.program.types import float_limits, integer_limits, is_float, mlir_dtype, numpy_dtype

_SUB_BYTE = {"i2": np.int8, "i4": np.int8, "ui2": np.uint8, "ui4": np.uint8}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def bit_width(dtype: str) -> int:
    """Bits of one element's value: 1 for i1, 4 for i4, the sum of both parts for complex types."""
    if dtype in ("i1", "i2", "ui2", "i4", "ui4"):
        return int(dtype.lstrip("ui"))
    return 8 * numpy_dtype(dtype).itemsize


def is_complex(dtype: str) -> bool:
    return dtype.startswith("complex")


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("ui")


def is_integer(dtype: str) -> bool:
    """True for signed and unsigned integers, not for i1."""
    return dtype != "i1" and dtype.startswith(("i", "ui"))


def keeps_sums(source: str, target: str) -> bool:
    """Whether a sum may be taken before or after conversion: not for integers that widen, since theirs wrap."""
    if is_float(source) or is_float(target):
        return is_float(source) and is_float(target)
    return bit_width(target) <= bit_width(source)


def part_dtype(dtype: str) -> str:
    """The type of a complex type's parts; a real type itself."""
    return dtype[len("complex<") : -1] if is_complex(dtype) else dtype


def widened(array: np.ndarray) -> np.ndarray:
    """The array in the type that NumPy computes in: f32 for narrower floats, a byte for sub-byte integers."""
    dtype = mlir_dtype(array.dtype)
    if dtype in _SUB_BYTE:
        return array.astype(_SUB_BYTE[dtype])
    if is_float(dtype) and not is_complex(dtype) and array.dtype.itemsize < 4:
        return array.astype(np.float32)
    return array


def narrowed(array: np.ndarray | np.generic, dtype: str) -> np.ndarray:
    """A widened result in its own type: floats round to nearest even, integers wrap."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(numpy_dtype(dtype), copy=False)


def pointwise(function: Callable[..., np.ndarray], dtype: str, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """A NumPy function on widened arrays, its result rounded to ``dtype``; floating-point warnings are silent."""
    with np.errstate(all="ignore"):
        return narrowed(function(*(widened(np.asarray(a)) for a in arrays)), dtype)


def convert(array: np.ndarray, dtype: str) -> np.ndarray:
    """XLA's ``convert``: floats to integers truncate, saturate, and NaN becomes 0; integers wrap; i1 is ``x != 0``."""
    source, target = mlir_dtype(array.dtype), numpy_dtype(dtype)
    if source == dtype:
        return array
    with np.errstate(all="ignore"):
        if dtype == "i1":
            return np.asarray(widened(array) != 0)
        if is_complex(source) and not is_complex(dtype):
            array, source = array.real, part_dtype(source)
        if is_float(source) and is_integer(dtype):
            wide = np.trunc(array.astype(np.float64))
            low, high = integer_limits(dtype)
            # float(high) may round up to a value that does not fit; such elements are set apart.
            inside = np.where((wide >= low) & (wide < float(high)), wide, 0)
            wrapped = inside.astype(np.uint64 if dtype == "ui64" else np.int64)
            whole = np.where(wide >= float(high), high, np.where(wide < low, low, wrapped))
            return np.where(np.isnan(wide), 0, whole).astype(np.uint64 if dtype == "ui64" else np.int64).astype(target)
        if not is_float(source) and is_float(dtype) and target.itemsize < 4:
            array = widened(array).astype(np.float32)
        return widened(array).astype(target)


def float_bits(array: np.ndarray, signed: bool = False) -> np.ndarray:
    """The bit patterns of a float array as unsigned (or signed) integers of the same size."""
    table = _SIGNED if signed else _UNSIGNED
    return np.ascontiguousarray(array).view(table[array.dtype.itemsize]).reshape(array.shape)


def total_order_key(array: np.ndarray) -> np.ndarray:
    """Integers that order as IEEE 754's totalOrder does: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    bits = float_bits(array, signed=True)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def divide(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Division; of integers towards zero, x / 0 is -1 (all bits set), and the lowest / -1 wraps."""
    if not np.issubdtype(lhs.dtype, np.integer):
        return np.asarray(np.divide(lhs, rhs))
    safe = np.where(rhs == 0, 1, rhs).astype(rhs.dtype)
    if np.issubdtype(lhs.dtype, np.unsignedinteger):
        return np.where(rhs == 0, np.iinfo(lhs.dtype).max, lhs // safe)
    minus = safe == -1
    safe = np.where(minus, 1, safe).astype(rhs.dtype)
    quotient = lhs // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != lhs))
    return np.where(rhs == 0, -1, np.where(minus, -lhs, quotient))


def remainder(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The remainder with the dividend's sign; of integers x % 0 is x."""
    if not np.issubdtype(lhs.dtype, np.integer):
        return np.asarray(np.fmod(lhs, rhs))
    skip = (rhs == 0) | ((rhs == -1) if np.issubdtype(rhs.dtype, np.signedinteger) else False)
    return np.where(rhs == 0, lhs, np.where(skip, 0, np.fmod(lhs, np.where(skip, 1, rhs).astype(rhs.dtype))))


def power(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Powers; of integers wrapping, and 0 for negative exponents unless the base is 1 or -1."""
    if not np.issubdtype(lhs.dtype, np.integer):
        return np.asarray(np.power(lhs, rhs))
    out = np.power(lhs, np.where(rhs < 0, 0, rhs).astype(rhs.dtype))
    odd = np.where(rhs % 2 == 0, 1, lhs)
    return np.where(rhs < 0, np.where(lhs == 1, 1, np.where(lhs == -1, odd, 0)), out)


def shift(kind: str, lhs: np.ndarray, rhs: np.ndarray, bits: int) -> np.ndarray:
    """``left``, ``arithmetic`` or ``logical`` shift of ``bits``-wide values held in ``lhs``'s (maybe wider) type.

    An amount outside ``[0, bits)`` shifts everything out: to 0, or to the sign for an arithmetic shift.
    """
    outside = (rhs < 0) | (rhs >= bits)
    amount = np.where(outside, 0, rhs).astype(lhs.dtype)
    if kind == "left":
        return np.where(outside, 0, np.left_shift(lhs, amount))
    unsigned = lhs.astype(_UNSIGNED[lhs.dtype.itemsize])
    if bits < 8:
        unsigned = unsigned & ((1 << bits) - 1)
    if kind == "logical":
        return np.where(outside, 0, np.right_shift(unsigned, amount.astype(unsigned.dtype)))
    sign = (unsigned >> (bits - 1)) & 1
    signed = np.where(sign != 0, unsigned.astype(np.int64) - (1 << bits) if bits < 64 else unsigned.view(np.int64),
                      unsigned.view(np.int64) if bits == 64 else unsigned.astype(np.int64))
    return np.where(outside, -sign.astype(np.int64), np.right_shift(signed, amount.astype(np.int64)))


def count_bits(array: np.ndarray, bits: int) -> np.ndarray:
    """The number of set bits among the lowest ``bits``."""
    unsigned = _low_bits(array, bits)
    return np.asarray(np.bitwise_count(unsigned))


def leading_zeros(array: np.ndarray, bits: int) -> np.ndarray:
    """The number of zero bits above the highest set one, of ``bits``."""
    value = _low_bits(array, bits)
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            value = value | (value >> np.uint64(step))
    return np.asarray(bits - np.bitwise_count(value).astype(np.int64))


def _low_bits(array: np.ndarray, bits: int) -> np.ndarray:
    mask = np.uint64((1 << bits) - 1)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).view(np.uint64) & mask


def sign(array: np.ndarray) -> np.ndarray:
    """-1, 0, 1; -0 and NaN stay; of complex numbers x / abs(x)."""
    if array.dtype.kind == "c":
        size = np.abs(array)
        return np.where(size == 0, array, array / np.where(size == 0, 1, size))
    if array.dtype.kind == "f":
        return np.where(array == 0, array, np.sign(array))
    return np.asarray(np.sign(array))


def reduce_precision(array: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Each float rounded to a format of fewer bits and back (XLA's ReducePrecision): to nearest even, then overflow
    to infinity and flush of what the smaller exponent cannot hold to zero. NaN stays NaN."""
    limits = float_limits(mlir_dtype(array.dtype))
    source_mantissa, source_exponent = int(limits.nmant), int(limits.bits - 1 - limits.nmant)
    bits = float_bits(array)
    one = bits.dtype.type(1)
    exponent_mask = bits.dtype.type(((1 << source_exponent) - 1) << source_mantissa)
    sign_mask = bits.dtype.type(1 << (limits.bits - 1))
    out = bits
    if mantissa_bits < source_mantissa:
        dropped = bits.dtype.type(source_mantissa - mantissa_bits)
        last = one << dropped
        out = out + ((out >> dropped) & one) + ((last >> one) - one)
        out = out & ~(last - one)
    if exponent_bits < source_exponent:
        exponent = out & exponent_mask
        bias, reduced = (1 << (source_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        zero = out & sign_mask
        out = np.where(exponent > bits.dtype.type((bias + reduced) << source_mantissa), zero | exponent_mask, out)
        low = bits.dtype.type(max(bias - reduced, 0) << source_mantissa)
        out = np.where(exponent <= low, zero, out)
    out = np.asarray(out, bits.dtype).view(array.dtype)
    return np.where(np.isnan(array), array, out)
