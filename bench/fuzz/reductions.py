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
    return d.add(f"jnp.sum({x.name}, {axes}, dtype={x.text}, keepdims={d.chance(0.4)})", x, bound=x.bound * count)


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
    return d.add(f"lax.reduce({x.name}, {zero}, lambda a, b: lax.max(a, -b) ^ lax.max(b, -a) ^ a ^ b, {_axes(d, x)})"
                 if d.chance(0.1) else f"lax.reduce({x.name}, {zero}, lambda a, b: a + b + {zero}, {_axes(d, x)})",
                 x, bound=0.0)


@template(1.5)
def argument(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool")
    return d.add(f"jnp.{d.rng.choice(('argmax', 'argmin'))}({x.name}, {d.rng.randrange(x.rank)})", x, bound=0.0)


@template(1.5)
def cumulative(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool" and not v.dtype.startswith("float8"))
    axis = d.rng.randrange(x.rank)
    name = d.rng.choice(("cumsum", "cummax", "cummin"))
    bound = x.bound * x.shape[axis] if name == "cumsum" else x.bound
    return d.add(f"lax.{name}({x.name}, {axis}, reverse={d.chance(0.3)})", x, bound=bound)


@template(1.5)
def sorting(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool")
    dim = d.rng.randrange(x.rank)
    if d.chance(0.5):
        return d.add(f"lax.sort({x.name}, dimension={dim})", x, bound=x.bound)
    y = d.rng.choice([v for v in d.values if v.shape == x.shape])
    return d.add(f"lax.sort(({x.name}, {y.name}), dimension={dim}, num_keys=1, is_stable=True)[1]", x, y, bound=y.bound)


@template(0.7)
def best_few(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype in ("float32", "int32", "float64"))
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
    return d.add(f"lax.dot_general({x.name}, {y.name}, {numbers}{precise})", x, y, bound=bound)


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
    x, w = d.like(like, (batch, features, *sizes)), d.like(like, (out, features // groups, *kernel))
    strides = tuple(d.rng.choice((1, 1, 2)) for _ in sizes)
    padding = [(d.rng.randint(0, 2), d.rng.randint(0, 2)) for _ in sizes]
    inner, outer = ([d.rng.choice((1, 1, 1, 2)) for _ in sizes] for _ in range(2))
    bound = x.bound * w.bound * math.prod(w.shape[1:])
    return d.add(
        f"lax.conv_general_dilated({x.name}, {w.name}, {strides}, {padding}, lhs_dilation={tuple(inner)}, "
        f"rhs_dilation={tuple(outer)}, feature_group_count={groups}, batch_group_count={batch_groups})",
        x, w, bound=bound,
    )  # fmt: skip


@template(2.0)
def window_reduction(d: Draw) -> Value:
    x = d.pick(lambda v: _settled(v) and v.dtype != "bool" and not v.dtype.startswith("float8"))
    sizes = [min(n, d.rng.choice((1, 2, 3))) for n in x.shape]
    plain = d.chance(0.5)
    strides = [1 if plain else d.rng.choice((1, 2)) for _ in sizes]
    padding = [(d.rng.randint(0, 1), d.rng.randint(0, 1)) for _ in sizes]
    inner, outer = ([1 if plain else d.rng.choice((1, 1, 2)) for _ in sizes] for _ in range(2))
    kind, start = d.rng.choice((("add", "0"), ("max", "lowest"), ("min", "highest")))
    limits = "jnp.iinfo" if x.integer else "jnp.finfo"
    start = {"0": f"jnp.asarray(0, {x.text})", "lowest": f"jnp.asarray({limits}({x.text}).min, {x.text})",
             "highest": f"jnp.asarray({limits}({x.text}).max, {x.text})"}[start]  # fmt: skip
    bound = x.bound * math.prod(sizes) if kind == "add" else math.inf
    return d.add(
        f"lax.reduce_window({x.name}, {start}, lax.{kind}, {tuple(sizes)}, {tuple(strides)}, {padding}, "
        f"{tuple(inner)}, {tuple(outer)})",
        x, bound=bound,
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
