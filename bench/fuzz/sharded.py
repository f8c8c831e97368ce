"""Lines that name mesh axes: constraints, and computations written per device."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, Inapplicable, template
from bench.fuzz.values import Value


def spec(d: Draw, shape: tuple[int, ...], probability: float = 0.6) -> tuple[tuple[str, ...], ...]:
    """Axes per dimension, drawn so that they divide it."""
    axes = list(d.axes)
    d.rng.shuffle(axes)
    out = []
    for n in shape:
        used: list[str] = []
        while axes and d.chance(probability) and n % d.axes[axes[-1]] == 0:
            n //= d.axes[axes[-1]]
            used.append(axes.pop())
        out.append(tuple(used))
    return tuple(out)


def spelled(dims: tuple[tuple[str, ...], ...]) -> str:
    """A PartitionSpec in source."""
    return f"P({', '.join(str(axes) if axes else 'None' for axes in dims)})"


@template(2.0)
def constraint(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 1)
    return d.add(f"constrained({x.name}, {spelled(spec(d, x.shape))})", x, bound=x.bound)


@template(1.5)
def per_device(d: Draw) -> Value:
    """A `shard_map` over some axes, the others left to the partitioner."""
    x = d.pick(lambda v: v.rank >= 1 and v.exact and v.dtype not in ("bool",) and not v.dtype.startswith("float8"))
    dims = spec(d, x.shape)
    used = [a for axes in dims for a in axes]
    if not used:
        raise Inapplicable
    manual = set(used) | {a for a in d.axes if d.chance(0.4)}
    axis = d.rng.choice(used)
    n, dim = d.axes[axis], next(i for i, axes in enumerate(dims) if axis in axes)
    ring = [(i, (i + 1) % n) for i in range(n)]
    forms = [(f"lax.ppermute(v, '{axis}', {ring})", dims), (f"v * 2 + lax.axis_index('{axis}').astype(v.dtype)", dims)]
    without = tuple(tuple(a for a in axes if a != axis) for axes in dims)
    if dims[dim][-1] == axis:
        forms.append((f"lax.all_gather(v, '{axis}', axis={dim}, tiled=True)", without))
    if x.dtype not in ("bool",):
        forms.append((f"lax.psum(v, '{axis}')", without))
        if not x.complex:
            forms.append((f"lax.{d.rng.choice(('pmax', 'pmin'))}(v, '{axis}')", without))
        forms.append(
            (
                f"lax.psum(jnp.sum(v, {dim}, keepdims=True, dtype=v.dtype), {dims[dim]})",
                tuple(() if i == dim else axes for i, axes in enumerate(without)),
            )
        )
    local = [size // math.prod(d.axes[a] for a in axes) for size, axes in zip(x.shape, dims, strict=True)]
    for other, size in enumerate(local):
        if size % n:
            continue
        if other != dim and dims[dim][-1] == axis:
            exchanged = tuple((*axes, axis) if i == other else axes for i, axes in enumerate(without))
            text = f"lax.all_to_all(v, '{axis}', split_axis={other}, concat_axis={dim}, tiled=True)"
            forms.append((text, exchanged))
        scattered = tuple((*axes, axis) if i == other else axes for i, axes in enumerate(without))
        forms.append((f"lax.psum_scatter(v, '{axis}', scatter_dimension={other}, tiled=True)", scattered))
    body = f"lax.ppermute(c, '{axis}', {ring}) - c"
    if not x.dtype.startswith("u") and x.integer:
        forms.append((f"lax.fori_loop(0, {d.rng.randint(1, 3)}, lambda _, c: {body}, v)", dims))
    body, result = d.rng.choice(forms)
    names = ", ".join(map(repr, sorted(manual)))
    text = (f"jax.shard_map(lambda v: {body}, in_specs={spelled(dims)}, out_specs={spelled(result)}, "
            f"axis_names={{{names}}}, check_vma=False)({x.name})")  # fmt: skip
    return d.add(text, x, bound=(x.bound * n + n) * local[dim], sums=True)
