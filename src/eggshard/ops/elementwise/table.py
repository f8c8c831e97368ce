"""Pointwise ops of StableHLO and CHLO: each result element depends on the operands' elements at its own index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.base import Arrays, Regions, Results, Traits, Types, register
from eggshard.ops.elementwise import special
from eggshard.ops.elementwise.pointwise import Linear, Pointwise
from eggshard.ops.signatures import require_class, require_count
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.types import is_float, mlir_dtype, numpy_dtype

Function = Callable[..., Any]


class Elementwise(Pointwise):
    """An op on ``arity`` operands of one element type, whose result has that type (or ``result``).

    classes: the letters of `dtype_class` that it accepts. function: its meaning in NumPy. A name with a dialect
    (``chlo.erf``) is its name in MLIR, too.
    """

    def __init__(self, name: str, arity: int, classes: str, function: Function, traits: Traits = Traits.NONE,
                 linear: Linear = (), *, result: str = "", accuracy: bool = False):
        self.name = name
        self.mlir_name = name if "." in name else ""
        self.arity, self.classes, self.function, self.traits = arity, classes, function, traits
        self._linear, self.result = linear, result
        if accuracy:
            self.attributes = {"result_accuracy": codec.RESULT_ACCURACY}

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        for t in operands:
            require_class(t, self.classes)
            if t.dtype != operands[0].dtype:
                raise ProgramError("operands have different element types; convert makes them equal")
        if self.result == "part":
            return numerics.part_dtype(operands[0].dtype)
        return self.result or operands[0].dtype

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        dtype = operands[0].dtype
        return tuple(entry for entry in self._linear if entry[0] in monoids.of_dtype(dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        dtype = mlir_dtype(arrays[0].dtype)
        result = numerics.part_dtype(dtype) if self.result == "part" else self.result or dtype
        return (numerics.pointwise(self.function, result, tuple(arrays)),)


def _round_half_away(x: np.ndarray) -> np.ndarray:
    magnitude = np.floor(np.abs(x))
    return np.asarray(np.copysign(np.where(np.abs(x) - magnitude >= 0.5, magnitude + 1, magnitude), x))


def _cbrt(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x))


_PARTIAL_SUMS: Linear = (("add", (0,)),)

_ZERO, _SAME, _DIVIDES, _FUNCTION, _VECTOR = (
    Traits.KEEPS_ZERO, Traits.IDEMPOTENT, Traits.DIVIDES, Traits.FUNCTION, Traits.VECTORISED)

for _definition in (
    Elementwise("abs", 1, "fci", np.abs, _ZERO | _VECTOR, result="part"),
    Elementwise("cbrt", 1, "fc", _cbrt, _ZERO | _FUNCTION, accuracy=True),
    Elementwise("ceil", 1, "f", np.ceil, _ZERO | _VECTOR),
    Elementwise("cosine", 1, "fc", np.cos, _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("exponential", 1, "fc", np.exp, _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("exponential_minus_one", 1, "fc", np.expm1, _ZERO | _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("floor", 1, "f", np.floor, _ZERO | _VECTOR),
    Elementwise("imag", 1, "fc", np.imag, _ZERO, _PARTIAL_SUMS, result="part"),
    Elementwise("is_finite", 1, "f", np.isfinite, result="i1"),
    Elementwise("log", 1, "fc", np.log, _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("log_plus_one", 1, "fc", np.log1p, _ZERO | _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("logistic", 1, "fc", lambda x: 1 / (1 + np.exp(-x)), _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("negate", 1, "fciu", np.negative, _VECTOR, _PARTIAL_SUMS),
    Elementwise("not", 1, "iub", np.invert),
    Elementwise("real", 1, "fc", np.real, _ZERO, _PARTIAL_SUMS, result="part"),
    Elementwise("round_nearest_afz", 1, "f", _round_half_away, _ZERO),
    Elementwise("round_nearest_even", 1, "f", np.rint, _ZERO | _VECTOR),
    Elementwise("rsqrt", 1, "fc", lambda x: 1 / np.sqrt(x), _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("sign", 1, "fci", numerics.sign, _ZERO | _VECTOR),
    Elementwise("sine", 1, "fc", np.sin, _ZERO | _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("sqrt", 1, "fc", np.sqrt, _ZERO | _DIVIDES | _VECTOR, accuracy=True),
    Elementwise("tan", 1, "fc", np.tan, _ZERO | _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("tanh", 1, "fc", np.tanh, _ZERO | _FUNCTION | _VECTOR, accuracy=True),
    Elementwise("add", 2, "fciub", np.add, _ZERO | _VECTOR, (("add", (0, 1)),)),
    Elementwise("and", 2, "iub", np.bitwise_and, _ZERO | _SAME, (("and", (0, 1)),)),
    Elementwise("atan2", 2, "f", np.arctan2, _FUNCTION),
    Elementwise("maximum", 2, "fiub", np.maximum, _ZERO | _SAME | _VECTOR, (("max", (0, 1)),)),
    Elementwise("minimum", 2, "fiub", np.minimum, _ZERO | _SAME | _VECTOR, (("min", (0, 1)),)),
    Elementwise("multiply", 2, "fciub", np.multiply, _ZERO | _VECTOR, (("add", (0,)), ("add", (1,)))),
    Elementwise("or", 2, "iub", np.bitwise_or, _ZERO | _SAME, (("or", (0, 1)),)),
    Elementwise("power", 2, "fciu", numerics.power, _FUNCTION | _VECTOR),
    Elementwise("remainder", 2, "fiu", numerics.remainder, _DIVIDES),
    Elementwise("subtract", 2, "fciu", np.subtract, _ZERO | _VECTOR, (("add", (0, 1)),)),
    Elementwise("xor", 2, "iub", np.bitwise_xor, _ZERO, (("xor", (0, 1)),)),
    Elementwise("chlo.acos", 1, "fc", np.arccos, _FUNCTION),
    Elementwise("chlo.acosh", 1, "fc", np.arccosh, _FUNCTION),
    Elementwise("chlo.asin", 1, "fc", np.arcsin, _ZERO | _FUNCTION),
    Elementwise("chlo.asinh", 1, "fc", np.arcsinh, _ZERO | _FUNCTION),
    Elementwise("chlo.atan", 1, "fc", np.arctan, _ZERO | _FUNCTION),
    Elementwise("chlo.atanh", 1, "fc", np.arctanh, _ZERO | _FUNCTION),
    Elementwise("chlo.bessel_i1e", 1, "f", special.bessel_i1e, _FUNCTION),
    Elementwise("chlo.conj", 1, "fc", np.conj, Traits.NONE, _PARTIAL_SUMS),
    Elementwise("chlo.cosh", 1, "fc", np.cosh, _FUNCTION),
    Elementwise("chlo.digamma", 1, "f", special.digamma, _FUNCTION),
    Elementwise("chlo.erf", 1, "f", special.erf, _ZERO | _FUNCTION | _VECTOR),
    Elementwise("chlo.erf_inv", 1, "f", special.erf_inv, _ZERO | _FUNCTION),
    Elementwise("chlo.erfc", 1, "f", special.erfc, _FUNCTION),
    Elementwise("chlo.is_inf", 1, "f", np.isinf, _ZERO, result="i1"),
    Elementwise("chlo.is_neg_inf", 1, "f", np.isneginf, _ZERO, result="i1"),
    Elementwise("chlo.is_pos_inf", 1, "f", np.isposinf, _ZERO, result="i1"),
    Elementwise("chlo.lgamma", 1, "f", special.lgamma, _FUNCTION),
    Elementwise("chlo.sinh", 1, "fc", np.sinh, _ZERO | _FUNCTION),
    Elementwise("chlo.square", 1, "fc", np.square, _ZERO),
    Elementwise("chlo.tan", 1, "fc", np.tan, _ZERO | _FUNCTION | _VECTOR),
    Elementwise("chlo.polygamma", 2, "f", special.polygamma, _FUNCTION),
    Elementwise("chlo.zeta", 2, "f", special.zeta, _FUNCTION),
):
    register(_definition)


class _Division(Elementwise):
    """Division is linear in its dividend, except of integers, where it truncates."""

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return _PARTIAL_SUMS if is_float(operands[0].dtype) else ()


class _BitOp(Elementwise):
    """An op on the bits of integers: ``function`` gets the element's bit width as its last argument."""

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        dtype = mlir_dtype(arrays[0].dtype)
        bits = numerics.bit_width(dtype)
        return (numerics.pointwise(lambda *a: self.function(*a, bits), dtype, tuple(arrays)),)


class _NextAfter(Elementwise):
    """The neighbour in the operand's own type, so nothing is widened."""

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        with np.errstate(all="ignore"):
            return (np.asarray(np.nextafter(arrays[0], arrays[1])),)


class _Complex(Pointwise):
    """A complex number from its real and imaginary parts."""

    name = "complex"
    traits = _ZERO
    arity = 2

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        if operands[0].dtype != operands[1].dtype or operands[0].dtype not in ("f32", "f64"):
            raise ProgramError("the parts of a complex number are both f32 or both f64")
        return f"complex<{operands[0].dtype}>"

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return (("add", (0, 1)),)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        real, imaginary = np.broadcast_arrays(*arrays)
        out = np.empty(real.shape, numpy_dtype(f"complex<{mlir_dtype(real.dtype)}>"))
        out.real, out.imag = real, imaginary
        return (out,)


_COMPARISONS: dict[str, Function] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


class _Compare(Pointwise):
    """``comparison_direction`` EQ, NE, LT, LE, GT, GE; ``compare_type`` TOTALORDER orders NaN and -0 too."""

    name = "compare"
    arity = 2
    attributes = {"comparison_direction": codec.COMPARISON_DIRECTION, "compare_type": codec.COMPARISON_TYPE}

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        if operands[0].dtype != operands[1].dtype:
            raise ProgramError("operands have different element types; convert makes them equal")
        if attrs["comparison_direction"] not in _COMPARISONS:
            raise ProgramError(f"comparison direction {attrs['comparison_direction']!r} is none of EQ NE LT LE GT GE")
        if attrs.get("compare_type") == "TOTALORDER":
            require_class(operands[0], "f")
        return "i1"

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x, y = arrays
        if attrs.get("compare_type") == "TOTALORDER":
            x, y = numerics.total_order_key(x), numerics.total_order_key(y)
        return (numerics.pointwise(_COMPARISONS[attrs["comparison_direction"]], "i1", (x, y)),)


class _Select(Pointwise):
    """Operand 1 where the predicate holds, else operand 2; the predicate may be a scalar."""

    name = "select"
    traits = _ZERO | _SAME
    arity = 3

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 3)
        predicate, on_true, on_false = operands
        if predicate.dtype != "i1" or predicate.shape not in ((), on_true.shape):
            raise ProgramError("the predicate is an i1 scalar or has the shape of the other operands")
        if on_true != on_false:
            raise ProgramError("the two values have different types")
        return (on_true,)

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return tuple((monoid, (1, 2)) for monoid in monoids.of_dtype(operands[1].dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (np.where(*arrays),)


class _Clamp(Pointwise):
    """``minimum(maximum(operand, low), high)`` of (low, operand, high); the bounds may be scalars."""

    name = "clamp"
    traits = _ZERO | _SAME
    arity = 3

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 3)
        for bound in (operands[0], operands[2]):
            if bound.dtype != operands[1].dtype or bound.shape not in ((), operands[1].shape):
                raise ProgramError("a bound is a scalar or has the operand's shape, and its element type")
        return (operands[1],)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        low, x, high = arrays
        dtype = mlir_dtype(x.dtype)
        return (numerics.pointwise(lambda a, b, c: np.minimum(np.maximum(b, a), c), dtype, (low, x, high)),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return 2.0 * results[0].elements


class _Convert(Pointwise):
    """Convert every element to element type ``dtype``."""

    name = "convert"
    stated = ("dtype",)
    traits = _ZERO | _VECTOR

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        numpy_dtype(attrs["dtype"])
        return str(attrs["dtype"])

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        source, target = operands[0].dtype, attrs["dtype"]
        bits = numerics.bit_width(numerics.part_dtype(target)) - numerics.bit_width(numerics.part_dtype(source))
        if is_float(source) and is_float(target):
            exact = bits > 0 or source == target or target == f"complex<{source}>"
            return _PARTIAL_SUMS if exact and (numerics.is_complex(target) or not numerics.is_complex(source)) else ()
        # Dropping high bits commutes with wrapping sums; adding them does not, once a sum wraps.
        if numerics.is_integer(source) and numerics.is_integer(target) and bits <= 0:
            return _PARTIAL_SUMS
        return ()

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (numerics.convert(arrays[0], attrs["dtype"]),)


class _ReducePrecision(Pointwise):
    """Rounds to a float format of ``exponent_bits`` and ``mantissa_bits`` and back."""

    name = "reduce_precision"
    traits = _ZERO
    attributes = {"exponent_bits": codec.Integer(bits=32), "mantissa_bits": codec.Integer(bits=32)}

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        require_class(operands[0], "f")
        if attrs["exponent_bits"] < 1 or attrs["mantissa_bits"] < 0:
            raise ProgramError("needs at least 1 exponent bit and no negative number of mantissa bits")
        return operands[0].dtype

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (numerics.reduce_precision(arrays[0], attrs["exponent_bits"], attrs["mantissa_bits"]),)


for _definition in (
    _Division("divide", 2, "fciu", numerics.divide, _DIVIDES | _VECTOR),
    _BitOp("count_leading_zeros", 1, "iu", numerics.leading_zeros),
    _BitOp("popcnt", 1, "iu", numerics.count_bits, _ZERO),
    *(
        _BitOp(name, 2, "iu", lambda x, y, bits, kind=kind: numerics.shift(kind, x, y, bits), _ZERO)
        for name, kind in (("shift_left", "left"), ("shift_right_arithmetic", "arithmetic"),
                           ("shift_right_logical", "logical"))
    ),
    _NextAfter("chlo.next_after", 2, "f", np.nextafter),
):
    register(_definition)
for _other in (_Complex(), _Compare(), _Select(), _Clamp(), _Convert(), _ReducePrecision()):
    register(_other)
