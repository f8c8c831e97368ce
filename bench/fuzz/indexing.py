"""Lines whose indices are data: slices, gathers and scatters, out of range and of narrow types too."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, Inapplicable, template
from bench.fuzz.values import Value

_INDICES = ("int32", "int32", "int32", "int8", "uint8", "int64", "uint32")


def _indices(d: Draw, shape: tuple[int, ...], highest: int) -> Value:
    """Whole numbers from somewhat below 0 to somewhat above ``highest``, computed from some value or an input."""
    dtype = d.rng.choice(_INDICES)
    raw = d.like(Value("", (), dtype), shape)
    modulus, shift = highest + d.rng.randint(0, 3), 0 if dtype.startswith("u") else d.rng.randint(-2, 0)
    text = f"(jnp.abs({raw.name}) % {max(2, modulus)}).astype({raw.text}) + ({shift})"
    return d.add(text.replace("jnp.abs", "") if dtype.startswith("u") else text, raw, bound=0.0)


@template(2.0)
def dynamic_slice(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1)
    starts = [_indices(d, (), n) if d.chance(0.6) else None for n in x.shape]
    sizes = tuple(d.rng.randint(1, n) for n in x.shape)
    listed = ", ".join(s.name if s else "0" for s in starts)
    return d.add(f"lax.dynamic_slice({x.name}, ({listed},), {sizes})", x, *[s for s in starts if s], bound=x.bound)


@template(2.0)
def dynamic_update(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1)
    starts = [_indices(d, (), n) if d.chance(0.6) else None for n in x.shape]
    u = d.like(x, [d.rng.randint(1, n) for n in x.shape])
    listed = ", ".join(s.name if s else "0" for s in starts)
    return d.add(f"lax.dynamic_update_slice({x.name}, {u.name}, ({listed},))", x, u, *[s for s in starts if s],
                 bound=max(x.bound, u.bound))  # fmt: skip


@template(1.5)
def take(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and not v.dtype.startswith("float8"))
    axis = d.rng.randrange(x.rank)
    i = _indices(d, d.rng.choice(((), (3,), (8,), (2, 4))), x.shape[axis])
    mode = d.rng.choice(("clip", "wrap", "fill"))
    fill = f", fill_value={'False' if x.dtype == 'bool' else 1}" if mode == "fill" else ""
    return d.add(f"jnp.take({x.name}, {i.name}, axis={axis}, mode='{mode}'{fill})", x, i, bound=max(x.bound, 1.0))


@template(1.0)
def along_an_axis(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and not v.dtype.startswith("float8"))
    axis = d.rng.randrange(x.rank)
    i = _indices(d, x.shape, x.shape[axis])
    return d.add(f"jnp.take_along_axis({x.name}, {i.name}, {axis}, mode='clip')", x, i, bound=x.bound)


def _numbers(d: Draw, x: Value) -> tuple[list[int], list[int], tuple[int, ...], int]:
    """(dimensions that indices name, dimensions dropped of a slice, the indices' batch shape, the vector's place)."""
    named = sorted(d.rng.sample(range(x.rank), d.rng.randint(1, x.rank)))
    dropped = [i for i in named if d.chance(0.6)]
    batch = d.rng.choice(((), (2,), (4,), (8,), (2, 2)))
    return named, dropped, batch, len(batch)


def _vectors(d: Draw, x: Value, named: list[int], batch: tuple[int, ...]) -> Value:
    return _indices(d, (*batch, len(named)), max(x.shape[i] for i in named))


@template(2.0)
def gather(d: Draw) -> Value:
    """Any dimension numbers: offsets anywhere in the result, the index map in any order."""
    x = d.pick(lambda v: v.rank >= 1 and not v.dtype.startswith("float8"))
    named, dropped, batch, _ = _numbers(d, x)
    sizes = tuple(1 if i in dropped else d.rng.randint(1, n) for i, n in enumerate(x.shape))
    i = _vectors(d, x, named, batch)
    rank = len(batch) + x.rank - len(dropped)
    offsets = tuple(sorted(d.rng.sample(range(rank), x.rank - len(dropped))))
    order = list(named)
    d.rng.shuffle(order)
    numbers = (f"lax.GatherDimensionNumbers(offset_dims={offsets}, collapsed_slice_dims={tuple(dropped)}, "
               f"start_index_map={tuple(order)})")  # fmt: skip
    mode = d.rng.choice(("mode='clip'", f"mode='fill', fill_value={'False' if x.dtype == 'bool' else 1}"))
    return d.add(f"lax.gather({x.name}, {i.name}, {numbers}, {sizes}, {mode})", x, i, bound=max(x.bound, 1.0))


@template(2.5)
def scatter(d: Draw) -> Value:
    """Any dimension numbers; bodies whose order does not show."""
    x = d.pick(lambda v: v.rank >= 1 and v.exact and not v.complex and not v.dtype.startswith("float8"))
    named, dropped, batch, _ = _numbers(d, x)
    kinds = ("min", "max") if x.dtype == "bool" else ("add", "min", "max", "add", "mul")
    kind = d.rng.choice(kinds)
    sizes = [d.rng.randint(1, n) for i, n in enumerate(x.shape) if i not in dropped]
    rank = len(batch) + len(sizes)
    windows = tuple(sorted(d.rng.sample(range(rank), len(sizes))))
    rest, left = iter(batch), iter(sizes)
    u = d.like(x, [next(left) if i in windows else next(rest) for i in range(rank)])
    if not u.exact:
        u = d.fresh(u.shape, u.dtype)
    i = _vectors(d, x, named, batch)
    order = list(named)
    d.rng.shuffle(order)
    numbers = (f"lax.ScatterDimensionNumbers(update_window_dims={windows}, inserted_window_dims={tuple(dropped)}, "
               f"scatter_dims_to_operand_dims={tuple(order)})")  # fmt: skip
    count = math.prod(batch)
    bounds = {"add": x.bound + count * u.bound, "mul": x.bound * max(1.0, u.bound) ** count}
    bound = bounds.get(kind, max(x.bound, u.bound))
    mode = d.rng.choice(("drop", "clip"))
    return d.add(f"lax.scatter_{kind}({x.name}, {i.name}, {u.name}, {numbers}, mode='{mode}')", x, i, u, bound=bound,
                 sums=kind in ("add", "mul"))  # fmt: skip


@template(1.5)
def point_update(d: Draw) -> Value:
    """Updates at constant or computed places."""
    x = d.pick(lambda v: v.rank >= 1 and v.dtype != "bool" and not v.complex and not v.dtype.startswith("float8"))
    places: list[str] = []
    uses: list[Value] = []
    for n in x.shape:
        style = d.rng.choice(("all", "constant", "range", "data"))
        if style == "data":
            uses.append(_indices(d, (), n))
            places.append(uses[-1].name)
        elif style == "range":
            start = d.rng.randrange(n)
            places.append(f"{start}:{d.rng.randint(start + 1, n)}")
        else:
            places.append(":" if style == "all" else str(d.rng.randrange(n)))
    kind = d.rng.choice(("set", "add", "max", "multiply"))
    c = d.rng.randint(0, 3)
    bound = {"set": max(x.bound, c), "add": x.bound + c, "max": max(x.bound, c), "multiply": x.bound * max(1, c)}[kind]
    return d.add(f"{x.name}.at[{', '.join(places)}].{kind}({c})", x, *uses, bound=bound)


@template(1.0)
def batched(d: Draw) -> Value:
    """Gathers and scatters with batch dimensions."""
    x = d.pick(lambda v: v.rank >= 2 and v.exact and v.dtype != "bool" and not v.dtype.startswith("float8"))
    n = d.rng.choice((1, 2, 4))
    i = _indices(d, (x.shape[0], n), x.shape[1])
    mode = d.rng.choice(("mode='drop'", "mode='clip'"))
    if d.chance(0.5):
        taken = mode.replace("drop", "fill")
        return d.add(f"jax.vmap(lambda c, i: jnp.take(c, i, axis=0, {taken}, fill_value=1))({x.name}, {i.name})", x, i,
                     bound=max(x.bound, 1.0))  # fmt: skip
    u = d.like(x, (x.shape[0], n, *x.shape[2:]))
    if not u.exact:
        u = d.fresh(u.shape, u.dtype)
    return d.add(f"jax.vmap(lambda c, i, u: c.at[i].add(u, {mode}))({x.name}, {i.name}, {u.name})", x, i, u,
                 bound=x.bound + n * u.bound, sums=True)  # fmt: skip


@template(1.0)
def permuted_update(d: Draw) -> Value:
    """Updates that write each place once, in an order that is data."""
    x = d.pick(lambda v: v.rank >= 1 and not v.dtype.startswith("float8"))
    axis = d.rng.randrange(x.rank)
    k, u = d.like(Value("", (), "int32"), (x.shape[axis],)), d.like(x)
    places = ":, " * axis + f"jnp.argsort({k.name})"
    return d.add(f"{x.name}.at[{places}].set({u.name}, unique_indices=True)", x, k, u, bound=max(x.bound, u.bound))


@template(0.7)
def segments(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1 and v.exact and v.dtype != "bool" and not v.dtype.startswith("float8"))
    n = d.rng.choice((2, 4, 8))
    i = _indices(d, (x.shape[0],), n)
    return d.add(f"jax.ops.segment_sum({x.name}, {i.name}, {n})", x, i, bound=x.bound * x.shape[0], sums=True)


@template(0.5)
def search(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank == 1 and v.exact and not v.complex and v.dtype != "bool"
               and not v.dtype.startswith("float8"))  # fmt: skip
    y = d.like(x, (d.rng.choice((2, 4, 8)),))
    if not y.exact:
        raise Inapplicable
    return d.add(f"jnp.searchsorted(jnp.sort({x.name}), {y.name})", x, y, bound=0.0)


@template(0.7)
def one_hot(d: Draw) -> Value:
    i = _indices(d, d.rng.choice(((4,), (8,), (2, 4))), 4)
    return d.add(f"jax.nn.one_hot({i.name}, {d.rng.choice((4, 8))}, dtype=jnp.float32)", i, bound=1.0)
