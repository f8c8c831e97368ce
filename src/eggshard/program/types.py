"""Tensor types: a static shape and an element type in MLIR's spelling."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from eggshard.errors import ProgramError

_NUMPY: dict[str, np.dtype] = {
    "i1": np.dtype(np.bool_),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"ui{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2),
    "ui2": np.dtype(ml_dtypes.uint2),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8E4M3": np.dtype(ml_dtypes.float8_e4m3),
    "f8E3M4": np.dtype(ml_dtypes.float8_e3m4),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
}
_MLIR = {dtype: name for name, dtype in _NUMPY.items()}
#: Every element type that arrays can hold, in MLIR's spelling.
ELEMENT_TYPES = tuple(_NUMPY)
TOKEN = "token"


def numpy_dtype(dtype: str) -> np.dtype:
    """The NumPy element type of an MLIR element type; ProgramError for one that arrays cannot hold."""
    try:
        return _NUMPY[dtype]
    except KeyError:
        raise ProgramError(f"element type {dtype!r} is not supported; one of {', '.join(_NUMPY)} is") from None


def static_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints; ProgramError for anything but non-negative integers."""
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError:
        sizes = (-1,)
    if any(n < 0 for n in sizes):
        raise ProgramError(f"shape {shape!r} is not a tuple of non-negative integers, such as (4, 8)")
    return sizes


def mlir_dtype(dtype: Any) -> str:
    """The MLIR spelling of a NumPy element type (or of a name that is MLIR's already)."""
    if isinstance(dtype, str) and dtype in _NUMPY:
        return dtype
    try:
        if dtype is None:  # NumPy takes it for float64
            raise TypeError
        return _MLIR[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise ProgramError(f"element type {dtype!r} is not supported; one of {', '.join(_NUMPY)} is") from None


@cache
def element_bytes(dtype: str) -> int:
    """Bytes of one element as XLA:CPU stores it (sub-byte types take one byte); a token takes none."""
    return 0 if dtype == TOKEN else max(1, numpy_dtype(dtype).itemsize)


def float_limits(dtype: str) -> Any:
    """``finfo`` of a real float type: ``min``, ``max``, ``bits``, ``nmant``."""
    return ml_dtypes.finfo(numpy_dtype(dtype))


def integer_limits(dtype: str) -> tuple[int, int]:
    """The lowest and the highest value of an integer type."""
    limits = ml_dtypes.iinfo(numpy_dtype(dtype))
    return int(limits.min), int(limits.max)


def is_float(dtype: str) -> bool:
    """True for real and complex floating-point types, whose sums depend on their order."""
    return dtype.startswith(("f", "bf", "complex"))


def is_number(dtype: str) -> bool:
    """Whether a type has a zero and negatives, or wraps: f8E8M0FNU has powers of two alone, for scales of blocks."""
    return dtype != "f8E8M0FNU"


class TensorType(NamedTuple):
    """A static shape and an element type in MLIR's spelling, e.g. ``TensorType((4, 8), "f32")``."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * element_bytes(self.dtype)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(shape, self.dtype)

    def __str__(self) -> str:
        """MLIR's spelling, e.g. ``tensor<4x8xf32>``."""
        if self.dtype == TOKEN:
            return "!stablehlo.token"
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.dtype}>"
