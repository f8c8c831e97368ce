"""Floats: arithmetic in the element's own precision, comparisons and NaN rules, mathematical functions, casts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation
from testing.kernel_interpreter.elements import Array, bitcast, fitted, is_float, rounded, unsigned, wide
from testing.kernel_interpreter.integers import element_of
from testing.kernel_interpreter.registry import pure

_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.remf": np.fmod, "tt.precise_divf": np.divide, "tt.approx_divf": np.divide,
    # maximumf, minimumf: NaN if either is, and -0 below +0; maxnumf, minnumf: the other operand if one is NaN
    "arith.maximumf": lambda a, b: _ordered_zeros(np.maximum(a, b), a, b, np.bitwise_and),
    "arith.minimumf": lambda a, b: _ordered_zeros(np.minimum(a, b), a, b, np.bitwise_or),
    "arith.maxnumf": lambda a, b: _ordered_zeros(np.fmax(a, b), a, b, np.bitwise_and),
    "arith.minnumf": lambda a, b: _ordered_zeros(np.fmin(a, b), a, b, np.bitwise_or),
    "math.copysign": np.copysign, "math.atan2": np.arctan2, "math.powf": np.power,
}


def _ordered_zeros(found: Array, a: Array, b: Array, signs: Callable[[Array, Array], Array]) -> Array:
    """The larger or smaller of two floats where both are zeros: by their signs."""
    zeros = (a == 0) & (b == 0)
    if not np.any(zeros):
        return found
    bits = np.dtype(f"i{found.dtype.itemsize}")
    of_zeros = bitcast(np.asarray(signs(bitcast(np.asarray(a), bits), bitcast(np.asarray(b), bits))), found.dtype)
    return np.asarray(np.where(zeros, of_zeros, found))


@pure(*_BINARY)
def _binary(op: Operation, a: Array, b: Array) -> Array:
    return rounded(np.asarray(_BINARY[op.name](wide(a), wide(b))), a.dtype)


def _comparison(predicate: int, a: Array, b: Array) -> Array:
    """Predicates of ``arith.cmpf``: false, 6 ordered ones and ``ord``, 6 unordered ones and ``uno``, true."""
    if predicate in (0, 15):
        return np.full(np.broadcast_shapes(a.shape, b.shape), predicate == 15)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in (7, 14):
        return np.asarray(unordered if predicate == 14 else ~unordered)
    compare = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal][(predicate - 1) % 7]
    found = compare(a, b)
    return np.asarray(found | unordered if predicate > 7 else found & ~unordered)


@pure("arith.cmpf")
def _compare(op: Operation, a: Array, b: Array) -> Array:
    predicate = op.integer("predicate")
    assert predicate is not None
    return _comparison(predicate, wide(a), wide(b))


@pure("arith.negf")
def _negate(op: Operation, a: Array) -> Array:
    return np.negative(a)


def _odd(exact: Array, error: Array) -> Array:
    """Sums in f64 with the lowest bit set where ``error`` was lost: rounding those once more does not round twice."""
    lost = (error != 0) & np.isfinite(exact)
    bits = exact.view(np.int64)
    toward = np.where(lost & (np.sign(error) != np.sign(exact)), 1, 0)
    return np.asarray(np.where(lost, (bits - toward) | 1, bits)).view(np.float64)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding (f64: two, the product's error added)."""
    dtype = a.dtype
    if dtype == np.float64:
        return np.asarray(_double_fused(a, b, c))
    x, y, z = (np.asarray(v.astype(np.float64)) for v in (a, b, c))
    product = np.asarray(x * y)  # exact: at most 48 bits
    total = np.asarray(product + z)
    back = total - product
    error = (product - (total - back)) + (z - back)
    odd = _odd(total, np.where(np.isfinite(total), error, 0.0))
    return rounded(np.asarray(odd.astype(np.float32)), dtype) if dtype.itemsize == 1 else _narrowed(odd, dtype)


def _narrowed(values: Array, dtype: np.dtype[Any]) -> Array:
    """f64 as a type that f64 converts to directly; the others through an f32 whose lowest bit says what was lost."""
    if dtype in (np.float32, np.float16):
        return values.astype(dtype)
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    lost = (back != values) & np.isfinite(single)
    bits = single.view(np.int32)
    beyond = np.abs(back) > np.abs(values)
    odd = np.asarray(np.where(lost, (bits - beyond) | 1, bits)).astype(np.int32)
    return rounded(odd.view(np.float32), dtype)


def _double_fused(a: Array, b: Array, c: Array) -> Array:
    product = np.asarray(a * b)
    split = 134217729.0  # 2**27 + 1, Dekker's constant
    ah = a * split - (a * split - a)
    bh = b * split - (b * split - b)
    al, bl = a - ah, b - bh
    low = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    total = np.asarray(product + c)
    back = total - product
    error = (product - (total - back)) + (c - back)
    corrected = total + (error + low)
    return np.asarray(np.where(np.isfinite(corrected), corrected, total))


@pure("math.fma")
def _fma(op: Operation, a: Array, b: Array, c: Array) -> Array:
    return fused(a, b, c)


def _through_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: np.asarray(function(a.astype(np.float64)))


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)
_gamma = np.frompyfunc(lambda x: math.inf if math.isinf(x) else math.lgamma(x), 1, 1)

#: Functions of one float, by the name after ``math.``; the narrower floats go through f32 or f64.
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "absf": np.abs, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "roundeven": np.rint,
    "round": lambda a: np.copysign(np.floor(np.abs(a.astype(np.float64)) + 0.5), a),
    "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt,
    "rsqrt": _through_double(lambda a: 1.0 / np.sqrt(a)),
    "erf": _through_double(lambda a: np.asarray(_erf(a), np.float64)),
    "erfc": _through_double(lambda a: np.asarray(_erfc(a), np.float64)),
    "lgamma": _through_double(lambda a: np.asarray(_gamma(a), np.float64)),
    "exp10": _through_double(lambda a: np.power(10.0, a)),
    "rcp": _through_double(lambda a: 1.0 / a),
}
_MATH = {f"math.{name}": function for name, function in _FUNCTIONS.items()}


@pure(*_MATH)
def _function(op: Operation, a: Array) -> Array:
    """On a contiguous copy: how NumPy rounds some functions depends on strides."""
    return rounded(np.asarray(_MATH[op.name](np.asarray(wide(a), order="C"))), a.dtype)


@pure("tt.precise_sqrt")
def _square_root(op: Operation, a: Array) -> Array:
    return rounded(np.sqrt(wide(a)), a.dtype)


@pure("math.fpowi")
def _integer_power(op: Operation, a: Array, b: Array) -> Array:
    return rounded(np.power(wide(a).astype(np.float64), b), a.dtype)


@pure("math.isnan", "math.isinf", "math.isfinite")
def _class(op: Operation, a: Array) -> Array:
    test: Callable[[Array], Array] = getattr(np, op.name.removeprefix("math."))
    return np.asarray(test(wide(a)))


@pure("tt.clampf")
def _clamp(op: Operation, a: Array, low: Array, high: Array) -> Array:
    """``propagateNan`` 0: NaN becomes the lower limit; else it stays."""
    x, lower, upper = wide(a), wide(low), wide(high)
    if op.integer("propagateNan"):
        found = np.minimum(np.maximum(x, lower), upper)
    else:
        found = np.fmin(np.fmax(x, lower), upper)
    return rounded(np.asarray(found), a.dtype)


@pure("arith.extf", "arith.truncf", "tt.fp_to_fp")
def _cast(op: Operation, a: Array) -> Array:
    rounding = op.attribute("rounding") or ""
    mode = op.attribute("roundingmode") or ""
    return rounded(a, element_of(op), toward_zero=rounding.startswith("0") or "toward_zero" in mode)


_LIBRARY = re.compile(r"__(?:nv_(?:fast_)?|ocml_|triton_hip_(?:fast_)?)(\w+?)(?:_f(?:16|32|64))?$")
_ALIASES = {
    "fabs": "absf", "abs": "absf", "rint": "roundeven", "nearbyint": "roundeven", "frcp": "rcp",
    "native_exp": "exp", "native_log": "log", "native_sqrt": "sqrt", "native_sin": "sin", "native_cos": "cos",
    "fsqrt": "sqrt", "frsqrt": "rsqrt",
}
_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power, "fmod": np.fmod, "atan2": np.arctan2, "copysign": np.copysign, "hypot": np.hypot,
    "fmax": np.fmax, "fmin": np.fmin, "fdim": lambda a, b: np.fmax(a - b, np.zeros((), a.dtype)),
    "nextafter": np.nextafter, "ldexp": lambda a, b: np.ldexp(a, b), "remainder": lambda a, b: a - np.rint(a / b) * b,
    "fdivide": np.divide, "div": np.divide, "powi": np.power,
}
_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "finite": np.isfinite,
          "signbit": np.signbit}
_ROUNDED = re.compile(r"(?:f|d)?(add|sub|mul|div|fma|rcp|sqrt)_r[nzud]$")


@pure("tt.extern_elementwise")
def _external(op: Operation, *operands: Array) -> Array:
    """libdevice's and ocml's functions of floats, by name."""
    symbol = (op.attribute("symbol") or "").strip('"')
    found = _LIBRARY.match(symbol)
    name = found[1] if found else ""
    dtype = element_of(op)
    for candidate in (name, name.removesuffix("f")):
        rounding = _ROUNDED.match(candidate)
        base = rounding[1] if rounding and candidate.endswith("_rn") else candidate
        result = _library_function(_ALIASES.get(base, base), operands, dtype)
        if result is not None:
            return result
    raise ProgramError(f"the interpreter does not know the function {symbol!r}")


def _library_function(name: str, operands: tuple[Array, ...], dtype: np.dtype[Any]) -> Array | None:
    floats = all(is_float(v.dtype) for v in operands[:1])
    if len(operands) == 1 and floats and name in _TESTS:
        return fitted(np.asarray(_TESTS[name](wide(operands[0]))), dtype)
    if len(operands) == 1 and floats and is_float(dtype) and name in _FUNCTIONS:
        return rounded(np.asarray(_FUNCTIONS[name](wide(operands[0]))), dtype)
    if len(operands) == 2 and floats and name in _PAIRS:
        return rounded(np.asarray(_PAIRS[name](wide(operands[0]), wide(operands[1]))), dtype)
    arithmetic = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    if len(operands) == 2 and floats and name in arithmetic:
        return rounded(np.asarray(arithmetic[name](wide(operands[0]), wide(operands[1]))), dtype)
    if len(operands) == 3 and floats and name == "fma":
        return fused(*operands)
    if not floats and len(operands) == 1 and name in ("popc", "popcll"):
        return fitted(np.bitwise_count(unsigned(operands[0])), dtype)
    return None
