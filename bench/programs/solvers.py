"""Solvers and field codes whose seconds are measured, as users write them: float32 on squares and boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax


def _padded(u: Array) -> Array:
    return jnp.pad(u, 1)


def conjugate_gradients(
    b: Array, padded: Callable[[Array], Array] = _padded, vdot: Callable[[Array, Array], Array] = jnp.vdot
) -> Array:
    """Twenty iterations on a five-point matrix, inner products by `jnp.vdot`.

    Code for one device says what lies around its part, and how inner products add up.
    """

    def apply(u: Array) -> Array:
        q = padded(u)
        return 4.1 * u - q[:-2, 1:-1] - q[2:, 1:-1] - q[1:-1, :-2] - q[1:-1, 2:]

    def step(_: Any, state: Any) -> Any:
        x, r, p, rho = state
        q = apply(p)
        alpha = rho / vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = vdot(r, r)
        return x, r, r + new / rho * p, new

    return lax.fori_loop(0, 20, step, (jnp.zeros_like(b), b, b, vdot(b, b)))[0]


def multigrid(u: Array, f: Array, padded: Callable[[Array], Array] = _padded) -> Array:
    """One V-cycle of four levels for Poisson's equation: Jacobi, restriction by means, piecewise prolongation."""

    def smooth(u: Array, f: Array, times: int) -> Array:
        for _ in range(times):
            q = padded(u)
            u = u + 0.2 * (f - (4 * u - q[:-2, 1:-1] - q[2:, 1:-1] - q[1:-1, :-2] - q[1:-1, 2:]))
        return u

    def cycle(u: Array, f: Array, level: int) -> Array:
        u = smooth(u, f, 2)
        if level:
            q = padded(u)
            r = f - (4 * u - q[:-2, 1:-1] - q[2:, 1:-1] - q[1:-1, :-2] - q[1:-1, 2:])
            n, m = r.shape
            coarse = r.reshape(n // 2, 2, m // 2, 2).sum((1, 3))
            found = cycle(jnp.zeros_like(coarse), coarse, level - 1)
            u = u + jnp.broadcast_to(found[:, None, :, None], (n // 2, 2, m // 2, 2)).reshape(n, m)
        return smooth(u, f, 2)

    return cycle(u, f, 3)


def poisson_by_fft(f: Array) -> Array:
    """Poisson's equation on a periodic square."""
    n, m = f.shape
    kx = 2 - 2 * jnp.cos(2 * jnp.pi * jnp.arange(n) / n)[:, None]
    ky = 2 - 2 * jnp.cos(2 * jnp.pi * jnp.arange(m) / m)[None]
    spectrum = jnp.fft.fft2(f) / jnp.where(kx + ky == 0, 1.0, kx + ky)
    return jnp.real(jnp.fft.ifft2(spectrum))


# Field codes.


def heat(u: Array) -> Array:
    """Heat with fixed ends."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u.at[1:-1, 1:-1].add(0.2 * (around - 4 * u[1:-1, 1:-1]))


def _laplacian(a: Array) -> Array:
    return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a


def gray_scott(state: tuple[Array, Array]) -> tuple[Array, Array]:
    """Two reacting fields, periodic."""
    u, v = state
    w = u * v * v
    return u + 0.16 * _laplacian(u) - w + 0.06 * (1 - u), v + 0.08 * _laplacian(v) + w - 0.122 * v


def life(u: Array) -> Array:
    """Conway's life on a torus, of 32-bit integers."""
    rows = u + jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)
    around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - u
    return ((around == 3) | ((around == 2) & (u == 1))).astype(u.dtype)


def lattice_boltzmann(f: Array) -> Array:
    """Collision and streaming of nine populations ``[9, y, x]`` (D2Q9)."""
    cx, cy = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
    weights = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)
    f = jnp.stack([jnp.roll(f[i], (cy[i], cx[i]), (0, 1)) for i in range(9)])
    rho = jnp.sum(f, 0) + 1.0
    ux, uy = (sum(c * f[i] for i, c in enumerate(cs) if c) / rho for cs in (cx, cy))
    square = 1.5 * (ux * ux + uy * uy)
    eu = [3 * (cx[i] * ux + cy[i] * uy) for i in range(9)]
    equilibrium = jnp.stack([w * rho * (1 + e + 0.5 * e * e - square) for w, e in zip(weights, eu, strict=True)])
    return f + 0.6 * (equilibrium - f)


def level_set(u: Array) -> Array:
    """A front that moves outward, by upwind differences (Osher and Sethian)."""
    q = jnp.pad(u, 1, mode="edge")
    c = q[1:-1, 1:-1]
    a, b = c - q[:-2, 1:-1], q[2:, 1:-1] - c
    d, e = c - q[1:-1, :-2], q[1:-1, 2:] - c
    plus, minus = (lambda v: jnp.maximum(v, 0)), (lambda v: jnp.minimum(v, 0))
    return u - 0.1 * jnp.sqrt(plus(a) ** 2 + minus(b) ** 2 + plus(d) ** 2 + minus(e) ** 2)


def shallow_water(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """Height and two velocities, periodic central differences."""
    h, u, v = state

    def d(a: Array, axis: int) -> Array:
        return (jnp.roll(a, -1, axis) - jnp.roll(a, 1, axis)) * 0.5

    new = h - 0.01 * (d(h * u, 0) + d(h * v, 1))
    return (
        new,
        u - 0.01 * (u * d(u, 0) + v * d(u, 1) + 9.8 * d(new, 0)),
        v - 0.01 * (u * d(v, 0) + v * d(v, 1) + 9.8 * d(new, 1)),
    )


def navier_stokes(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """A step of projection with ten Jacobi iterations for the pressure, walls around."""
    u, v, p = state

    def d(a: Array, axis: int) -> Array:
        q = jnp.pad(a, 1)
        return 0.5 * (q[2:, 1:-1] - q[:-2, 1:-1] if axis == 0 else q[1:-1, 2:] - q[1:-1, :-2])

    def around(a: Array) -> Array:
        q = jnp.pad(a, 1)
        return q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]

    u, v = (a - 0.02 * (u * d(a, 1) + v * d(a, 0)) + 0.05 * (around(a) - 4 * a) for a in (u, v))
    divergence = d(u, 1) + d(v, 0)
    for _ in range(10):
        p = 0.25 * (around(p) - divergence)
    return u - d(p, 1), v - d(p, 0), p


def variable_step(u: Array, k: Array) -> Array:
    """A step of diffusion whose coefficient differs from place to place."""
    q, kk = jnp.pad(u, 1), jnp.pad(k, 1)
    c, kc = q[1:-1, 1:-1], kk[1:-1, 1:-1]
    moved = 0.0
    for rows, columns in ((slice(None, -2), slice(1, -1)), (slice(2, None), slice(1, -1)),
                          (slice(1, -1), slice(None, -2)), (slice(1, -1), slice(2, None))):  # fmt: skip
        moved += (kc + kk[rows, columns]) * (q[rows, columns] - c)
    return u + 0.05 * moved


def variable_coefficients(u: Array, k: Array) -> Array:
    """Six such steps."""
    for _ in range(6):
        u = variable_step(u, k)
    return u


def forced(u: Array, k: Array) -> Array:
    """Steps of diffusion, each with a coefficient of its own ``k[step]``."""
    return lax.scan(lambda u, c: (u + c * _laplacian(u), None), u, k)[0]


def seven_point(u: Array) -> Array:
    """A step of heat in space, zeros around."""
    q = jnp.pad(u, 1)
    c = q[1:-1, 1:-1, 1:-1]
    return c + 0.1 * (
        q[:-2, 1:-1, 1:-1]
        + q[2:, 1:-1, 1:-1]
        + q[1:-1, :-2, 1:-1]
        + q[1:-1, 2:, 1:-1]
        + q[1:-1, 1:-1, :-2]
        + q[1:-1, 1:-1, 2:]
        - 6 * c
    )
