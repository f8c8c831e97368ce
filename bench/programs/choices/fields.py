"""Field codes and solvers on grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, carried, f32
from bench.programs.solvers import (
    conjugate_gradients,
    lattice_boltzmann,
    multigrid,
    navier_stokes,
    poisson_by_fft,
    shallow_water,
)
from bench.programs.spellings import repeated


def diffusion(steps: int, u: Array) -> Array:
    """A five-point stencil, steps one after the other."""
    for _ in range(steps):
        u = u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
    return u


def diffusion_loop(steps: int, u: Array) -> Array:
    """The same in a loop."""
    return lax.fori_loop(0, steps, lambda _, v: diffusion(1, v), u)


def poisson(r: Array) -> Array:
    """Poisson's equation by transforms."""
    n = r.shape[0]
    k = jnp.fft.fftfreq(n)
    h = r
    for axis in (2, 1, 0):
        h = jnp.fft.fft(h, axis=axis)
    h = h / (k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2 + 1e-6)
    for axis in (0, 1, 2):
        h = jnp.fft.ifft(h, axis=axis)
    return h


def _fields(step: Callable[[Any], Any], count: int, form: str = "fori") -> Callable[..., Any]:
    """So many steps on several fields, each an argument."""
    return lambda *state: repeated(step, count, form)(state)


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    n, steps = sizes.side, sizes.steps
    u = f32(n, n)
    tiles = {"rows": (P(ALL),), "columns": (P(None, ALL),), "tiles": (P("x", "y"),)}
    pairs, triples = ({k: specs * count for k, specs in tiles.items()} for count in (2, 3))
    cells = {"rows": (P(None, ALL),), "columns": (P(None, None, ALL),), "tiles": (P(None, "x", "y"),),
             "populations": (P(),)}
    return [
        Open("diffusion", lambda u: diffusion(steps, u), (u,), tiles, {0: 0}),
        Open("diffusion in a loop", lambda u: diffusion_loop(4 * steps, u), (u,), tiles, {0: 0}),
        Open("poisson", poisson, (jax.ShapeDtypeStruct((n // 16,) * 3, jnp.complex64),),
             {"slabs": (P(ALL),), "pencils": (P("x", "y"),)}, {0: 0}),
        Open("poisson in the plane", poisson_by_fft, (u,), tiles, {0: 0}),
        Open("shallow water", _fields(shallow_water, 4 * steps), (u, u, u), triples, carried(3)),
        Open("incompressible flow", _fields(navier_stokes, 1, "unrolled"), (u, u, u), triples, carried(3), False),
        Open("lattice Boltzmann", _fields(lambda s: (lattice_boltzmann(*s),), 2 * steps), (f32(9, n, n),), cells,
             {0: 0}),
        Open("multigrid", multigrid, (u, u), pairs, {0: 0}),
        Open("conjugate gradients", conjugate_gradients, (u,), tiles, {0: 0}),
    ]
