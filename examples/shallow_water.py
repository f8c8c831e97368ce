"""Waves on a rotating channel: a shallow-water model on a staggered grid, in tiles on a mesh of 4 x 2 devices.

Periodic in x, walls in y, three fields: the velocity u on the cells' west faces, v on their south faces, and the
surface's height h in their middles (an Arakawa C grid).

python examples/shallow_water.py [--size 1024] [--steps 100] [--plot shallow_water.png | --no-plot]
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from side_by_side import Compared, arguments, compare, draw

Fields = tuple[jax.Array, jax.Array, jax.Array]

#: Gravity and depth, each times the time step over the grid's spacing, and the Coriolis parameter times the time step.
GRAVITY, DEPTH, CORIOLIS = 0.5, 0.5, 0.02


def west(a: jax.Array) -> jax.Array:
    """Of each cell what its western neighbour holds."""
    return jnp.roll(a, 1, axis=1)


def east(a: jax.Array) -> jax.Array:
    return jnp.roll(a, -1, axis=1)


def north(a: jax.Array) -> jax.Array:
    """Of each cell what its northern neighbour holds; on the wall beyond the last one nothing moves."""
    return jnp.pad(a, ((0, 1), (0, 0)))[1:]


def step(u: jax.Array, v: jax.Array, h: jax.Array) -> Fields:
    """Forward-backward: each field sees the new values of those before it. ``v[0]`` lies on the southern wall."""
    v_at_u = 0.25 * (v + north(v) + west(v) + west(north(v)))
    u = u + CORIOLIS * v_at_u - GRAVITY * (h - west(h))
    u_at_v = 0.25 * (u[1:] + u[:-1] + east(u[1:]) + east(u[:-1]))
    v = v.at[1:].add(-CORIOLIS * u_at_v - GRAVITY * (h[1:] - h[:-1]))
    h = h - DEPTH * (east(u) - u + north(v) - v)
    return u, v, h


def start(size: int) -> tuple[np.ndarray, ...]:
    """Water at rest, with humps and hollows."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size
    h = np.zeros((size, size))
    for row, column, height in rng.uniform((0, 0, -1), (1, 1, 1), (12, 3)):
        away = np.minimum(abs(x - column), 1 - abs(x - column))
        h += height * np.exp(-((y - row) ** 2 + away**2) / (2 * 0.01**2))
    rest = np.zeros((size, size), np.float32)
    return rest, rest, h.astype(np.float32)


def main(argv: Sequence[str] | None = None) -> Compared:
    given = arguments(__file__, argv)
    mesh = jax.make_mesh((4, 2), ("y", "x"), axis_types=(AxisType.Auto,) * 2)

    def simulate(u: jax.Array, v: jax.Array, h: jax.Array) -> Fields:
        return lax.fori_loop(0, given.steps, lambda _, fields: step(*fields), (u, v, h))

    print(f"shallow water: {given.steps} steps on {given.size} x {given.size} cells, in tiles on 4 x 2 devices\n")
    compared = compare(simulate, NamedSharding(mesh, P("y", "x")), *start(given.size))
    if not given.no_plot:
        draw(given.plot, f"the water's height after {given.steps} steps", compared.results[2], compared)
    return compared


if __name__ == "__main__":
    main()
