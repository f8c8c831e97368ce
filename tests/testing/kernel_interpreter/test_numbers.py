"""Integers and floats, op by op, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from testing.kernel_interpreter.elements import constant, dtype_of, rounded
from tests.testing.kernel_interpreter.single_ops import apply

from eggshard.errors import ProgramError

RNG = np.random.default_rng(1)
WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def numbers(kind: str, count: int = 60) -> Any:
    """Integers of a type, the extreme ones and small ones among them."""
    bits = WIDTHS[kind]
    found = [int.from_bytes(RNG.bytes(8), "little") >> (64 - bits) for _ in range(count)]
    found[:8] = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 2, 3, 7]
    found = [n & ((1 << bits) - 1) for n in found]
    RNG.shuffle(found)
    return np.array([n - (1 << 64) if n >> 63 else n for n in found]).astype(np.int64).astype(dtype_of(kind)) \
        if bits > 1 else np.array(found, bool)


def signed(value: Any, bits: int) -> int:
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


def unsigned(value: Any, bits: int) -> int:
    return int(value) & ((1 << bits) - 1)


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "addi": (unsigned, lambda a, b, n: a + b), "subi": (unsigned, lambda a, b, n: a - b),
    "muli": (unsigned, lambda a, b, n: a * b), "andi": (unsigned, lambda a, b, n: a & b),
    "ori": (unsigned, lambda a, b, n: a | b), "xori": (unsigned, lambda a, b, n: a ^ b),
    "divsi": (signed, lambda a, b, n: toward_zero(a, b) if b else None),
    "divui": (unsigned, lambda a, b, n: a // b if b else None),
    "remsi": (signed, lambda a, b, n: a - toward_zero(a, b) * b if b else None),
    "remui": (unsigned, lambda a, b, n: a % b if b else None),
    "floordivsi": (signed, lambda a, b, n: a // b if b else None),
    "ceildivsi": (signed, lambda a, b, n: -(-a // b) if b else None),
    "ceildivui": (unsigned, lambda a, b, n: -(-a // b) if b else None),
    "shli": (unsigned, lambda a, b, n: a << b if b < n else None),
    "shrui": (unsigned, lambda a, b, n: a >> b if b < n else None),
    "shrsi": (signed, lambda a, b, n: a >> b if 0 <= b < n else None),
    "maxsi": (signed, lambda a, b, n: max(a, b)), "minsi": (signed, lambda a, b, n: min(a, b)),
    "maxui": (unsigned, lambda a, b, n: max(a, b)), "minui": (unsigned, lambda a, b, n: min(a, b)),
}


@pytest.mark.parametrize("kind", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
def test_integer_arithmetic(name: str, kind: str) -> None:
    a, b = numbers(kind), numbers(kind)
    if name.startswith("sh"):
        b[:30] = RNG.integers(0, WIDTHS[kind], 30)
    type_ = f"tensor<60x{kind}>"
    (found,) = apply(f"arith.{name}", [(type_, a), (type_, b)], [type_])
    read, exact = BINARY[name]
    for x, y, z in zip(a, b, found, strict=True):
        expected = exact(read(x, WIDTHS[kind]), read(y, WIDTHS[kind]), WIDTHS[kind])
        if expected is not None:
            assert unsigned(z, WIDTHS[kind]) == unsigned(expected, WIDTHS[kind]), (x, y)


@pytest.mark.parametrize("kind", WIDTHS)
def test_integer_comparisons(kind: str) -> None:
    a, b = numbers(kind), numbers(kind)
    b[::4] = a[::4]
    tests = [lambda x, y: x == y, lambda x, y: x != y, lambda x, y: x < y, lambda x, y: x <= y, lambda x, y: x > y,
             lambda x, y: x >= y]
    for predicate in range(10):
        type_, result = f"tensor<60x{kind}>", "tensor<60xi1>"
        (found,) = apply("arith.cmpi", [(type_, a), (type_, b)], [result], f"predicate = {predicate} : i64")
        read = unsigned if predicate >= 6 else signed
        test = tests[predicate if predicate < 6 else predicate - 4]
        assert [bool(f) for f in found] == [test(read(x, WIDTHS[kind]), read(y, WIDTHS[kind]))
                                            for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("kind", ["i8", "i32", "i64"])
def test_wide_products_and_counts(kind: str) -> None:
    bits = WIDTHS[kind]
    a, b = numbers(kind), numbers(kind)
    type_ = f"tensor<60x{kind}>"
    pair = [(type_, a), (type_, b)]
    (high,) = apply("tt.mulhiui", pair, [type_])
    low_u, high_u = apply("arith.mului_extended", pair, [type_, type_])
    low_s, high_s = apply("arith.mulsi_extended", pair, [type_, type_])
    total, carry = apply("arith.addui_extended", pair, [type_, "tensor<60xi1>"])
    (ones,), (leading,), (trailing,) = (apply(f"math.{name}", pair[:1], [type_]) for name in ("ctpop", "ctlz", "cttz"))
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        u, s = unsigned(x, bits) * unsigned(y, bits), signed(x, bits) * signed(y, bits)
        mask = (1 << bits) - 1
        assert unsigned(high[i], bits) == unsigned(high_u[i], bits) == u >> bits
        assert unsigned(low_u[i], bits) == unsigned(low_s[i], bits) == u & mask
        assert unsigned(high_s[i], bits) == s >> bits & mask
        added = unsigned(x, bits) + unsigned(y, bits)
        assert unsigned(total[i], bits) == added & mask and bool(carry[i]) == bool(added >> bits)
        text = f"{unsigned(x, bits):0{bits}b}"
        assert int(ones[i]) == text.count("1")
        assert int(leading[i]) == len(text) - len(text.lstrip("0"))
        assert int(trailing[i]) == len(text) - len(text.rstrip("0"))


def test_integer_casts() -> None:
    a = numbers("i32")
    for target in ("i64", "i8", "i1"):
        name = "ext" if target == "i64" else "trunc"
        for sign in ("s", "u") if name == "ext" else ("",):
            (found,) = apply(f"arith.{name}{sign}i", [("tensor<60xi32>", a)], [f"tensor<60x{target}>"])
            read = unsigned if sign == "u" else signed
            for x, y in zip(a, found, strict=True):
                assert unsigned(y, WIDTHS[target]) == unsigned(read(x, 32), WIDTHS[target])
    ones = np.array([True, False])
    assert apply("arith.extsi", [("tensor<2xi1>", ones)], ["tensor<2xi8>"])[0].tolist() == [-1, 0]
    assert apply("arith.extui", [("tensor<2xi1>", ones)], ["tensor<2xi8>"])[0].tolist() == [1, 0]
    assert apply("arith.sitofp", [("tensor<2xi1>", ones)], ["tensor<2xf32>"])[0].tolist() == [-1.0, 0.0]
    assert apply("arith.uitofp", [("tensor<2xi1>", ones)], ["tensor<2xf32>"])[0].tolist() == [1.0, 0.0]


def representable(dtype: Any) -> tuple[Any, Any]:
    """All finite numbers of a type of 8 or 16 bits, in order, as f64; and their values in the type."""
    every = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(all="ignore"):
        values = every.astype(np.float64)
    kept = np.isfinite(values)
    order = np.argsort(values[kept], kind="stable")
    return values[kept][order], every[kept][order]


SMALL = ["f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"]


@pytest.mark.parametrize("element", SMALL)
def test_rounding_to_small_floats(element: str) -> None:
    dtype = dtype_of(element)
    values, _ = representable(dtype)
    values = np.unique(values)
    middles = (values[1:] + values[:-1]) / 2
    picked = RNG.choice(middles, 200)
    near = np.concatenate([values, picked, np.nextafter(picked, np.inf), np.nextafter(picked, -np.inf),
                           RNG.uniform(-4, 4, 500), RNG.uniform(values[0], values[-1], 500)])
    source = near[np.abs(near) <= values[-1]].astype(np.float32)
    exact = source.astype(np.float64)
    above = np.clip(np.searchsorted(values, exact), 0, len(values) - 1)
    below = np.clip(above - (values[above] > exact), 0, len(values) - 1)
    for zero in (False, True):
        found = rounded(source, dtype, toward_zero=zero).astype(np.float64)
        if zero:
            expected = np.where(exact >= 0, values[below], values[above])
            np.testing.assert_array_equal(found, expected)
        else:
            error = np.abs(found - exact)
            best = np.minimum(np.abs(values[above] - exact), np.abs(values[below] - exact))
            np.testing.assert_array_equal(error, best)
            ties = (np.abs(values[above] - exact) == np.abs(values[below] - exact)) & (above != below)
            bits = rounded(source, dtype).view(f"u{dtype.itemsize}")
            assert not (bits[ties] & 1).any()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_overflow_and_nan() -> None:
    source = np.array([1e30, -1e30, np.inf, np.nan], np.float32)
    assert rounded(source, dtype_of("f16")).astype(np.float32).tolist()[:3] == [np.inf, -np.inf, np.inf]
    for element, largest in (("f8E4M3FN", 448.0), ("f8E5M2", 57344.0)):
        found = rounded(source, dtype_of(element)).astype(np.float32)
        assert found.tolist()[:3] == [largest, -largest, largest] and np.isnan(found[3])
    assert rounded(source[:1], dtype_of("f16"), toward_zero=True).astype(np.float32).tolist() == [65504.0]


def nearest_single(value: Fraction) -> np.float32:
    """A fraction as f32, rounded once."""
    guess = np.float32(float(value))
    candidates = [guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.uint32)) & 1))


def test_fused_multiply_add_rounds_once() -> None:
    a = RNG.standard_normal(400).astype(np.float32)
    b = RNG.standard_normal(400).astype(np.float32)
    c = (-a.astype(np.float64) * b * (1 + RNG.standard_normal(400) * 1e-6)).astype(np.float32)
    c[200:] = (RNG.standard_normal(200) * 2.0 ** RNG.integers(-60, 60, 200)).astype(np.float32)
    # halfway between two floats but for a product far below
    a[:2], b[:2], c[:2] = [2 ** -30, -(2 ** -30)], 2.0 ** -30, 1.0
    a[2:4], b[2:4], c[2:4] = 1 + 2.0 ** -12, 1 + 2.0 ** -12, [2.0 ** -60, -(2.0 ** -60)]
    type_ = "tensor<400xf32>"
    (found,) = apply("math.fma", [(type_, a), (type_, b), (type_, c)], [type_])
    for x, y, z, r in zip(a, b, c, found, strict=True):
        assert r == nearest_single(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def test_large_integers_as_small_floats() -> None:
    a = numbers("i32", 400)
    (found,) = apply("arith.sitofp", [("tensor<400xi32>", a)], ["tensor<400xbf16>"])
    values = np.unique(representable(dtype_of("bf16"))[0])
    for x, y in zip(a.astype(np.float64), found.astype(np.float64), strict=True):
        i = np.searchsorted(values, x)
        assert abs(y - x) == min(abs(values[i] - x), abs(values[i - 1] - x))


def test_floats_as_integers() -> None:
    a = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf, 255.5], np.float32)
    (found,) = apply("arith.fptosi", [("tensor<7xf32>", a)], ["tensor<7xi32>"])
    assert found.tolist() == [1, -1, 2 ** 31 - 1, -2 ** 31, 0, 2 ** 31 - 1, 255]
    (found,) = apply("arith.fptoui", [("tensor<7xf32>", a)], ["tensor<7xi8>"])
    assert found.view(np.uint8).tolist() == [1, 0, 255, 0, 0, 255, 255]


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], np.float32)


def pairs() -> tuple[Any, Any]:
    return np.repeat(SPECIAL, 7), np.tile(SPECIAL, 7)


def test_float_comparisons() -> None:
    a, b = pairs()
    unordered = np.isnan(a) | np.isnan(b)
    ordered = [a == b, a > b, a >= b, a < b, a <= b, (a != b) & ~unordered]
    expected = [np.zeros(49, bool), *(o & ~unordered for o in ordered), ~unordered, *(o | unordered for o in ordered),
                unordered, np.ones(49, bool)]
    for element in ("f32", "bf16", "f16"):
        type_ = f"tensor<49x{element}>"
        operands = [(type_, v.astype(dtype_of(element))) for v in (a, b)]
        for predicate, answer in enumerate(expected):
            (found,) = apply("arith.cmpf", operands, ["tensor<49xi1>"], f"predicate = {predicate} : i64")
            np.testing.assert_array_equal(found, answer, err_msg=f"{element} {predicate}")


def larger(a: float, b: float) -> float:
    return max(a, b) if a != b else (a if math.copysign(1, a) > math.copysign(1, b) else b)


@pytest.mark.parametrize("element", ["f32", "bf16", "f16", "f64"])
def test_maxima_and_minima(element: str) -> None:
    a, b = pairs()
    type_ = f"tensor<49x{element}>"
    operands = [(type_, v.astype(dtype_of(element))) for v in (a, b)]
    for name, largest, keeps in (("maximumf", True, True), ("minimumf", False, True), ("maxnumf", True, False),
                                 ("minnumf", False, False)):
        (found,) = apply(f"arith.{name}", operands, [type_])
        for x, y, z in zip(a.tolist(), b.tolist(), found.astype(np.float64).tolist(), strict=True):
            if math.isnan(x) or math.isnan(y):
                expected = math.nan if keeps else (y if math.isnan(x) else x)
            else:
                expected = larger(x, y) if largest else -larger(-x, -y)
            assert (math.isnan(z) and math.isnan(expected)) or (
                z == expected and math.copysign(1, z) == math.copysign(1, expected)), (name, x, y)


def test_clamps() -> None:
    a = np.array([np.nan, -3, 0.5, 9], np.float32)
    low, high = np.zeros(4, np.float32), np.ones(4, np.float32)
    operands = [("tensor<4xf32>", v) for v in (a, low, high)]
    (found,) = apply("tt.clampf", operands, ["tensor<4xf32>"], "propagateNan = 0 : i32")
    assert found.tolist() == [0, 0, 0.5, 1]
    (found,) = apply("tt.clampf", operands, ["tensor<4xf32>"], "propagateNan = 65535 : i32")
    assert np.isnan(found[0]) and found[1:].tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("element", ["bf16", "f16", "f32", "f64"])
def test_arithmetic_in_the_elements_own_precision(element: str) -> None:
    dtype = dtype_of(element)
    a, b = (RNG.standard_normal(300).astype(dtype) for _ in range(2))
    type_ = f"tensor<300x{element}>"
    wide = [v.astype(np.longdouble) for v in (a, b)]
    for name, function in (("addf", np.add), ("subf", np.subtract), ("mulf", np.multiply), ("divf", np.divide)):
        (found,) = apply(f"arith.{name}", [(type_, a), (type_, b)], [type_])
        exact = function(*wide)
        expected = exact.astype(np.float64 if element == "f64" else np.float32)
        np.testing.assert_array_equal(found, expected.astype(dtype) if element != "f64" else function(a, b))


FUNCTIONS = {
    "exp": math.exp, "exp2": lambda x: 2.0 ** x, "expm1": math.expm1, "sin": math.sin, "cos": math.cos,
    "tanh": math.tanh, "erf": math.erf, "floor": math.floor, "ceil": math.ceil, "atan": math.atan, "absf": abs,
    "round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x), "roundeven": round, "trunc": math.trunc,
    "sqrt": lambda x: math.sqrt(abs(x)), "rsqrt": lambda x: 1 / math.sqrt(abs(x)), "log": lambda x: math.log(abs(x)),
    "log2": lambda x: math.log2(abs(x)), "log1p": lambda x: math.log1p(abs(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    a = np.concatenate([RNG.standard_normal(96) * 3, [0.5, -0.5, 1.5, 2.5]]).astype(np.float32)
    a = np.abs(a) if name in ("sqrt", "rsqrt", "log", "log2", "log1p") else a
    (found,) = apply(f"math.{name}", [("tensor<100xf32>", a)], ["tensor<100xf32>"])
    np.testing.assert_allclose(found, [FUNCTIONS[name](float(x)) for x in a], rtol=3e-7, atol=1e-7)


def test_library_functions() -> None:
    a = np.linspace(0.1, 2, 8).astype(np.float32)
    one, both = [("tensor<8xf32>", a)], [("tensor<8xf32>", a), ("tensor<8xf32>", a[::-1].copy())]
    for symbol, operands, expected in (
        ("__nv_tanhf", one, np.tanh(a)), ("__nv_fast_expf", one, np.exp(a)), ("__ocml_exp2_f32", one, np.exp2(a)),
        ("__nv_powf", both, a ** a[::-1]), ("__ocml_pow_f32", both, a ** a[::-1]), ("__nv_rintf", one, np.rint(a)),
        ("__nv_fmaxf", both, np.fmax(a, a[::-1])), ("__nv_fabsf", one, a), ("__nv_fdiv_rn", both, a / a[::-1]),
        ("__nv_rsqrtf", one, 1 / np.sqrt(a)), ("__nv_fmodf", both, np.fmod(a, a[::-1])),
        ("__nv_log1pf", one, np.log1p(a)),
    ):
        (found,) = apply("tt.extern_elementwise", operands, ["tensor<8xf32>"],
                         f'libname = "", libpath = "", pure = true, symbol = "{symbol}"')
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=symbol)
    (found,) = apply("tt.extern_elementwise", one, ["tensor<8xi32>"],
                     'libname = "", libpath = "", pure = true, symbol = "__nv_isnanf"')
    assert not found.any()
    with pytest.raises(ProgramError, match="__nv_unheard_of"):
        apply("tt.extern_elementwise", one, ["tensor<8xf32>"], 'pure = true, symbol = "__nv_unheard_of"')
    with pytest.raises(ProgramError, match="__nv_fadd_ru"):  # another rounding than to nearest
        apply("tt.extern_elementwise", both, ["tensor<8xf32>"], 'pure = true, symbol = "__nv_fadd_ru"')


def test_constants() -> None:
    assert constant("7 : i32") == 7 and constant("true").dtype == np.bool_
    assert constant("-1 : i8") == -1 and constant("255 : i8") == -1
    assert constant("0xFF800000 : f32") == -np.inf and np.isnan(constant("0x7FC0 : bf16").astype(np.float32))
    assert constant("dense<1.5> : tensor<2x2xf16>").tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert constant("dense<[[1, -2], [3, 4]]> : tensor<2x2xi64>").tolist() == [[1, -2], [3, 4]]
    assert constant("dense<[true, false]> : tensor<2xi1>").tolist() == [True, False]
    assert constant('dense<"0x01000000FEFFFFFF"> : tensor<2xi32>').tolist() == [1, -2]
    assert constant("dense<0xFF800000> : tensor<2xf32, #ttg.blocked<{order = [0]}>>").tolist() == [-np.inf] * 2
    assert constant("4.480000e+02 : f8E4M3FN").dtype == ml_dtypes.float8_e4m3fn
    with pytest.raises(ProgramError, match="vector"):
        constant("dense<1> : vector<2xi32>")
