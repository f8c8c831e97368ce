"""Operands of law tests, and when the two sides computed from them are equal."""

from __future__ import annotations

from enum import Enum

import numpy as np

from eggshard.egraph.law_rounding import Bounded
from eggshard.ops import numerics
from eggshard.program.types import TensorType, float_limits, integer_limits, is_float, mlir_dtype, numpy_dtype

_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)
#: How much more than the left side the right side may be off by rounding.
_MORE_ROUNDING = 2
#: What double precision may be off by where it stands for real numbers, relative to magnitudes.
_IDENTITY = 1e-12


class Values(Enum):
    """Kinds of operands. Integers are of their whole range, and for SPECIAL small, with the lowest and the highest."""

    ORDINARY = "floats between 1/2 and 2, of either sign"
    SPECIAL = "small whole floats, with NaN, infinities and -0 in between"
    EXTREME = "floats of all magnitudes up to the largest and down to the smallest, with NaN and infinities in between"


def sample(rng: np.random.Generator, type_: TensorType, values: Values) -> np.ndarray:
    """Operands of a type."""
    shape, dtype = type_.shape, type_.dtype
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not is_float(dtype):
        return _integers(rng, type_, values)
    if numerics.is_complex(dtype):
        part = TensorType(shape, numerics.part_dtype(dtype))
        out = np.empty(shape, numpy_dtype(dtype))
        out.real, out.imag = sample(rng, part, values), sample(rng, part, values)
        return out
    limits = float_limits(dtype)
    signless = dtype == "f8E8M0FNU"  # its values are powers of two
    signs = np.ones(shape) if signless else rng.choice([-1.0, 1.0], shape)
    if values is Values.ORDINARY:
        floats = signs * rng.uniform(0.5, 2.0, shape)
    elif values is Values.SPECIAL:
        most = 2 if limits.bits == 8 else 4
        floats = np.exp2(rng.integers(-2, 3, shape)) if signless else rng.integers(-most, most + 1, shape).astype(float)
        floats = np.where(rng.random(shape) < 0.15, rng.choice(_SPECIAL, shape), floats)
    else:
        low, high = np.log2([float(limits.smallest_subnormal), float(limits.max)])
        floats = signs * np.exp2(rng.uniform(low, high, shape))
        ends = np.array([limits.max, limits.smallest_normal, limits.smallest_subnormal], np.float64)
        floats = np.where(rng.random(shape) < 0.3, signs * rng.choice(ends, shape), floats)
        floats = np.where(rng.random(shape) < 0.1, rng.choice(_SPECIAL, shape), floats)
    with np.errstate(all="ignore"):
        return np.asarray(floats).astype(numpy_dtype(dtype))


def _integers(rng: np.random.Generator, type_: TensorType, values: Values) -> np.ndarray:
    low, high = integer_limits(type_.dtype)
    wide = np.uint64 if low == 0 else np.int64
    if values is not Values.SPECIAL:
        return rng.integers(low, high, type_.shape, wide, endpoint=True).astype(numpy_dtype(type_.dtype))
    small = rng.integers(max(low, -3), min(high, 3), type_.shape, wide, endpoint=True)
    ends = rng.choice(np.array([low, high], wide), type_.shape)
    return np.where(rng.random(type_.shape) < 0.1, ends, small).astype(numpy_dtype(type_.dtype))


def _alike(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape


def same_bits(left: np.ndarray, right: np.ndarray, signed_zeros: bool = True, whole_complex: bool = False) -> bool:
    """Equal types, shapes and bits; all NaNs are one value, and unless ``signed_zeros`` all zeros are.

    whole_complex: the parts of a non-finite complex number are not compared: no standard says what a product of such
    has, and the signs of what functions make of NaN are unspecified (C11, annex G.6).
    """
    if not _alike(left, right):
        return False
    dtype = mlir_dtype(left.dtype)
    if numerics.is_complex(dtype):
        if whole_complex:
            finite = np.isfinite(left)
            if not np.array_equal(finite, np.isfinite(right)):
                return False
            left, right = left[finite], right[finite]
        return same_bits(left.real, right.real, signed_zeros) and same_bits(left.imag, right.imag, signed_zeros)
    if not is_float(dtype):
        return bool(np.array_equal(left, right))
    a, b = left.astype(np.float64), right.astype(np.float64)
    signs = np.signbit(a) == np.signbit(b) if signed_zeros else np.asarray(True)
    return bool(np.all((a == b) & signs | (np.isnan(a) & np.isnan(b))))


def agree(left: Bounded, right: Bounded, values: Values) -> bool:
    """Whether the right side is the left one up to rounding, where no partial result leaves the range of its type."""
    if not _alike(left.value, right.value):
        return False
    with np.errstate(all="ignore"):
        a, b = (numerics.widened(side.value) for side in (left, right))
        inside = np.isfinite(left.reach) & np.isfinite(right.reach)
        if np.any(inside & (np.isfinite(a) != np.isfinite(b))):
            return False
        # Where one order of operations loses digits to the smallest numbers, another may not, or may lose others.
        off = left.error + right.error if values is Values.EXTREME else left.error
        rounded = np.abs(_double(a) - _double(b)) <= _MORE_ROUNDING * off
        tiny = off if values is Values.EXTREME else 0.0  # doubles of the smallest numbers underflow, too
        same = np.abs(left.exact - right.exact) <= _IDENTITY * np.maximum(left.reach, right.reach) + tiny
        return bool(np.all(~(inside & np.isfinite(a)) | (rounded & same)))


def _double(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close_in_range(left: np.ndarray, right: np.ndarray) -> bool:
    """`close` on ordinary numbers; eight bits are too few for many of their functions, so these may overflow."""
    if _alike(left, right) and left.dtype.itemsize == 1 and is_float(mlir_dtype(left.dtype)):
        finite = np.isfinite(numerics.widened(left)) & np.isfinite(numerics.widened(right))
        return close(left[finite], right[finite])
    return close(left, right)


def close(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal up to a few hundred units in the last place of the largest element."""
    if not _alike(left, right):
        return False
    dtype = mlir_dtype(left.dtype)
    if not is_float(dtype):
        return bool(np.array_equal(left, right))
    tolerance = 256 * float(float_limits(numerics.part_dtype(dtype)).eps)
    a, b = _double(numerics.widened(left)), _double(numerics.widened(right))
    with np.errstate(all="ignore"):
        scale = max(1.0, float(np.max(np.abs(a), initial=0.0)))
        return bool(np.all(np.abs(a - b) <= tolerance * scale))


def close_where_finite(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal up to rounding: `close` where both are finite, and the same elsewhere."""
    if not _alike(left, right):
        return False
    finite = np.isfinite(_double(numerics.widened(left))) & np.isfinite(_double(numerics.widened(right)))
    return close(left[finite], right[finite]) and same_bits(left[~finite], right[~finite])
