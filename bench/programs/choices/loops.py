"""Loops: iterations of linear algebra, layers in a scan, and recurrent layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, f32


def power_iteration(a: Array, v: Array) -> Array:
    """Some iterations in a loop."""
    def body(_: int, v: Array) -> Array:
        w = a @ v
        return w / jnp.linalg.norm(w)

    return lax.fori_loop(0, 10, body, v)


def stacked(w: Array, x: Array) -> Array:
    """Layers in a scan."""
    return lax.scan(lambda h, u: (jax.nn.relu(h @ u), None), x, w)[0]


def stacked_step(w: Array, x: Array) -> Array:
    """A step of training layers in a scan."""
    return w - 0.1 * jax.grad(lambda w: jnp.mean(stacked(w, x) ** 2))(w)


def lstm(wx: Array, wh: Array, xs: Array) -> Array:
    """A recurrent layer."""
    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, o, u = jnp.split(x @ wx + h @ wh, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    z = jnp.zeros((xs.shape[1], wh.shape[0]))
    return lax.scan(step, (z, z), xs)[1]


def transport(cost: Array, a: Array, b: Array) -> Array:
    """Twenty of Sinkhorn's iterations between two distributions."""
    k = jnp.exp(-cost)

    def body(_: int, uv: tuple[Array, Array]) -> tuple[Array, Array]:
        u = a / (k @ uv[1] + 1e-6)
        return u, b / (u @ k + 1e-6)

    u, v = lax.fori_loop(0, 20, body, (jnp.ones_like(a), jnp.ones_like(b)))
    return u[:, None] * k * v


def clusters(x: Array, centers: Array) -> Array:
    """Five of Lloyd's iterations (k-means), assignments by one-hot products."""
    def body(_: int, c: Array) -> Array:
        near = jnp.argmin((c**2).sum(1) - 2 * x @ c.T, -1)
        chosen = jax.nn.one_hot(near, len(c))
        return (chosen.T @ x) / (chosen.sum(0)[:, None] + 1e-6)

    return lax.fori_loop(0, 5, body, centers)


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    b, d, steps = sizes.batch, sizes.width, sizes.steps
    stack, x = f32(2 * steps, d, d), f32(b, d)
    ways = {"DP": (P(), P(ALL)), "FSDP": (P(None, ALL), P(ALL)), "TP": (P(None, None, ALL), P()),
            "stages": (P(ALL) if 2 * steps % 8 == 0 else P("y"), P(ALL)), "FSDP+TP": (P(None, "x", "y"), P("x"))}
    return [
        Open("power iteration", power_iteration, (f32(4 * d, 4 * d), f32(4 * d)),
             {"rows": (P(ALL), P()), "columns": (P(None, ALL), P(ALL)), "tiles": (P("x", "y"), P("y"))}),
        Open("scan", stacked, (stack, x), ways),
        Open("step of a scan", stacked_step, (stack, x), ways, {0: 0}),
        Open("recurrent layer", lstm, (f32(d, 4 * d), f32(d, 4 * d), f32(16, b, d)),
             {"DP": (P(), P(), P(None, ALL)), "TP": (P(None, ALL), P(None, ALL), P()),
              "DP+TP": (P(None, "y"), P(None, "y"), P(None, "x"))}),
        Open("transport", transport, (f32(8 * b, 4 * d), f32(8 * b), f32(4 * d)),
             {"rows": (P(ALL), P(ALL), P()), "columns": (P(None, ALL), P(), P(ALL)),
              "tiles": (P("x", "y"), P("x"), P("y"))}),
        Open("k-means", clusters, (f32(16 * b, d // 8), f32(64, d // 8)),
             {"rows": (P(ALL), P()), "centers": (P(), P(ALL)), "features": (P(None, ALL), P(None, ALL))}, {1: 0}),
    ]
