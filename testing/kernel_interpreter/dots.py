"""Matrix products, rounded once to the accumulator's type (floats: at least f32), whatever the precision asked for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation
from testing.kernel_interpreter.elements import Array, is_float, rounded
from testing.kernel_interpreter.integers import element_of
from testing.kernel_interpreter.registry import optional, pure, segmented

#: How ``tt.dot_scaled`` names its element types, by number.
_SCALED = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn,
           ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16, np.float16]


def product(a: Array, b: Array, c: Array) -> Array:
    """a @ b + c over the last two dimensions.

    Summed in f64 and rounded once, so that neither strides nor tiling change what the sum rounds to.
    """
    dtype = c.dtype
    if not is_float(dtype):
        # 8-bit products sum exactly in f64 as long as the sums stay below 2**53, which they do
        total = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
        return np.asarray((total + c.astype(np.int64)).astype(dtype))
    total = np.matmul(a.astype(np.float64, order="C"), b.astype(np.float64, order="C")) + c.astype(np.float64)
    return rounded(np.asarray(total if dtype == np.float64 else total.astype(np.float32)), dtype)


@pure("tt.dot")
def _dot(op: Operation, a: Array, b: Array, c: Array) -> Array:
    if a.dtype.kind == "i" and a.dtype.itemsize > 1:
        raise ProgramError("integer products are known for i8 alone")
    return product(a, b, c)


def unpacked(values: Array, axis: int) -> Array:
    """Pairs of 4-bit floats (E2M1) from bytes, along an axis, low half first."""
    bits = np.asarray(values).view(np.uint8)
    pairs = np.stack([bits & 15, bits >> 4], axis=axis + 1 if axis >= 0 else bits.ndim + axis + 1)
    shape = list(bits.shape)
    shape[axis] *= 2
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    table = np.concatenate([magnitudes, -magnitudes])
    return table[pairs.reshape(shape)]


def scaled(values: Array, scales: Any, kind: int, axis: int) -> Array:
    """An operand times its scales (powers of two, E8M0, or floats), each for equally many elements along ``axis``."""
    if kind == 4:
        numbers = unpacked(values, axis)
    else:
        numbers = np.asarray(values).view(_SCALED[kind]).astype(np.float32)
    if scales is None:
        return numbers
    if scales.dtype.kind == "i":
        factors = scales.view(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    else:
        factors = scales.astype(np.float32)
    if axis == -2:
        factors = np.swapaxes(factors, -1, -2)
    return np.asarray(numbers * np.repeat(factors, numbers.shape[axis] // factors.shape[axis], axis=axis))


@pure("tt.dot_scaled")
def _dot_scaled(op: Operation, *operands: Array) -> Array:
    if op.attribute("lhs_k_pack") == "false" or op.attribute("rhs_k_pack") == "false":
        raise ProgramError("4-bit floats packed along another dimension than the one summed are not known")
    parts = [optional(part) for part in segmented(op, operands)]
    a, b, c, a_scale, b_scale = parts
    left, right = op.integer("a_elem_type"), op.integer("b_elem_type")
    assert left is not None and right is not None
    return product(scaled(a, a_scale, left, -1), scaled(b, b_scale, right, -2), c)


@pure("ttg.fp4_to_fp")
def _from_fp4(op: Operation, values: Array) -> Array:
    axis = op.integer("axis")
    assert axis is not None
    return unpacked(values, axis).astype(element_of(op))


@pure("amdg.scaled_upcast_fp4", "amdg.scaled_upcast_fp8")
def _scaled_upcast(op: Operation, values: Array, scales: Array) -> Array:
    """Elements times their scales; the scales have the result's shape."""
    if op.name.endswith("fp4"):
        axis = op.integer("axis")
        assert axis is not None
        numbers = unpacked(values, axis)
    else:
        numbers = values.astype(np.float32)
    if scales.dtype.kind == "i":
        factors = scales.view(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    else:
        factors = scales.astype(np.float32)
    return rounded(np.asarray(numbers * factors), element_of(op))
