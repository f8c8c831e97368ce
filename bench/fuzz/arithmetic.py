"""Lines that compute index by index, or choose element types."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, template
from bench.fuzz.values import DTYPES, Value

#: Functions that are smooth wherever they are given something finite; within (-1, 1); and from 1 to 2.
_SMOOTH = ("jnp.tanh", "jnp.sin", "jnp.cos", "jax.nn.sigmoid", "lax.erf", "jnp.arctan", "jnp.square", "lax.bessel_i1e")
_INSIDE = ("jnp.exp", "jnp.expm1", "jnp.log1p", "jnp.sinh", "jnp.cosh", "jnp.tan", "jnp.arcsin", "jnp.arccos",
           "jnp.arctanh", "jnp.arcsinh", "lax.erf_inv", "lax.erfc")  # fmt: skip
_POSITIVE = ("jnp.log", "jnp.sqrt", "lax.rsqrt", "jnp.cbrt", "lax.lgamma", "lax.digamma")


def _number(v: Value) -> bool:
    return v.dtype != "bool"


def _real(v: Value) -> bool:
    return _number(v) and not v.complex


def _float(v: Value) -> bool:
    return v.dtype in ("float32", "float64", "bfloat16", "float16")


def _settled(v: Value) -> bool:
    """Jumps may look at it."""
    return _real(v) and v.exact


def _other(d: Draw, x: Value) -> Value:
    """An exact value like x and not x itself, of which compilers would know the result."""
    y = d.like(x)
    return d.fresh(x.shape, x.dtype) if y is x or not y.exact else y


@template(4.0)
def binary(d: Draw) -> Value:
    x = d.pick(_number)
    y = d.like(x)
    op = d.rng.choice("+-*")
    return d.add(f"{x.name} {op} {y.name}", x, y, bound=x.bound * y.bound if op == "*" else x.bound + y.bound)


@template(2.0)
def with_a_scalar(d: Draw) -> Value:
    x = d.pick(_number)
    op, c = d.rng.choice("+-*"), d.rng.choice((1, 2, 3) if x.dtype.startswith("u") else (-3, -2, -1, 1, 2, 3))
    return d.add(f"{x.name} {op} {c}", x, bound=x.bound * abs(c) if op == "*" else x.bound + abs(c))


@template(2.0)
def extremum(d: Draw) -> Value:
    x = d.pick(lambda v: not v.complex and v.exact)
    y = d.like(x)
    if not y.exact:
        y = x
    return d.add(f"lax.{d.rng.choice(('max', 'min'))}({x.name}, {y.name})", x, y, bound=max(x.bound, y.bound))


@template(1.5)
def unary(d: Draw) -> Value:
    x = d.pick(lambda v: v.exact)
    if x.dtype == "bool":
        return d.add(f"~{x.name}", x, bound=0.0)
    if x.complex:
        form = d.rng.choice(("-{}", "jnp.conj({})", "jnp.real({})", "jnp.imag({})"))
        return d.add(form.format(x.name), x, bound=x.bound)
    form = d.rng.choice(("-{}", "jnp.abs({})", "jnp.sign({})", "jnp.maximum({}, 0)"))
    return d.add(form.format(x.name), x, bound=max(x.bound, 1.0))


@template(1.5)
def smooth(d: Draw) -> Value:
    x = d.pick(_float)
    names, argument = d.rng.choice(
        (
            (_SMOOTH, "{}"),
            (_INSIDE, "0.5 * jnp.clip({}, -1, 1)"),
            (_POSITIVE, "1.5 + 0.5 * jnp.clip({}, -1, 1)"),
        )
    )
    return d.add(f"{d.rng.choice(names)}({argument.format(x.name)})", x, bound=math.inf)


@template(0.5)
def smooth_pair(d: Draw) -> Value:
    x = d.pick(_float)
    y = d.like(x)
    name = d.rng.choice(("jnp.power", "jnp.arctan2", "jnp.hypot", "jnp.logaddexp", "lax.nextafter"))
    positive = [f"1.5 + 0.5 * jnp.clip({v.name}, -1, 1)" for v in (x, y)]
    return d.add(f"{name}({', '.join(positive)})", x, y, bound=math.inf)


@template(0.7)
def rounding(d: Draw) -> Value:
    x = d.pick(lambda v: _float(v) and v.exact)
    form = d.rng.choice(
        (
            "jnp.floor({} / 2)",
            "jnp.ceil({} / 2)",
            "lax.round({} / 2, lax.RoundingMethod.AWAY_FROM_ZERO)",
            "lax.round({} / 2, lax.RoundingMethod.TO_NEAREST_EVEN)",
            "lax.reduce_precision({}, 8, 6)",
        )
    )
    return d.add(form.format(x.name), x, bound=2 * x.bound)


@template(0.4)
def barrier(d: Draw) -> Value:
    x = d.pick()
    return d.add(f"lax.optimization_barrier({x.name})", x, bound=x.bound)


@template(0.7)
def quotient(d: Draw) -> Value:
    x = d.pick(lambda v: v.dtype in ("float32", "float64"))
    y = d.like(x)
    return d.add(f"{x.name} / (1 + {y.name} * {y.name})", x, y, bound=math.inf)


@template(1.0)
def whole_quotient(d: Draw) -> Value:
    x = d.pick(lambda v: v.integer)
    y = d.like(x) if d.chance(0.5) else None
    divisor = y.name if y else f"jnp.asarray({d.rng.randint(2, 7)}, {x.text})"
    op = d.rng.choice(("lax.div", "lax.rem"))
    return d.add(f"{op}({x.name}, jnp.broadcast_to({divisor}, {x.shape}))", x, *([y] if y else []), bound=0.0)


@template(1.0)
def bits(d: Draw) -> Value:
    x = d.pick(lambda v: v.integer or v.dtype == "bool")
    y = _other(d, x)
    if x.dtype == "bool" or d.chance(0.5):
        return d.add(f"{x.name} {d.rng.choice('&|^')} {y.name}", x, y, bound=0.0)
    form = d.rng.choice(
        (
            "lax.shift_left({0}, {1})",
            "lax.shift_right_logical({0}, {1})",
            "lax.shift_right_arithmetic({0}, {1})",
            "lax.population_count({0}) ^ {1}",
            "lax.clz({0}) ^ {1}",
        )
    )
    return d.add(form.format(x.name, y.name), x, y, bound=0.0)


@template(2.0)
def comparison(d: Draw) -> Value:
    x = d.pick(lambda v: v.exact and not v.complex)
    y = _other(d, x)
    return d.add(f"{x.name} {d.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {y.name}", x, y, bound=0.0)


@template(2.0)
def selection(d: Draw) -> Value:
    p = d.pick(lambda v: v.dtype == "bool")
    candidates = [v for v in d.values if v.shape == p.shape] or [d.fresh(p.shape, "float32")]
    x = d.rng.choice(candidates)
    y = d.like(x)
    return d.add(f"jnp.where({p.name}, {x.name}, {y.name})", p, x, y, bound=max(x.bound, y.bound))


@template(0.7)
def clamp(d: Draw) -> Value:
    x = d.pick(_settled)
    low, high = d.rng.randint(0, 2), d.rng.randint(3, 5)
    return d.add(f"jnp.clip({x.name}, {low}, {high})", x, bound=max(x.bound, high))


@template(2.0)
def conversion(d: Draw) -> Value:
    x = d.pick(_settled if d.chance(0.7) else lambda v: v.exact and not v.complex)
    target = d.rng.choice(DTYPES)
    wide = 0.0 if x.inexact else math.inf
    if x.dtype == "bool":
        wide = 1.0
    if target.startswith("u") and x.inexact:
        return d.add(f"jnp.abs({x.name}).astype(jnp.int32).astype(jnp.{target})", x, bound=0.0)
    if target == "int8" and x.inexact and x.bound > 100:
        target = "int32"
    return d.add(f"{x.name}.astype({'bool' if target == 'bool' else 'jnp.' + target})", x, bound=max(wide, x.bound))


@template(0.4)
def complex_parts(d: Draw) -> Value:
    x = d.pick(lambda v: v.dtype == "float32")
    y = d.like(x)
    return d.add(f"lax.complex({x.name}, {y.name})", x, y, bound=max(x.bound, y.bound))


@template(0.4)
def bit_cast(d: Draw) -> Value:
    x = d.pick(lambda v: v.dtype in ("int32", "uint32", "int8", "uint8", "int16", "uint16"))
    to = {"int32": "uint32", "uint32": "int32", "int8": "uint8", "uint8": "int8", "int16": "uint16", "uint16": "int16"}
    target = to[x.dtype] if d.chance(0.6) else d.rng.choice(("int8", "uint16", "int32"))
    return d.add(f"lax.bitcast_convert_type({x.name}, jnp.{target})", x, bound=0.0)


@template(0.3)
def is_finite(d: Draw) -> Value:
    x = d.pick(lambda v: v.dtype in ("float32", "bfloat16", "float64"))
    return d.add(f"jnp.isfinite({x.name})", x, bound=0.0)


@template(0.4)
def whole_power(d: Draw) -> Value:
    x = d.pick(lambda v: v.integer or v.dtype in ("float32", "float64"))
    n = d.rng.randint(2, 3)
    return d.add(f"lax.integer_pow({x.name}, {n})", x, bound=x.bound**n)
