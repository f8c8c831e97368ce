"""Integers: wrap-around arithmetic, signs by the op, shifts, comparisons, casts; and constants and selection.

Where the arithmetic has no meaning (division by zero, shifts by the width or more) the result is fixed nevertheless:
lanes that are masked off compute such things.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation, TensorType
from testing.kernel_interpreter.elements import (
    Array,
    bitcast,
    constant,
    dtype_of,
    fitted,
    rounded,
    signed,
    unsigned,
    wide,
)
from testing.kernel_interpreter.registry import pure

Binary = Callable[[Array, Array], Array]


def element_of(op: Operation, result: int = 0) -> np.dtype[Any]:
    """The NumPy type of a result's elements."""
    type_ = op.results[result].type
    return dtype_of(type_.element if isinstance(type_, TensorType) else type_)


_WRAPPING: dict[str, Binary] = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply,
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
    "arith.maxui": np.maximum, "arith.minui": np.minimum,
}
_COMPARISONS: list[Binary] = [
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.less, np.less_equal, np.greater, np.greater_equal,
]


@pure(*_WRAPPING)
def _wrapping(op: Operation, a: Array, b: Array) -> Array:
    return fitted(np.asarray(_WRAPPING[op.name](unsigned(a), unsigned(b))), a.dtype)


@pure("arith.maxsi")
def _maximum(op: Operation, a: Array, b: Array) -> Array:
    return fitted(np.maximum(signed(a), signed(b)), a.dtype)


@pure("arith.minsi")
def _minimum(op: Operation, a: Array, b: Array) -> Array:
    return fitted(np.minimum(signed(a), signed(b)), a.dtype)


def _quotient(a: Array, b: Array) -> Array:
    """Division that rounds toward zero; by zero, 0."""
    floor = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return floor
    inexact = (floor * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(floor + inexact.astype(a.dtype))


def _remainder(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, np.zeros((), a.dtype), a - _quotient(a, b) * b))


def _floor(a: Array, b: Array) -> Array:
    return np.floor_divide(a, b)


def _ceiling(a: Array, b: Array) -> Array:
    floor = np.floor_divide(a, b)
    return np.asarray(np.where(b == 0, floor, floor + (floor * b != a).astype(a.dtype)))


_DIVISIONS: dict[str, tuple[Callable[[Array], Array], Binary]] = {
    "arith.divsi": (signed, _quotient), "arith.divui": (unsigned, _quotient),
    "arith.remsi": (signed, _remainder), "arith.remui": (unsigned, _remainder),
    "arith.floordivsi": (signed, _floor), "arith.ceildivsi": (signed, _ceiling),
    "arith.ceildivui": (unsigned, _ceiling),
}


@pure(*_DIVISIONS)
def _division(op: Operation, a: Array, b: Array) -> Array:
    sign, divide = _DIVISIONS[op.name]
    return fitted(np.asarray(divide(sign(a), sign(b))), a.dtype)


@pure("arith.shli", "arith.shrui", "arith.shrsi")
def _shift(op: Operation, a: Array, b: Array) -> Array:
    width = 1 if a.dtype == np.bool_ else 8 * a.dtype.itemsize
    counts = unsigned(b)
    inside = counts < width
    if op.name == "arith.shrsi":
        kept = np.where(inside, counts, width - 1).astype(counts.dtype)
        return fitted(np.asarray(signed(a) >> kept.view(signed(b).dtype)), a.dtype)
    shift = np.left_shift if op.name == "arith.shli" else np.right_shift
    bits = unsigned(a)
    shifted = shift(bits, np.where(inside, counts, 0).astype(counts.dtype))
    return fitted(np.asarray(np.where(inside, shifted, np.zeros((), bits.dtype))), a.dtype)


@pure("arith.cmpi")
def _compare(op: Operation, a: Array, b: Array) -> Array:
    predicate = op.integer("predicate")
    assert predicate is not None
    sign = unsigned if predicate >= 6 else signed
    return _COMPARISONS[predicate](sign(a), sign(b))


@pure("tt.mulhiui")
def _high_product(op: Operation, a: Array, b: Array) -> Array:
    return _high(unsigned(a), unsigned(b)).view(a.dtype)


def _high(a: Array, b: Array) -> Array:
    """The high half of products of unsigned integers."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        return np.asarray((a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(bits)).astype(a.dtype))
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    return np.asarray(a1 * b1 + (middle >> half) + (other >> half))


@pure("arith.mului_extended", "arith.mulsi_extended")
def _extended_product(op: Operation, a: Array, b: Array) -> tuple[Array, Array]:
    if a.dtype == np.bool_:
        raise ProgramError("no extended products of i1")
    x, y = unsigned(a), unsigned(b)
    high = _high(x, y)
    if op.name == "arith.mulsi_extended":
        high = high - np.where(a < 0, y, 0).astype(x.dtype) - np.where(b < 0, x, 0).astype(x.dtype)
    return (x * y).view(a.dtype), np.asarray(high).view(a.dtype)


@pure("arith.addui_extended")
def _extended_sum(op: Operation, a: Array, b: Array) -> tuple[Array, Array]:
    total = unsigned(a) + unsigned(b)
    carry = total < unsigned(a) if a.dtype != np.bool_ else total > 1
    return fitted(np.asarray(total), a.dtype), np.asarray(carry)


@pure("arith.extsi")
def _extend_signed(op: Operation, a: Array) -> Array:
    return signed(a).astype(element_of(op))


@pure("arith.extui")
def _extend_unsigned(op: Operation, a: Array) -> Array:
    return unsigned(a).astype(element_of(op))


@pure("arith.trunci", "arith.index_cast")
def _truncate(op: Operation, a: Array) -> Array:
    return fitted(signed(a), element_of(op))


@pure("arith.index_castui")
def _cast_unsigned(op: Operation, a: Array) -> Array:
    return fitted(unsigned(a), element_of(op))


@pure("arith.sitofp", "arith.uitofp")
def _to_float(op: Operation, a: Array) -> Array:
    dtype = element_of(op)
    numbers = signed(a) if op.name == "arith.sitofp" else unsigned(a)
    if dtype.itemsize >= 4 or dtype == np.float16:
        return numbers.astype(dtype)
    return rounded(_odd_single(numbers), dtype)


def _odd_single(numbers: Array) -> Array:
    """Integers as f32, inexact ones with the lowest bit set: rounding those once more does not round twice."""
    if numbers.dtype.itemsize <= 2:
        return numbers.astype(np.float32)
    single = numbers.astype(np.float32)
    back = single.astype(np.float64) - numbers.astype(np.float64)
    bits = single.view(np.int32) - np.where(np.sign(back) == np.sign(single), 1, 0).astype(np.int32) * (back != 0)
    return np.asarray(np.where(back != 0, bits | 1, bits)).astype(np.int32).view(np.float32)


@pure("arith.fptosi", "arith.fptoui")
def _to_integer(op: Operation, a: Array) -> Array:
    """Toward zero; out of range to the nearest integer, NaN to 0."""
    dtype = element_of(op)
    if dtype == np.bool_:
        return np.asarray(np.trunc(wide(a)) != 0)
    kind = np.dtype(f"u{dtype.itemsize}") if op.name == "arith.fptoui" else dtype
    limits = np.iinfo(kind)
    numbers = np.nan_to_num(np.trunc(wide(a).astype(np.float64)), nan=0.0)
    low, high = numbers <= limits.min, numbers >= float(limits.max)
    inside = np.where(low | high, 0.0, numbers).astype(kind)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(kind).view(dtype)


@pure("arith.bitcast", "tt.bitcast")
def _bitcast(op: Operation, a: Array) -> Array:
    return bitcast(a, element_of(op))


@pure("tt.int_to_ptr", "tt.ptr_to_int")
def _address(op: Operation, a: Array) -> Array:
    return fitted(a, element_of(op))


@pure("arith.constant")
def _constant(op: Operation) -> Array:
    text = op.attribute("value")
    assert text is not None
    return constant(text)


@pure("arith.select")
def _select(op: Operation, condition: Array, a: Any, b: Any) -> Any:
    if not isinstance(a, (np.ndarray, np.generic)):  # a descriptor or shared memory
        return (a,) if condition else (b,)
    return np.where(condition, a, b)


_BIT_COUNTS = {"math.ctpop", "math.ctlz", "math.cttz"}


@pure(*_BIT_COUNTS)
def _count(op: Operation, a: Array) -> Array:
    bits = unsigned(a)
    width = 1 if a.dtype == np.bool_ else 8 * a.dtype.itemsize
    if op.name == "math.ctpop":
        counts = np.bitwise_count(bits)
    elif op.name == "math.cttz":
        counts = np.where(bits == 0, width, np.bitwise_count((bits & (~bits + 1)) - 1))
    else:
        spread = bits.copy()
        for shift in (1, 2, 4, 8, 16, 32):
            if shift < width:
                spread = spread | spread >> shift
        counts = width - np.bitwise_count(spread)
    return fitted(np.asarray(counts), a.dtype)


@pure("math.absi")
def _absolute(op: Operation, a: Array) -> Array:
    return fitted(np.abs(signed(a)), a.dtype)
