"""Field codes of `seconds` by hand: halos of several iterations at once, one message per side for all fields.

A step of the whole domain is used on a device's part with its halo: what it does at the rim is wrong, moves inwards by
the step's reach in every iteration, and is cut off in the end. Only the ends of the domain need a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from bench.programs import fields as flow
from bench.programs.solvers import (
    conjugate_gradients,
    forced,
    gray_scott,
    heat,
    lattice_boltzmann,
    level_set,
    life,
    multigrid,
    seven_point,
    shallow_water,
    variable_step,
)
from bench.programs.spellings import FIVE_POINT, NINE_POINT, by_pad, by_shift, repeated, roll

Fields = tuple[Array, ...]
Step = Callable[[Fields], Fields]
Axes = Mapping[int, str]
"""Dimensions of fields, and the axes of the mesh that they are cut over."""
_ROWS: Axes = {0: "x"}
_TILES: Axes = {0: "x", 1: "y"}


def with_halo(fields: Fields, axes: Axes, low: int, high: int, periodic: bool) -> Fields:
    """Fields with so many layers of the neighbours' before and after them; beyond the ends of a domain zeros."""
    for dim, axis in axes.items():
        count = lax.axis_size(axis)
        links = [(i, (i + 1) % count) for i in range(count if periodic else count - 1)]
        n = fields[0].shape[dim]
        before, after = fields, fields
        if low:
            ends = jnp.stack([lax.slice_in_dim(a, n - low, n, axis=dim) for a in fields])
            before = tuple(lax.ppermute(ends, axis, links))
        if high:
            ends = jnp.stack([lax.slice_in_dim(a, 0, high, axis=dim) for a in fields])
            after = tuple(lax.ppermute(ends, axis, [(t, s) for s, t in links]))
        fields = tuple(
            jnp.concatenate([b] * bool(low) + [a] + [c] * bool(high), dim)
            for b, a, c in zip(before, fields, after, strict=True)
        )
    return fields


def _ends(axes: Axes) -> list[tuple[int, Array, Array]]:
    """By dimension whether this device is the first and the last."""
    return [(d, lax.axis_index(axis) == 0, lax.axis_index(axis) == lax.axis_size(axis) - 1) for d, axis in axes.items()]


def _set(a: Array, condition: Array, dim: int, start: int, stop: int, value: Array | float) -> Array:
    """Layers of an array replaced on the devices where a condition holds."""
    at = (slice(None),) * dim + (slice(start, stop),)
    return a.at[at].set(jnp.where(condition, value, a[at]))


def zeros(step: Step, axes: Axes, width: int) -> Step:
    """A step beyond the ends of whose domain there are zeros."""

    def outside(a: Array) -> Array:
        for dim, first, last in _ends(axes):
            n = a.shape[dim]
            a = _set(_set(a, first, dim, 0, width, 0.0), last, dim, n - width, n, 0.0)
        return a

    return lambda fields: step(tuple(outside(a) for a in fields))


def copies(step: Step, axes: Axes, width: int) -> Step:
    """A step beyond the ends of whose domain the last layer goes on."""

    def outside(a: Array) -> Array:
        for dim, first, last in _ends(axes):
            n = a.shape[dim]
            a = _set(a, first, dim, width - 1, width, lax.slice_in_dim(a, width, width + 1, axis=dim))
            a = _set(a, last, dim, n - width, n - width + 1, lax.slice_in_dim(a, n - width - 1, n - width, axis=dim))
        return a

    return lambda fields: step(tuple(outside(a) for a in fields))


def held(step: Step, axes: Axes, width: int) -> Step:
    """A step that leaves the ends of its domain as they are."""

    def inside(new: Array, old: Array) -> Array:
        for dim, first, last in _ends(axes):
            for condition, at in ((first, width), (last, new.shape[dim] - width - 1)):
                new = _set(new, condition, dim, at, at + 1, lax.slice_in_dim(old, at, at + 1, axis=dim))
        return new

    return lambda fields: tuple(inside(new, old) for new, old in zip(step(fields), fields, strict=True))


def marched(
    step: Step, count: int, at_once: int, axes: Axes, edges: Callable[[Step, Axes, int], Step] | None = None,
    reach: tuple[int, int] = (1, 1),
) -> Callable[..., Any]:  # fmt: skip
    """``count`` steps of a device's part, ``at_once`` from one exchange.

    edges: what a step is at the ends of a domain that is not periodic. reach: layers that a step reads on either side.
    """
    low, high = (at_once * layers for layers in reach)

    def row(fields: Fields) -> Fields:
        wide = with_halo(fields, axes, low, high, edges is None)
        wide = repeated(edges(step, axes, low) if edges else step, at_once, "fori")(wide)
        for dim in axes:
            wide = tuple(lax.slice_in_dim(a, low, a.shape[dim] - high, axis=dim) for a in wide)
        return wide

    def local(*fields: Array) -> Any:
        out = repeated(row, count // at_once, "fori")(fields)
        return out if len(out) > 1 else out[0]

    return local


def of_one(step: Callable[[Array], Array]) -> Step:
    """A step of one field."""
    return lambda fields: (step(fields[0]),)


def _around(axes: Axes, u: Array) -> Array:
    """One layer around a device's part: of its neighbours, zeros at the ends of the domain."""
    (wide,) = with_halo((u,), axes, 1, 1, periodic=False)
    return jnp.pad(wide, [(0, 0) if dim in axes else (1, 1) for dim in range(u.ndim)])


def _forced(u: Array, k: Array) -> Array:
    """Coefficients of a step's own: every step exchanges, so that none of them moves."""

    def step(u: Array, c: Array) -> tuple[Array, None]:
        (wide,) = with_halo((u,), _ROWS, 1, 1, periodic=True)
        return forced(wide, jnp.pad(c, ((1, 1), (0, 0)))[None])[1:-1], None

    return lax.scan(step, u, k)[0]


def _poisson(f: Array) -> Array:
    """Real transforms of whole rows, a transposition, complex ones of whole columns, and back: half of a spectrum."""
    count, n = lax.axis_size("x"), f.shape[1]
    half = jnp.fft.rfft(f, axis=1)
    used = half.shape[1]
    half = jnp.pad(half, ((0, 0), (0, -used % count)))
    columns = jnp.fft.fft(lax.all_to_all(half, "x", 1, 0, tiled=True), axis=0)
    kx = 2 - 2 * jnp.cos(2 * jnp.pi * jnp.arange(n) / n)[:, None]
    own = lax.axis_index("x") * columns.shape[1] + jnp.arange(columns.shape[1])
    ky = 2 - 2 * jnp.cos(2 * jnp.pi * own / n)[None]
    columns = jnp.fft.ifft(columns / jnp.where(kx + ky == 0, 1.0, kx + ky), axis=0)
    half = lax.all_to_all(columns, "x", 0, 1, tiled=True)[:, :used]
    return jnp.fft.irfft(half, n, axis=1)


def _vdot(a: Array, b: Array) -> Array:
    return lax.psum(jnp.vdot(a, b), "x")


_five, _nine = of_one(by_pad(FIVE_POINT)), of_one(by_pad(NINE_POINT))
_rolled = of_one(by_shift(FIVE_POINT, roll, "periodic"))
_variable: Step = lambda fields: (variable_step(*fields), fields[1])  # noqa: E731

FIELDS: Mapping[str, Callable[..., Any]] = {
    "five-point, 8 steps": marched(_five, 8, 8, _ROWS, zeros),
    "nine-point, 8 steps": marched(_nine, 8, 8, _TILES, zeros),
    "five-point, periodic, 100 steps": marched(_rolled, 100, 10, _TILES),
    "heat, 20 steps": marched(of_one(heat), 20, 10, _ROWS, held),
    "heat, 100 steps": marched(of_one(heat), 100, 10, _TILES, held),
    "Gray-Scott, 20 steps": marched(gray_scott, 20, 10, _ROWS),
    "life, 32 steps": marched(of_one(life), 32, 8, _TILES),
    "lattice Boltzmann, 10 steps": marched(of_one(lattice_boltzmann), 10, 5, {1: "x", 2: "y"}),
    "level set, 10 steps": marched(of_one(level_set), 10, 10, _ROWS, copies),
    "shallow water, 10 steps": marched(shallow_water, 10, 5, _ROWS, reach=(2, 2)),
    "shallow water, 4x2": marched(shallow_water, 2, 2, _TILES, reach=(2, 2)),
    "variable coefficients": lambda u, k: marched(_variable, 6, 6, _ROWS, zeros)(u, k)[0],
    "time-varying coefficients": _forced,
    "seven-point, 8 steps": marched(of_one(seven_point), 8, 4, {0: "x", 1: "y", 2: "z"}, zeros),
    "conjugate gradients": partial(conjugate_gradients, padded=partial(_around, _ROWS), vdot=_vdot),
    "multigrid": partial(multigrid, padded=partial(_around, _TILES)),
    "Poisson by FFT": _poisson,
    "upwind": marched(of_one(flow.upwind), 4, 4, _ROWS, reach=(1, 0)),
}
