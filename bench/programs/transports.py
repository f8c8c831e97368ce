"""Transports of array parts in the manner of ocean models: extended, wrapped, rotated, and updated in parts.

These are the kinds of program on which compilers recognise such operations by pattern: several slices of one array put
together again, updates of a part along sharded dimensions, rotations by neighbouring amounts, and so on, along
dimensions that the mesh divides and others that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.lax import with_sharding_constraint

from bench.programs import BenchProgram, spec
from bench.programs.spellings import repeated

_FAMILY = "padslice"
_X, _XY, _UNEVEN = "1024x1024: x -", "1024x1024: x y", "1008x1024: x -"
_ROW = 4 * 1024


def _extend(u: Array, low: int, high: int) -> Array:
    return jnp.concatenate([u[:low], u, u[u.shape[0] - high :]], axis=0)


def _wrap(u: Array, low: int, high: int) -> Array:
    return jnp.concatenate([u[u.shape[0] - low :], u, u[:high]], axis=0)


def _mean_of(windows: int) -> Callable[[Array], Array]:
    """The mean over ``windows`` neighbouring rows; ``windows`` - 1 rows fewer."""
    return lambda u: sum(u[i : u.shape[0] - windows + 1 + i] for i in range(windows)) / windows  # type: ignore[return-value]


def _rotations(left: int, right: int) -> Callable[[Array], Array]:
    def add(u: Array) -> Array:
        out = u
        for amount in (*range(1, left + 1), *range(-right, 0)):
            out = out + amount * jnp.concatenate([u[amount:], u[:amount]], axis=0)
        return out

    return add


def _rotate(u: Array, amount: int) -> Array:
    return jnp.concatenate([u[amount:], u[:amount]], axis=0)


def _padded_rotate(u: Array) -> Array:
    return jnp.pad(_rotate(u[8:-8] * 2.0, 3), ((8, 8), (0, 0)))


def _multi_slice(u: Array) -> Array:
    p = jnp.pad(u, ((3, 3), (0, 0)))
    return p[2:1026] + 2.0 * p[3:1027] - p[4:1028] + p[5:1029]


def _multi_pad(u: Array) -> Array:
    inner = u[2:-2]
    return sum(w * jnp.pad(inner, ((2 - j, 2 + j), (0, 0))) for j, w in ((-1, 1.0), (0, 2.0), (1, 3.0)))  # type: ignore[return-value]


def _without_corners(u: Array, ring: Array) -> Array:
    """An update of everything except the four corners of the domain."""
    inner = u.at[4:-4, :].set(ring[4:-4, :])
    return inner.at[:, 4:-4].set(ring[:, 4:-4])


def _parts_put_back(u: Array, v: Array) -> Array:
    middle = jnp.concatenate([u[64:80], v, u[144:896]], axis=0)
    return lax.dynamic_update_slice(u, middle, (64, 0))


def _update_pieces(u: Array) -> Array:
    """Two updates with slices of one array beside each other."""
    return u.at[8:512].set(u[7:511] * 1.0).at[512:1000].set(u[513:1001] * 1.0)


def _periodic(depth: int) -> Callable[[Array], Array]:
    def step(u: Array) -> Array:
        inside = u[depth:-depth] * 0.5
        return jnp.concatenate([inside[-depth:], inside, inside[:depth]], axis=0)

    return step


def _regrouped(a: Array, b: Array, c: Array, d: Array) -> Array:
    return (a + b) + (c + d)


def _one_sided(u: Array) -> Array:
    up, down = jnp.pad(u[1:], ((0, 1), (0, 0))), jnp.pad(u[:-1], ((1, 0), (0, 0)))
    return 0.5 * (u + up - 0.25 * down)


def _unevenly(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """On the first 1003 of 1008 rows and 1021 columns, which no mesh divides; tiles have as many rows as before."""

    def inside(u: Array) -> Array:
        v = with_sharding_constraint(u[:1003, :1021], spec("x -"))
        return jnp.pad(function(v), ((0, 5), (0, 3)))

    return inside


def _first_put(u: Array, v: Array) -> Array:
    return jnp.concatenate([v, u[: u.shape[0] - v.shape[0]]], axis=0)


# name, mesh, arguments, function, output sharding, known bytes. A shift by s rows must move s rows to every tile.
_ROWS: tuple[tuple[str, str, Sequence[str], Callable[..., Any], Any, float | None], ...] = (
    ("concatenate three slices", "8", (_X, _X), lambda u, v: jnp.concatenate([u[5:300], v[7:500], u[788:]]), "x -",
     133 * _ROW),
    ("small in front", "8", (_X, "16x1024: - -"), _first_put, "x -", 16 * _ROW),
    ("small in front, sharded", "8", (_X, "16x1024: x -"), _first_put, "x -", 30 * _ROW),
    ("concatenate, then update", "8", (_X, _X), lambda u, v: jnp.concatenate([u[:500], v[500:]], 0), "x -", 0),
    ("concatenate columns cut on 4x2", "4x2", (_XY, _XY), lambda u, v: jnp.concatenate([u[:, 3:], v[:, :3]], 1), "x y",
     256 * 3 * 4),
    ("update by a constant", "8", (_X,), lambda u: lax.dynamic_update_slice(u, jnp.ones((400, 1024)), (100, 0)), "x -",
     0),
    ("update by an argument", "8", (_X, "400x1024: - -"), lambda u, v: lax.dynamic_update_slice(u, v, (100, 0)), "x -",
     0),
    ("update by a sharded argument", "8", (_X, "512x1024: x -"),
     lambda u, v: lax.dynamic_update_slice(u, v, (256, 0)), "x -", 128 * _ROW),
    ("update of a block on 4x2", "4x2", (_XY, "1024x1024: x y"),
     lambda u, v: u.at[100:900, 30:1000].set(v[100:900, 30:1000]), "x y", 0),
    ("update of a shifted block on 4x2", "4x2", (_XY, _XY),
     lambda u, v: u.at[100:900, 30:1000].set(v[99:899, 29:999]), "x y", 4 * (512 + 257)),
    ("update of the interior by itself, 1003 rows", "8", (_UNEVEN,),
     _unevenly(lambda u: u.at[2:-2].set(u[2:-2] * 2.0)), "x -", 0),
    ("update by slices put together", "8", (_X, "64x1024: - -"), _parts_put_back, "x -", 0),
    ("two updates by neighbours", "8", (_X,), _update_pieces, "x -", 2 * _ROW),
    ("extend 1,1 and mean", "8", (_X,), lambda u: _mean_of(3)(_extend(u, 1, 1)), "x -", 2 * _ROW),
    ("extend 2,2 and mean", "8", (_X,), lambda u: _mean_of(5)(_extend(u, 2, 2)), "x -", 4 * _ROW),
    ("extend 1,3 on 2 devices", "2", (_X,), lambda u: _mean_of(5)(_extend(u, 1, 3)), "x -", 4 * _ROW),
    ("extend 1,1, 1003 rows", "8", (_UNEVEN,), _unevenly(lambda u: _mean_of(3)(_extend(u, 1, 1))), "x -", 8168),
    ("rotations 1 left", "8", (_X,), _rotations(1, 0), "x -", _ROW),
    ("rotations 2 left, 1 right", "8", (_X,), _rotations(2, 1), "x -", 3 * _ROW),
    ("rotations 3 left, 3 right", "8", (_X,), _rotations(3, 3), "x -", 6 * _ROW),
    ("rotations 1 left, 1 right, 1003 rows", "8", (_UNEVEN,), _unevenly(_rotations(1, 1)), "x -", 8168),
    ("slices of one pad", "8", (_X,), _multi_slice, "x -", 3 * _ROW),
    ("pads of one slice", "8", (_X,), _multi_pad, "x -", 2 * _ROW),
    ("rotate inside a pad", "8", (_X,), _padded_rotate, "x -", 6 * _ROW),
    ("rotate 1", "8", (_X,), lambda u: _rotate(u, 1), "x -", _ROW),
    ("rotate -2", "8", (_X,), lambda u: _rotate(u, -2), "x -", 2 * _ROW),
    ("rotate by more than a shard", "8", (_X,), lambda u: _rotate(u, 200), "x -", 128 * _ROW),
    ("rotate columns on 4x2", "4x2", (_XY,), lambda u: _rotate(u.T, 5).T, "x y", 256 * 5 * 4),
    ("rotate 2, 1003 rows", "8", (_UNEVEN,), _unevenly(lambda u: _rotate(u, 2)), "x -", 8168),
    ("wrap 1,1 and mean", "8", (_X,), lambda u: _mean_of(3)(_wrap(u, 1, 1)), "x -", 2 * _ROW),
    ("wrap 2,3 and mean", "8", (_X,), lambda u: _mean_of(6)(_wrap(u, 2, 3)), "x -", 5 * _ROW),
    ("wrap one side", "8", (_X,), lambda u: _wrap(u, 0, 1)[1:] - u, "x -", _ROW),
    ("wrap 2,2 on 4 devices", "4", (_X,), lambda u: _mean_of(5)(_wrap(u, 2, 2)), "x -", 4 * _ROW),
    ("wrap on 4x2", "4x2", (_XY,), lambda u: _mean_of(3)(_wrap(u, 1, 1)), "x y", 2 * 512 * 4),
    ("wrap of a rotation", "8", (_X,), lambda u: _mean_of(3)(_wrap(_rotate(u, 1), 1, 1)), "x -", 2 * _ROW),
    ("wrap of the interior", "8", (_X,), _periodic(1), "x -", 2 * _ROW),
    ("wrap of the interior, depth 8", "8", (_X,), _periodic(8), "x -", 16 * _ROW),
    ("wrap of the interior x3", "8", (_X,), repeated(_periodic(2), 3), "x -", 12 * _ROW),
    ("wrap of the interior, columns on 4x2", "4x2", (_XY,), lambda u: _periodic(4)(u.T).T, "x y", 8192),
    ("update without corners", "8", (_X, _X), _without_corners, "x -", 0),
    ("update without corners on 4x2", "4x2", (_XY, _XY), _without_corners, "x y", 0),
    ("sums regrouped", "4x2", ("1024x1024: x -", "1024x1024: y -", "1024x1024: x -", "1024x1024: y -"), _regrouped,
     "x -", 1 << 20),
    ("chain of one-sided shifts x4", "8", (_X,), repeated(_one_sided, 4), "x -", 8 * _ROW),
    ("chain of one-sided shifts x8", "4", ("256x1024: x -",), repeated(_one_sided, 8), "x -", 16 * _ROW),
)  # fmt: skip


def _fixed() -> Iterable[BenchProgram]:
    for name, mesh, arguments, function, out, known in _ROWS:
        yield BenchProgram.define(
            f"transport: {name}", _FAMILY, mesh, arguments, function, out, known=known,
            extra=name.endswith("x3") or "depth 8" in name or name == "chain of one-sided shifts x8", rounding=True,
        )  # fmt: skip


PROGRAMS: tuple[BenchProgram, ...] = tuple(_fixed())
