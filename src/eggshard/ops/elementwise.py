"""Pointwise ops of StableHLO and CHLO: each result element depends on the operands' elements at its own index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics, special
from eggshard.ops.base import Arrays, Factor, FactorRule, OpDef, Types, register
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float, mlir_dtype, numpy_dtype

Linear = tuple[tuple[str, tuple[int, ...]], ...]
Function = Callable[..., Any]

#: Classes of element types that an op accepts: (f)loat, (c)omplex, (i)nteger, (u)nsigned, (b)oolean.
_CLASS_NAMES = {"f": "float", "c": "complex", "i": "signed integer", "u": "unsigned integer", "b": "i1"}


def dtype_class(dtype: str) -> str:
    """One letter of ``fciub``."""
    if dtype == "i1":
        return "b"
    if numerics.is_complex(dtype):
        return "c"
    if is_float(dtype):
        return "f"
    return "u" if numerics.is_unsigned(dtype) else "i"


def require_count(operands: Types, count: int) -> None:
    """ProgramError unless there are ``count`` operands."""
    if len(operands) != count:
        raise ProgramError(f"takes {count} operand{'s' * (count != 1)}, got {len(operands)}")


def require_class(type_: TensorType, classes: str) -> None:
    """ProgramError unless the element type belongs to one of the classes."""
    if dtype_class(type_.dtype) not in classes:
        accepted = ", ".join(_CLASS_NAMES[c] for c in classes)
        raise ProgramError(f"{type_} has an element type that it does not accept; accepted: {accepted}")


def pointwise_rule(operands: Types, shape: tuple[int, ...], linear: Linear = ()) -> FactorRule:
    """One pass factor per dimension; scalars among tensors belong to none."""
    whole = tuple((i,) for i in range(len(shape)))
    return FactorRule(
        tuple(Factor(n) for n in shape),
        tuple(whole if t.rank == len(shape) else () for t in operands),
        (whole,),
        linear,
    )


class Pointwise(OpDef):
    """Base of ops on operands of one shape. ``evaluate`` broadcasts, so scalars stand for whole tensors."""

    arity = 1

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, self.arity)
        for t in operands[1:]:
            if t.shape != operands[0].shape:
                raise ProgramError("operands have different shapes; broadcast_in_dim makes them equal")
        return (TensorType(operands[0].shape, self.result_dtype(attrs, operands)),)

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        """The result's element type; ProgramError for operand types that the op does not accept."""
        raise NotImplementedError(self.name)

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        """Linear entries of the sharding rule."""
        return ()

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return pointwise_rule(operands, results[0].shape, self.linear(attrs, operands))


class _Same(Pointwise):
    """An op on ``arity`` operands of one element type, whose result has that type (or ``result``)."""

    def __init__(self, name: str, arity: int, classes: str, function: Function, linear: Linear = (), *,
                 result: str = "", accuracy: bool = False, dialect: str = ""):
        self.name = f"{dialect}.{name}" if dialect else name
        self.mlir_name = self.name if dialect else ""
        self.arity, self.classes, self.function = arity, classes, function
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

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        dtype = mlir_dtype(arrays[0].dtype)
        result = numerics.part_dtype(dtype) if self.result == "part" else self.result or dtype
        return (numerics.pointwise(self.function, result, tuple(arrays)),)


def _round_half_away(x: np.ndarray) -> np.ndarray:
    magnitude = np.floor(np.abs(x))
    return np.asarray(np.copysign(np.where(np.abs(x) - magnitude >= 0.5, magnitude + 1, magnitude), x))


def _cbrt(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x))


_ADDENDS: Linear = (("add", (0,)),)

for _definition in (
    _Same("abs", 1, "fci", np.abs, result="part"),
    _Same("cbrt", 1, "fc", _cbrt, accuracy=True),
    _Same("ceil", 1, "f", np.ceil),
    _Same("cosine", 1, "fc", np.cos, accuracy=True),
    _Same("exponential", 1, "fc", np.exp, accuracy=True),
    _Same("exponential_minus_one", 1, "fc", np.expm1, accuracy=True),
    _Same("floor", 1, "f", np.floor),
    _Same("imag", 1, "fc", np.imag, _ADDENDS, result="part"),
    _Same("is_finite", 1, "f", np.isfinite, result="i1"),
    _Same("log", 1, "fc", np.log, accuracy=True),
    _Same("log_plus_one", 1, "fc", np.log1p, accuracy=True),
    _Same("logistic", 1, "fc", lambda x: 1 / (1 + np.exp(-x)), accuracy=True),
    _Same("negate", 1, "fciu", np.negative, _ADDENDS),
    _Same("not", 1, "iub", np.invert),
    _Same("real", 1, "fc", np.real, _ADDENDS, result="part"),
    _Same("round_nearest_afz", 1, "f", _round_half_away),
    _Same("round_nearest_even", 1, "f", np.rint),
    _Same("rsqrt", 1, "fc", lambda x: 1 / np.sqrt(x), accuracy=True),
    _Same("sign", 1, "fci", numerics.sign),
    _Same("sine", 1, "fc", np.sin, accuracy=True),
    _Same("sqrt", 1, "fc", np.sqrt, accuracy=True),
    _Same("tan", 1, "fc", np.tan, accuracy=True),
    _Same("tanh", 1, "fc", np.tanh, accuracy=True),
    _Same("add", 2, "fciub", np.add, (("add", (0, 1)),)),
    _Same("and", 2, "iub", np.bitwise_and, (("and", (0, 1)),)),
    _Same("atan2", 2, "f", np.arctan2),
    _Same("maximum", 2, "fiub", np.maximum, (("max", (0, 1)),)),
    _Same("minimum", 2, "fiub", np.minimum, (("min", (0, 1)),)),
    _Same("multiply", 2, "fciub", np.multiply, (("add", (0,)), ("add", (1,)))),
    _Same("or", 2, "iub", np.bitwise_or, (("or", (0, 1)),)),
    _Same("power", 2, "fciu", numerics.power),
    _Same("remainder", 2, "fiu", numerics.remainder),
    _Same("subtract", 2, "fciu", np.subtract, (("add", (0, 1)),)),
    _Same("xor", 2, "iub", np.bitwise_xor, (("xor", (0, 1)),)),
    *(
        _Same(name, 1, classes, function, dialect="chlo")
        for name, classes, function in (
            ("acos", "fc", np.arccos),
            ("acosh", "fc", np.arccosh),
            ("asin", "fc", np.arcsin),
            ("asinh", "fc", np.arcsinh),
            ("atan", "fc", np.arctan),
            ("atanh", "fc", np.arctanh),
            ("bessel_i1e", "f", special.bessel_i1e),
            ("cosh", "fc", np.cosh),
            ("digamma", "f", special.digamma),
            ("erf", "f", special.erf),
            ("erf_inv", "f", special.erf_inv),
            ("erfc", "f", special.erfc),
            ("lgamma", "f", special.lgamma),
            ("sinh", "fc", np.sinh),
            ("square", "fc", np.square),
            ("tan", "fc", np.tan),
        )
    ),
    _Same("conj", 1, "fc", np.conj, _ADDENDS, dialect="chlo"),
    _Same("is_inf", 1, "f", np.isinf, result="i1", dialect="chlo"),
    _Same("is_neg_inf", 1, "f", np.isneginf, result="i1", dialect="chlo"),
    _Same("is_pos_inf", 1, "f", np.isposinf, result="i1", dialect="chlo"),
    _Same("polygamma", 2, "f", special.polygamma, dialect="chlo"),
    _Same("zeta", 2, "f", special.zeta, dialect="chlo"),
):
    register(_definition)


class _Division(_Same):
    """Division is linear in its dividend, except of integers, where it truncates."""

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return _ADDENDS if is_float(operands[0].dtype) else ()


class _BitOp(_Same):
    """An op on the bits of integers: ``function`` gets the element's bit width as its last argument."""

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        dtype = mlir_dtype(arrays[0].dtype)
        bits = numerics.bit_width(dtype)
        return (numerics.pointwise(lambda *a: self.function(*a, bits), dtype, tuple(arrays)),)


class _NextAfter(_Same):
    """The neighbour in the operand's own type, so nothing is widened."""

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(np.nextafter(arrays[0], arrays[1])),)


class _Complex(Pointwise):
    """A complex number from its real and imaginary parts."""

    name = "complex"
    arity = 2

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        if operands[0].dtype != operands[1].dtype or operands[0].dtype not in ("f32", "f64"):
            raise ProgramError("the parts of a complex number are both f32 or both f64")
        return f"complex<{operands[0].dtype}>"

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return (("add", (0, 1)),)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
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
        return "i1"

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        x, y = arrays
        if attrs.get("compare_type") == "TOTALORDER":
            x, y = numerics.total_order_key(x), numerics.total_order_key(y)
        return (numerics.pointwise(_COMPARISONS[attrs["comparison_direction"]], "i1", (x, y)),)


class _Select(Pointwise):
    """Operand 1 where the predicate holds, else operand 2; the predicate may be a scalar."""

    name = "select"
    arity = 3

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 3)
        predicate, on_true, on_false = operands
        if predicate.dtype != "i1" or predicate.shape not in ((), on_true.shape):
            raise ProgramError("the predicate is an i1 scalar or has the shape of the other operands")
        if on_true != on_false:
            raise ProgramError("the two values have different types")
        return (on_true,)

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        return tuple((monoid, (1, 2)) for monoid in monoids.of_dtype(operands[1].dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        return (np.where(*arrays),)


class _Clamp(Pointwise):
    """``minimum(maximum(operand, low), high)`` of (low, operand, high); the bounds may be scalars."""

    name = "clamp"
    arity = 3

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 3)
        for bound in (operands[0], operands[2]):
            if bound.dtype != operands[1].dtype or bound.shape not in ((), operands[1].shape):
                raise ProgramError("a bound is a scalar or has the operand's shape, and its element type")
        return (operands[1],)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        low, x, high = arrays
        dtype = mlir_dtype(x.dtype)
        return (numerics.pointwise(lambda a, b, c: np.minimum(np.maximum(b, a), c), dtype, (low, x, high)),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return 2.0 * results[0].elements


class _Convert(Pointwise):
    """The same numbers in element type ``dtype``."""

    name = "convert"

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        numpy_dtype(attrs["dtype"])
        return str(attrs["dtype"])

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        source, target = operands[0].dtype, attrs["dtype"]
        bits = numerics.bit_width(numerics.part_dtype(target)) - numerics.bit_width(numerics.part_dtype(source))
        if is_float(source) and is_float(target):
            exact = bits > 0 or source == target or target == f"complex<{source}>"
            return _ADDENDS if exact and (numerics.is_complex(target) or not numerics.is_complex(source)) else ()
        # Dropping high bits commutes with wrapping sums; adding them does not, once a sum wraps.
        if numerics.is_integer(source) and numerics.is_integer(target) and bits <= 0:
            return _ADDENDS
        return ()

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        return (numerics.convert(arrays[0], attrs["dtype"]),)

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return {**attrs, "dtype": results[0].dtype}


class _ReducePrecision(Pointwise):
    """Rounds to a float format of ``exponent_bits`` and ``mantissa_bits`` and back."""

    name = "reduce_precision"
    attributes = {"exponent_bits": codec.Integer(bits=32), "mantissa_bits": codec.Integer(bits=32)}

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        require_class(operands[0], "f")
        if attrs["exponent_bits"] < 1 or attrs["mantissa_bits"] < 0:
            raise ProgramError("needs at least 1 exponent bit and no negative number of mantissa bits")
        return operands[0].dtype

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        return (numerics.reduce_precision(arrays[0], attrs["exponent_bits"], attrs["mantissa_bits"]),)


for _definition in (
    _Division("divide", 2, "fciu", numerics.divide),
    _BitOp("count_leading_zeros", 1, "iu", numerics.leading_zeros),
    _BitOp("popcnt", 1, "iu", numerics.count_bits),
    *(
        _BitOp(name, 2, "iu", lambda x, y, bits, kind=kind: numerics.shift(kind, x, y, bits))
        for name, kind in (("shift_left", "left"), ("shift_right_arithmetic", "arithmetic"),
                           ("shift_right_logical", "logical"))
    ),
    _NextAfter("next_after", 2, "f", np.nextafter, dialect="chlo"),
):
    register(_definition)
for _other in (_Complex(), _Compare(), _Select(), _Clamp(), _Convert(), _ReducePrecision()):
    register(_other)
