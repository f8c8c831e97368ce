"""Heat spreads on a plate with cold walls: a hundred steps of the 5-point scheme, the plate cut into eight strips.

XLA's partitioner communicates in every step. The plan lets several steps share one exchange, if that is cheaper, and
computes a few rows of the neighbours' meanwhile.

python examples/heat.py [--size 1024] [--steps 100] [--plot heat.png | --no-plot]
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from collections.abc import Sequence

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from side_by_side import Compared, arguments, compare, draw

#: Diffusivity, times the time step, over the square of the grid's spacing; the scheme is stable up to 1/4.
NUMBER = 0.2


def step(u: jax.Array) -> jax.Array:
    """One explicit step of ``u[y, x]``; the rim is wall and keeps its temperature."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u.at[1:-1, 1:-1].add(NUMBER * (around - 4.0 * u[1:-1, 1:-1]))


def start(size: int) -> np.ndarray:
    """Hot discs on a cold plate."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size
    u = np.zeros((size, size), np.float32)
    for row, column, radius in rng.uniform((0, 0, 0.01), (1, 1, 0.03), (100, 3)):
        u[(y - row) ** 2 + (x - column) ** 2 < radius**2] += 1.0
    u[[0, -1]] = u[:, [0, -1]] = 0.0
    return u


def main(argv: Sequence[str] | None = None) -> Compared:
    given = arguments(__file__, argv)
    mesh = jax.make_mesh((8,), ("y",), axis_types=(AxisType.Auto,))

    def simulate(u: jax.Array) -> jax.Array:
        return lax.fori_loop(0, given.steps, lambda _, u: step(u), u)

    print(f"heat: {given.steps} steps on {given.size} x {given.size} points, in strips on 8 devices\n")
    compared = compare(simulate, NamedSharding(mesh, P("y", None)), start(given.size))
    if not given.no_plot:
        draw(given.plot, f"heat after {given.steps} steps", compared.results[0], compared)
    return compared


if __name__ == "__main__":
    main()
