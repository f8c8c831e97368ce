"""Lines that move elements to indices known when the program is traced."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, Inapplicable, template
from bench.fuzz.values import DTYPES, Value, bounded


def _some_rank(least: int):  # type: ignore[no-untyped-def]
    return lambda v: v.rank >= least


@template(2.0)
def transpose(d: Draw) -> Value:
    x = d.pick(_some_rank(2))
    order = list(range(x.rank))
    d.rng.shuffle(order)
    return d.add(f"jnp.transpose({x.name}, {tuple(order)})", x, bound=x.bound)


@template(3.0)
def reshape(d: Draw) -> Value:
    """Splits, merges, or both: sizes drawn as divisors of what is left."""
    x = d.pick(_some_rank(1))
    left, shape = x.size, []
    while left > 1 and len(shape) < 4:
        n = d.rng.choice([k for k in range(1, left + 1) if left % k == 0])
        shape.append(n)
        left //= n
    shape.append(left)
    if d.chance(0.5):  # keep most dimensions: split one, or merge two
        i = d.rng.randrange(x.rank)
        n = d.rng.choice([k for k in range(1, x.shape[i] + 1) if x.shape[i] % k == 0])
        shape = [*x.shape[:i], n, x.shape[i] // n, *x.shape[i + 1 :]]
        if x.rank > 1 and d.chance(0.5):
            j = d.rng.randrange(x.rank - 1)
            shape = [*x.shape[:j], x.shape[j] * x.shape[j + 1], *x.shape[j + 2 :]]
    return d.add(f"jnp.reshape({x.name}, {tuple(shape)})", x, bound=x.bound)


@template(2.0)
def broadcast(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank <= 2)
    shape, dims = [], []
    for i, n in enumerate(x.shape):
        if d.chance(0.5):
            shape.append(d.rng.choice((1, 2, 4, 8)))
        dims.append(len(shape))
        shape.append(n if n > 1 or d.chance(0.5) else d.rng.choice((2, 4, 8)))
        del i
    if d.chance(0.4):
        shape.append(d.rng.choice((2, 4, 8)))
    return d.add(f"lax.broadcast_in_dim({x.name}, {tuple(shape)}, {tuple(dims)})", x, bound=x.bound)


@template(2.0)
def concatenation(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    dim = d.rng.randrange(x.rank)
    y = d.like(x, [d.rng.choice((1, 2, 4, 8)) if i == dim else n for i, n in enumerate(x.shape)])
    parts = [x, y] if d.chance(0.7) else [y, x, x]
    listed = ", ".join(p.name for p in parts)
    return d.add(f"lax.concatenate([{listed}], {dim})", *parts, bound=max(x.bound, y.bound))


@template(2.5)
def pad(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    plain = d.chance(0.6)
    config = []
    for n in x.shape:
        least, most = (0, 2) if plain else (-1, 3)
        low, high = d.rng.randint(least, most), d.rng.randint(least, most)
        inner = 0 if plain else d.rng.choice((0, 0, 1, 2))
        config.append((low, high, inner) if low + high + n + max(0, n - 1) * inner > 0 else (0, 0, 0))
    if x.dtype == "bool":
        return d.add(f"lax.pad({x.name}, np.bool_({d.chance(0.5)}), {config})", x, bound=0.0)
    value = d.rng.randint(0, 2)
    return d.add(f"lax.pad({x.name}, jnp.asarray({value}, {x.text}), {config})", x, bound=max(x.bound, value))


@template(3.0)
def slice_(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    cut = []
    for n in x.shape:
        start = d.rng.randrange(n) if d.chance(0.6) else 0
        stop = d.rng.randint(start + 1, n) if d.chance(0.6) else n
        cut.append(f"{start}:{stop}:{d.rng.choice((1, 1, 1, 2, 3))}")
    return d.add(f"{x.name}[{', '.join(cut)}]", x, bound=x.bound)


@template(1.5)
def reverse(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    dims = tuple(i for i in range(x.rank) if d.chance(0.5)) or (0,)
    return d.add(f"lax.rev({x.name}, {dims})", x, bound=x.bound)


@template(2.0)
def roll(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    dim = d.rng.randrange(x.rank)
    return d.add(f"jnp.roll({x.name}, {d.rng.randint(-4, 4)}, {dim})", x, bound=x.bound)


@template(1.0)
def neighbours(d: Draw) -> Value:
    """A stencil on an interior, the rim kept."""
    x = d.pick(lambda v: v.rank >= 1 and v.shape[0] >= 3 and v.dtype != "bool" and not v.complex)
    name = x.name
    return d.add(f"{name}.at[1:-1].set({name}[2:] + {name}[:-2] - 2 * {name}[1:-1])", x, bound=4 * x.bound)


@template(1.0)
def counting(d: Draw) -> Value:
    dtype = d.rng.choice([t for t in DTYPES if t != "bool" and not t.startswith("float8")])
    shape = d.shape()
    dim = d.rng.randrange(len(shape))
    return d.add(f"lax.broadcasted_iota(jnp.{dtype}, {shape}, {dim})", bound=bounded(dtype, shape[dim]))


@template(0.7)
def squeeze(d: Draw) -> Value:
    x = d.pick(lambda v: 1 in v.shape)
    return d.add(f"jnp.squeeze({x.name}, {x.shape.index(1)})", x, bound=x.bound)


@template(0.7)
def tile(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    counts = tuple(d.rng.choice((1, 1, 2, 3)) for _ in x.shape)
    if math.prod(counts) == 1:
        raise Inapplicable
    return d.add(f"jnp.tile({x.name}, {counts})", x, bound=x.bound)


@template(0.7)
def repetition(d: Draw) -> Value:
    x = d.pick(_some_rank(1))
    dim = d.rng.randrange(x.rank)
    form = d.rng.choice((f"jnp.repeat({{0}}, {d.rng.randint(2, 3)}, axis={dim})", f"jnp.stack([{{0}}, {{0}}], {dim})"))
    return d.add(form.format(x.name), x, bound=x.bound)


@template(0.4)
def diagonal(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank == 2 and v.exact and not v.dtype.startswith("float8"))
    return d.add(f"jnp.diagonal({x.name}, {d.rng.randint(-1, 1)})", x, bound=x.bound)


@template(0.5)
def triangle(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 2)
    return d.add(f"jnp.{d.rng.choice(('tril', 'triu'))}({x.name}, {d.rng.randint(-1, 1)})", x, bound=x.bound)
