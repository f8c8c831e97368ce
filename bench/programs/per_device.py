"""Field codes under `jax.shard_map`, as users write them: strips go to neighbours by `ppermute` in every step.

Sizes and numbers of steps are drawn by a seed; names stay.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from bench.programs import Argument, BenchProgram, axes_of, spec

_FAMILY = "per_device"
Code = Callable[..., Any]


def _pairs(n: int, by: int, ring: bool) -> list[tuple[int, int]]:
    return [(i, (i + by) % n) for i in range(n) if ring or 0 <= i + by < n]


def _part(u: Array, d: int, start: int | None, stop: int | None) -> Array:
    return u[(slice(None),) * d + (slice(start, stop),)]


def _strips(u: Array, axis: str, d: int, ring: bool = True, width: int = 1) -> tuple[Array, Array]:
    """The neighbours' elements before and after a shard."""
    n = jax.lax.axis_size(axis)
    return (lax.ppermute(_part(u, d, -width, None), axis, _pairs(n, 1, ring)),
            lax.ppermute(_part(u, d, 0, width), axis, _pairs(n, -1, ring)))


def widened(u: Array, axis: str = "x", d: int = 0, ring: bool = True) -> Array:
    """A shard with a halo of one element."""
    before, after = _strips(u, axis, d, ring)
    return jnp.concatenate([before, u, after], d)


def _laplacian(u: Array) -> Array:
    wide = widened(u)
    return wide[:-2] - 2 * u + wide[2:]


def _around(u: Array) -> Array:
    """A tile with a halo and its corners."""
    return widened(widened(u, "x", 0), "y", 1)


def heat(steps: int, u: Array) -> Array:
    """Steps one after the other."""
    for _ in range(steps):
        u = u + 0.1 * _laplacian(u)
    return u


def heat_loop(steps: int, u: Array) -> Array:
    """Steps in a loop."""
    return lax.fori_loop(0, steps, lambda _, v: v + 0.1 * _laplacian(v), u)


def walls(steps: int, u: Array) -> Array:
    """Ends are held at two temperatures."""
    n = lax.axis_size("x")
    for _ in range(steps):
        before, after = _strips(u, "x", 0)
        before = jnp.where(lax.axis_index("x") == 0, 1.0, before)
        after = jnp.where(lax.axis_index("x") == n - 1, 0.0, after)
        wide = jnp.concatenate([before, u, after])
        u = u + 0.1 * (wide[:-2] - 2 * u + wide[2:])
    return u


def ghost_cells(steps: int, u: Array) -> Array:
    """The field carries ghost cells, which are exchanged in place."""
    def step(_: Any, wide: Array) -> Array:
        before, after = _strips(wide[1:-1], "x", 0)
        wide = wide.at[:1].set(before).at[-1:].set(after)
        return wide.at[1:-1].add(0.1 * (wide[:-2] - 2 * wide[1:-1] + wide[2:]))

    return lax.fori_loop(0, steps, step, jnp.pad(u, ((1, 1), (0, 0))))[1:-1]


def five_point(steps: int, u: Array) -> Array:
    """Both dimensions are cut."""
    for _ in range(steps):
        rows, columns = widened(u, "x", 0), widened(u, "y", 1)
        u = u + 0.1 * (rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:] - 4 * u)
    return u


def nine_point(steps: int, u: Array) -> Array:
    """Neighbours at the corners, too."""
    for _ in range(steps):
        wide = _around(u)
        n, m = u.shape
        u = sum(wide[i : n + i, j : m + j] for i in range(3) for j in range(3)) / 9
    return u


def kernel(steps: int, u: Array) -> Array:
    """A kernel for one device, which rolls; the ends that it spoils are cut off."""
    for _ in range(steps):
        wide = widened(u)
        u = (wide + 0.1 * (jnp.roll(wide, 1, 0) - 2 * wide + jnp.roll(wide, -1, 0)))[1:-1]
    return u


def overlapped(steps: int, u: Array) -> Array:
    """The inner part does not wait for the strips."""
    for _ in range(steps):
        before, after = _strips(u, "x", 0)
        inner = u[:-2] - 2 * u[1:-1] + u[2:]
        first, last = before - 2 * u[:1] + u[1:2], u[-2:-1] - 2 * u[-1:] + after
        u = u + 0.1 * jnp.concatenate([first, inner, last])
    return u


def upwind(steps: int, u: Array) -> Array:
    """One neighbour, and nothing flows in."""
    for _ in range(steps):
        before = lax.ppermute(u[-1:], "x", _pairs(lax.axis_size("x"), 1, False))
        u = u - 0.2 * (u - jnp.concatenate([before, u[:-1]]))
    return u


def shallow_water(steps: int, h: Array, u: Array) -> tuple[Array, Array]:
    """Two fields, exchanged as one stack."""
    for _ in range(steps):
        wide = widened(jnp.stack([h, u]), "x", 1)
        h, u = (h - 0.1 * (wide[1, 2:] - wide[1, :-2]), u - 0.1 * (wide[0, 2:] - wide[0, :-2]))
    return h, u


def normalized(steps: int, u: Array) -> Array:
    """A power iteration: the field is divided by its norm over all devices."""
    def step(_: Any, v: Array) -> Array:
        v = v + 0.25 * _laplacian(v)
        return v / jnp.sqrt(lax.psum(jnp.sum(v * v), "x"))

    return lax.fori_loop(0, steps, step, u)


#: Name, mesh, where the fields lie, how many there are, the code.
_CODES: tuple[tuple[str, str, str, int, Code], ...] = (
    ("heat", "8", "x -", 1, heat),
    ("heat in a loop", "8", "x -", 1, heat_loop),
    ("walls at two temperatures", "8", "x -", 1, walls),
    ("ghost cells", "8", "x -", 1, ghost_cells),
    ("five-point", "4x2", "x y", 1, five_point),
    ("nine-point", "4x2", "x y", 1, nine_point),
    ("kernel for one device", "8", "x -", 1, kernel),
    ("inner part apart", "8", "x -", 1, overlapped),
    ("upwind", "8", "x -", 1, upwind),
    ("shallow water", "8", "x -", 2, shallow_water),
    ("power iteration", "8", "x -", 1, normalized),
)


def programs(seed: int = 0) -> list[BenchProgram]:
    """The codes at sizes and numbers of steps that a seed draws."""
    draw = random.Random(seed)
    return [_program(*code, draw.randint(6, 20), (512 * draw.randint(1, 3), 128 * draw.randint(1, 3)))
            for code in _CODES]


def _program(
    name: str, mesh: str, where: str, count: int, code: Code, steps: int, shape: tuple[int, ...]
) -> BenchProgram:
    out: Any = (where,) * count if count > 1 else where

    def function(*fields: Array) -> Any:
        specs: tuple[P, ...] = (spec(where),) * count
        return jax.shard_map(lambda *own: code(steps, *own), mesh=program.mesh, in_specs=specs,
                             out_specs=specs if count > 1 else specs[0], check_vma=False)(*fields)

    program = BenchProgram(name, _FAMILY, axes_of(mesh), (Argument(shape, where),) * count, function, out)
    return program
