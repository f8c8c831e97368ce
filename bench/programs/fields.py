"""Field codes: models of flow and heat as users write them, on sharded domains.

Fields are arrays ``[y, x]`` of float32; ``known`` counts one layer of a field per side and step for each field that a
step must see, and nothing for values that a wider layer gives anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
from jax import Array

from bench.programs import BenchProgram
from bench.programs.spellings import repeated

_FAMILY = "stencil"
_ROWS, _TILES = "1024x1024: x -", "1024x1024: x y"
_ROW = 4 * 1024
Fields = tuple[Array, ...]


def laplacian(u: Array, mode: str) -> Array:
    """The 5-point Laplacian with what `jnp.pad` puts outside."""
    p = jnp.pad(u, 1, mode=mode)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u


def heat_dirichlet(u: Array) -> Array:
    """An explicit step; the rim keeps its values."""
    inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].add(0.1 * inner)


def heat_neumann(u: Array) -> Array:
    return u + 0.1 * laplacian(u, "edge")


def heat_periodic(u: Array) -> Array:
    around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
    return u + 0.1 * (around - 4.0 * u)


def shallow_water(state: Fields) -> Fields:
    """Forward-backward on a staggered grid: u on west faces, v on south faces; periodic in x, walls in y."""
    u, v, eta = state
    u = u - 0.1 * (eta - jnp.roll(eta, 1, axis=1))
    v = v.at[1:].add(-0.1 * (eta[1:] - eta[:-1]))  # v[0] is the southern wall, the northern one is beyond the array
    north = jnp.concatenate([v[1:], jnp.zeros_like(v[:1])], axis=0)
    return u, v, eta - 0.1 * (jnp.roll(u, -1, axis=1) - u + north - v)


def shallow_water_rotating(state: Fields) -> Fields:
    """The same with the Coriolis force: each velocity needs the other one's average over four neighbours."""
    u, v, eta = state
    north = jnp.pad(v, ((0, 1), (0, 0)))[1:]
    v_at_u = 0.25 * (v + north + jnp.roll(v, 1, axis=1) + jnp.roll(north, 1, axis=1))
    u = u + 0.01 * v_at_u - 0.1 * (eta - jnp.roll(eta, 1, axis=1))
    south = jnp.pad(u, ((1, 0), (0, 0)))[:-1]
    u_at_v = 0.25 * (u + south + jnp.roll(u, -1, axis=1) + jnp.roll(south, -1, axis=1))
    below = jnp.concatenate([eta[:1], eta[:-1]], axis=0)
    v = (v - 0.01 * u_at_v - 0.1 * (eta - below)).at[0].set(0.0)
    return u, v, eta - 0.1 * (jnp.roll(u, -1, axis=1) - u + jnp.pad(v, ((0, 1), (0, 0)))[1:] - v)


def upwind(u: Array) -> Array:
    """Advection towards higher rows and columns."""
    return u - 0.2 * (u - jnp.roll(u, 1, 0)) - 0.2 * (u - jnp.roll(u, 1, 1))


def upwind_inflow(u: Array) -> Array:
    """The same with nothing coming in."""
    return u - 0.2 * jnp.diff(u, axis=0, prepend=0.0) - 0.2 * jnp.diff(u, axis=1, prepend=0.0)


def biharmonic(u: Array) -> Array:
    """The Laplacian twice, mirrored edges."""
    return u - 0.01 * laplacian(laplacian(u, "edge"), "edge")


def masked_multiply(u: Array, ocean: Array) -> Array:
    """Diffusion between ocean cells only: fluxes through faces of land vanish."""
    west = (u - jnp.roll(u, 1, axis=1)) * ocean * jnp.roll(ocean, 1, axis=1)
    p, m = jnp.pad(u, ((1, 0), (0, 0))), jnp.pad(ocean, ((1, 0), (0, 0)))
    south = (p[1:] - p[:-1]) * m[1:] * m[:-1]
    north = jnp.pad(south, ((0, 1), (0, 0)))[1:]
    return u + 0.1 * (jnp.roll(west, -1, axis=1) - west + north - south)


def masked_where(u: Array, ocean: Array) -> Array:
    """The same idea by a select on the result."""
    return jnp.where(ocean > 0.0, u + 0.1 * laplacian(u, "edge"), 0.0)


def tripolar(u: Array) -> Array:
    """The northern halo is the last row reversed, the southern one is land; periodic in x."""
    p = jnp.concatenate([jnp.zeros_like(u[:1]), u, u[-1:, ::-1]], axis=0)
    around = p[:-2] + p[2:] + jnp.roll(u, 1, axis=1) + jnp.roll(u, -1, axis=1)
    return u + 0.1 * (around - 4.0 * u)


def time_series(u: Array) -> tuple[Array, Fields]:
    """A step, and what a model logs of it."""
    after = heat_neumann(u)
    return after, (jnp.mean(after), jnp.sqrt(jnp.sum(after * after)), jnp.min(after))


def high_order(u: Array) -> Array:
    """A sixth-order second derivative along rows, by shifts."""
    return u + 0.01 * (
        (1.5 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)) - 0.15 * (jnp.roll(u, 2, 0) + jnp.roll(u, -2, 0)))
        + (jnp.roll(u, 3, 0) + jnp.roll(u, -3, 0)) / 90.0 - 49.0 / 18.0 * u
    )  # fmt: skip


def ocean(levels: int, fields: int) -> Callable[[Fields], Fields]:
    """``levels`` chained steps of ``fields`` fields, each diffused and driven by the next one."""

    def step(state: Fields) -> Fields:
        return tuple(
            a + 0.1 * laplacian(a, "constant") + 0.01 * b
            for a, b in zip(state, state[1:] + state[:1], strict=True)
        )  # fmt: skip

    repeats: Callable[[Fields], Fields] = repeated(step, levels)
    return repeats


# name, step, bytes per step by rows, bytes per step on 4x2 (None: not known), whether it stands there in a usual run
_ONE_FIELD: tuple[tuple[str, Callable[[Array], Array], int, int | None, bool], ...] = (
    ("heat, Dirichlet", heat_dirichlet, 2 * _ROW, 5120, True),
    ("heat, Neumann", heat_neumann, 2 * _ROW, 5120, False),
    ("heat, periodic", heat_periodic, 2 * _ROW, 6144, False),
    ("upwind, periodic", upwind, _ROW, 3072, True),
    ("upwind, inflow", upwind_inflow, _ROW, 3072, False),
    ("biharmonic", biharmonic, 4 * _ROW, None, False),
    ("tripolar fold", tripolar, 2 * _ROW, None, True),
    ("sixth order", high_order, 6 * _ROW, 6 * 2048, False),
)
_STATES: tuple[tuple[str, Callable[[Fields], Fields], int | None], ...] = (
    ("shallow water", shallow_water, 2 * _ROW),
    ("shallow water, rotating", shallow_water_rotating, 4 * _ROW),
)


def _fields() -> Iterable[BenchProgram]:
    for what, step, rows, tiles, tiled in _ONE_FIELD:
        for count, form in ((1, "unrolled"), (8, "unrolled"), (100, "fori")):
            title = what if count == 1 else f"{what} x{count}{' fori' if form == 'fori' else ''}"
            repeats = repeated(step, count, form)
            yield BenchProgram.define(
                f"{title} (x,-)", _FAMILY, "8", (_ROWS,), repeats, "x -",
                known=rows * count, extra=count == 8 or count > 1 and not tiled, origin="field code",
            )  # fmt: skip
            known = None if tiles is None else tiles * count
            yield BenchProgram.define(
                f"{title} (x,y)", _FAMILY, "4x2", (_TILES,), repeats, "x y", known=known,
                target=None if known is None else known + 16 * count,  # with corners
                extra=not tiled or count > 1, origin="field code",
            )  # fmt: skip
    for what, step_of_state, rows_known in _STATES:
        for count, form in ((1, "unrolled"), (4, "unrolled"), (100, "fori")):
            title = what if count == 1 else f"{what} x{count}{' fori' if form == 'fori' else ''}"
            repeats = _of_three(repeated(step_of_state, count, form))
            for mesh, argument, known in (("8", _ROWS, rows_known), ("4x2", _TILES, None)):
                sharding = argument.partition(": ")[2]
                yield BenchProgram.define(
                    f"{title} ({sharding.replace(' ', ',')})", _FAMILY, mesh, (argument,) * 3, repeats,
                    (sharding,) * 3, known=None if known is None else known * count,
                    extra=count > 1 and (mesh == "4x2" or "rotating" in what), origin="field code",
                )  # fmt: skip
    for what, step_masked in (("masked by multiplying", masked_multiply), ("masked by where", masked_where)):
        # Multiplying needs the south of the field, of the mask, and the north of the flux.
        known = (2 if step_masked is masked_where else 3) * _ROW
        yield BenchProgram.define(
            f"ocean step, {what}", _FAMILY, "8", (_ROWS, _ROWS), step_masked, "x -", known=known, origin="field code"
        )
    scalars = 3 * 2 * 4 * 7 / 8
    yield BenchProgram.define(
        "heat step, mean, norm and minimum", _FAMILY, "8", (_ROWS,), time_series, ("x -", ("", "", "")),
        known=2 * _ROW + scalars, origin="field code", rounding=True,
    )  # fmt: skip
    yield BenchProgram.define(
        "10 fields, 2 levels", _FAMILY, "8", (_ROWS,) * 10, _of_many(ocean(2, 10)), ("x -",) * 10,
        known=2 * 10 * 2 * _ROW, origin="field code",
    )  # fmt: skip


def _of_three(step: Callable[[Fields], Fields]) -> Callable[[Array, Array, Array], Fields]:
    return lambda u, v, eta: step((u, v, eta))


def _of_many(step: Callable[[Fields], Fields]) -> Callable[..., Any]:
    return lambda *state: step(state)


PROGRAMS: tuple[BenchProgram, ...] = tuple(_fields())
