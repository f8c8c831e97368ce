"""Lines that combine elements: reductions, products, convolutions, windows, sorts."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, Inapplicable, template
from bench.fuzz.values import Value


def _axes(d: Draw, x: Value) -> tuple[int, ...]:
    return tuple(i for i in range(x.rank) if d.chance(0.5)) or (d.rng.randrange(x.rank),)


def _settled(v: Value) -> bool:
    return v.rank >= 1 and v.exact and not v.complex


@template(3.0)
def total(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.dtype != "bool")
    axes = _axes(d, x)
    count = math.prod(x.shape[i] for i in axes)
    return d.add(f"jnp.sum({x.name}, {axes}, dtype={x.text}, keepdims={d.chance(0.4)})", x, bound=x.bound * count,
                 sums=True)  # fmt: skip


@template(2.0)
def extreme(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool")
    name = d.rng.choice(("max", "min"))
    return d.add(f"jnp.{name}({x.name}, {_axes(d, x)}, keepdims={d.chance(0.4)})", x, bound=x.bound)


@template(1.0)
def truth(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.dtype == "bool")
    return d.add(f"jnp.{d.rng.choice(('any', 'all'))}({x.name}, {_axes(d, x)})", x, bound=0.0)


@template(0.7)
def product(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.integer)
    return d.add(f"jnp.prod({x.name}, {_axes(d, x)}, dtype={x.text})", x, bound=0.0)


@template(0.7)
def own_reduction(d: Draw) -> Value:
    """A reduction whose body is not one op."""
    x = d.pick(lambda v: v.rank >= 1 and v.integer and not v.dtype.startswith("u"))
    zero = f"jnp.asarray(0, {x.text})"
    body = d.rng.choice((f"a + b + {zero}", "a + b + a * b"))
    return d.add(f"lax.reduce({x.name}, {zero}, lambda a, b: {body}, {_axes(d, x)})", x, bound=0.0)


@template(0.7)
def several_at_once(d: Draw) -> Value:
    """A reduction of two tensors together."""
    x = d.pick(lambda v: v.rank >= 1 and v.integer)
    y = d.like(x)
    zero, which = f"jnp.asarray(0, {x.text})", d.rng.randint(0, 1)
    body = d.rng.choice(("(a[0] + b[0], lax.max(a[1], b[1]))", "(a[0] + b[0], a[1] + b[1])",
                         "(a[0] ^ b[0], lax.min(a[1], b[1]))"))  # fmt: skip
    return d.add(f"lax.reduce(({x.name}, {y.name}), ({zero}, {zero}), lambda a, b: {body}, {_axes(d, x)})[{which}]",
                 x, y, bound=0.0)  # fmt: skip


@template(0.7)
def by_bits(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and (v.integer or v.dtype == "bool"))
    name = d.rng.choice(("and", "or", "xor"))
    start = {"bool": "np.bool_(%s)"}.get(x.dtype, f"jnp.asarray(%s, {x.text})")
    ones = {"bool": "True"}.get(x.dtype, f"jnp.iinfo({x.text}).max" if x.dtype.startswith("u") else "-1")
    zero = "False" if x.dtype == "bool" else "0"
    begin = start % (ones if name == "and" else zero)
    return d.add(f"lax.reduce({x.name}, {begin}, lax.bitwise_{name}, {_axes(d, x)})", x, bound=0.0)


@template(1.5)
def argument(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool" and max(v.shape) > 1)
    axis = d.rng.choice([i for i, n in enumerate(x.shape) if n > 1])
    return d.add(f"jnp.{d.rng.choice(('argmax', 'argmin'))}({x.name}, {axis})", x, bound=0.0)


@template(1.5)
def cumulative(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool" and not v.dtype.startswith("float8"))
    axis = d.rng.randrange(x.rank)
    name = d.rng.choice(("cumsum", "cummax", "cummin", *(["cumprod"] if x.integer else [])))
    bound = x.bound * x.shape[axis] if name == "cumsum" else x.bound
    if d.chance(0.2):
        text, bound = f"lax.associative_scan(jnp.add, {x.name}, axis={axis})", x.bound * x.shape[axis]
        return d.add(text, x, bound=bound, sums=True)
    return d.add(f"lax.{name}({x.name}, {axis}, reverse={d.chance(0.3)})", x, bound=bound, sums=name == "cumsum")


@template(1.5)
def sorting(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool")
    dim = d.rng.randrange(x.rank)
    if d.chance(0.5):
        return d.add(f"lax.sort({x.name}, dimension={dim})", x, bound=x.bound)
    if x.shape[dim] > 1 and d.chance(0.3):
        return d.add(f"jnp.argsort({x.name}, {dim}, stable=True, descending={d.chance(0.5)})", x, bound=0.0)
    y = d.rng.choice([v for v in d.values if v.shape == x.shape])
    return d.add(f"lax.sort(({x.name}, {y.name}), dimension={dim}, num_keys=1, is_stable=True)[1]", x, y, bound=y.bound)


@template(0.7)
def best_few(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype in ("float32", "int32", "float64") and v.shape[-1] > 1)
    which = d.rng.randint(0, 1)
    return d.add(f"lax.top_k({x.name}, {d.rng.randint(1, min(3, x.shape[-1]))})[{which}]", x, bound=x.bound)


@template(4.0)
def dot(d: Draw) -> Value:
    """Any number of batch, contracted and free dimensions, in any order."""
    x = d.pick(lambda v: 1 <= v.rank <= 3 and v.dtype != "bool" and not v.dtype.startswith("float8"))
    dims = list(range(x.rank))
    d.rng.shuffle(dims)
    contracted = dims[: d.rng.randint(1, min(2, len(dims)))]
    batch = [i for i in dims[len(contracted) :] if d.chance(0.4)]
    own = [d.rng.choice((2, 4, 8)) for _ in range(d.rng.randint(0, 1))]
    labels: list[int | None] = [*batch, *contracted, *[None] * len(own)]
    d.rng.shuffle(labels)
    sizes = iter(own)
    y = d.like(x, [next(sizes) if label is None else x.shape[label] for label in labels])
    numbers = (
        (tuple(contracted), tuple(labels.index(i) for i in contracted)),
        (tuple(batch), tuple(labels.index(i) for i in batch)),
    )
    bound = x.bound * y.bound * math.prod(x.shape[i] for i in contracted) * (2 if x.complex else 1)
    wider = {"bfloat16": "float32", "int8": "int32", "uint8": "int32", "float16": "float32"}.get(x.dtype)
    precise = f", preferred_element_type=jnp.{wider}" if wider and d.chance(0.5) else ""
    return d.add(f"lax.dot_general({x.name}, {y.name}, {numbers}{precise})", x, y, bound=bound, sums=True)


@template(2.0)
def convolution(d: Draw) -> Value:
    """Strides, padding, dilation of both sides, groups of features or of the batch."""
    dtype = d.rng.choice(("float32", "float32", "float32", "bfloat16", "int32"))
    spatial = d.rng.randint(1, 2)
    groups, batch_groups = d.rng.choice(((1, 1), (1, 1), (2, 1), (4, 1), (1, 2)))
    features, batch = groups * d.rng.randint(1, 2), batch_groups * d.rng.choice((1, 2, 4))
    sizes = [d.rng.choice((4, 6, 8)) for _ in range(spatial)]
    kernel = [d.rng.randint(1, 3) for _ in range(spatial)]
    out = groups * batch_groups * d.rng.randint(1, 2)
    like = Value("", (), dtype, 3.0)
    specs = [d.rng.sample(range(spatial + 2), spatial + 2) for _ in range(3)]
    if d.chance(0.5):
        specs = [list(range(spatial + 2))] * 3
    x, w = (
        d.like(like, [n for _, n in sorted(zip(spec, shape, strict=True))])
        for spec, shape in zip(specs, ((batch, features, *sizes), (out, features // groups, *kernel)), strict=False)
    )
    strides = tuple(d.rng.choice((1, 1, 2)) for _ in sizes)
    padding = [(d.rng.randint(0, 2), d.rng.randint(0, 2)) for _ in sizes]
    inner, outer = ([d.rng.choice((1, 1, 1, 2)) for _ in sizes] for _ in range(2))
    bound = x.bound * w.bound * (features // groups) * math.prod(kernel)
    numbers = f"lax.ConvDimensionNumbers({', '.join(str(tuple(spec)) for spec in specs)})"
    return d.add(
        f"lax.conv_general_dilated({x.name}, {w.name}, {strides}, {padding}, lhs_dilation={tuple(inner)}, "
        f"rhs_dilation={tuple(outer)}, feature_group_count={groups}, batch_group_count={batch_groups}, "
        f"dimension_numbers={numbers})",
        x, w, bound=bound, sums=True,
    )  # fmt: skip


@template(2.0)
def window_reduction(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool" and not v.dtype.startswith("float8"))
    sizes = [min(n, d.rng.choice((1, 2, 3))) for n in x.shape]
    plain = d.chance(0.5)
    strides = [1 if plain else d.rng.choice((1, 2)) for _ in sizes]
    padding = [(d.rng.randint(0, 1), d.rng.randint(0, 1)) for _ in sizes]
    inner, outer = ([1 if plain else d.rng.choice((1, 1, 2)) for _ in sizes] for _ in range(2))
    more = [("mul", "1"), ("bitwise_or", "0"), ("bitwise_xor", "0")] if x.integer else []
    kind, start = d.rng.choice((("add", "0"), ("max", "lowest"), ("min", "highest"), *more))
    limits = "jnp.iinfo" if x.integer else "jnp.finfo"
    start = {"0": f"jnp.asarray(0, {x.text})", "1": f"jnp.asarray(1, {x.text})",
             "lowest": f"jnp.asarray({limits}({x.text}).min, {x.text})",
             "highest": f"jnp.asarray({limits}({x.text}).max, {x.text})"}[start]  # fmt: skip
    bound = x.bound * math.prod(sizes) if kind == "add" else math.inf
    return d.add(
        f"lax.reduce_window({x.name}, {start}, lax.{kind}, {tuple(sizes)}, {tuple(strides)}, {padding}, "
        f"{tuple(inner)}, {tuple(outer)})",
        x, bound=bound, sums=kind == "add",
    )  # fmt: skip


@template(0.8)
def pooling_gradient(d: Draw) -> Value:
    """Select-and-scatter."""
    x = d.pick(lambda v: v.rank == 2 and v.dtype == "float32" and v.exact and min(v.shape) >= 2)
    step = d.rng.randint(1, 2)
    pool = (f"lax.reduce_window(z, -jnp.inf, lax.max, (2, 2), ({step}, {step}), "
            f"'{d.rng.choice(('VALID', 'SAME'))}')")  # fmt: skip
    weight = d.rng.randint(1, 3)
    return d.add(f"jax.grad(lambda z: jnp.sum({weight} * {pool}))({x.name})", x, bound=4.0 * weight)


@template(0.5)
def softmax(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.dtype == "float32")
    scale, axis = max(1.0, x.bound if x.exact else 16.0), d.rng.randrange(x.rank)
    return d.add(f"jax.nn.softmax({x.name} / {scale}, {axis})", x, bound=math.inf)


@template(0.3)
def fourier(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.dtype in ("complex64", "float32"))
    if x.shape[-1] < 2:
        raise Inapplicable
    return d.add(f"jnp.fft.{d.rng.choice(('fft', 'ifft'))}({x.name})", x, bound=math.inf)


@template(0.5)
def triangular(d: Draw) -> Value:
    """A system of equations that is well conditioned."""
    dtype, n = d.rng.choice(("float32", "float64")), d.rng.choice((2, 4))
    a, b = d.like(Value("", (), dtype, 3.0), (n, n)), d.like(Value("", (), dtype, 3.0), (n, d.rng.choice((1, 2, 8))))
    if not (a.exact and a.bound <= 3.0 and b.exact):
        raise Inapplicable
    lower = f"jnp.tril({a.name}) * 0.1 + jnp.eye({n}, dtype={a.text})"
    flags = f"lower=True, transpose_a={d.chance(0.3)}, unit_diagonal={d.chance(0.3)}"
    return d.add(f"lax.linalg.triangular_solve({lower}, {b.name}, left_side=True, {flags})", a, b, bound=math.inf)


@template(0.3)
def cholesky(d: Draw) -> Value:
    a = d.like(Value("", (), "float32", 3.0), (*d.rng.choice(((), (2,))), 4, 4))
    if not (a.exact and a.bound <= 3.0):
        raise Inapplicable
    return d.add(f"jnp.linalg.cholesky({a.name} @ jnp.swapaxes({a.name}, -1, -2) + 40 * jnp.eye(4, dtype={a.text}))",
                 a, bound=math.inf)  # fmt: skip
