"""Random programs that are written for any size: what a plan of them is put on another number of devices for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from tests.random_stencils import Argument, Spec, lowered, placed

import eggshard as es
from eggshard.costmodel import WireBytes

Line = Callable[[Any], Any]


def _inner(rank: int, axis: int, low: int, high: int) -> tuple[slice, ...]:
    """An index that leaves out so many rows at either end of an axis."""
    return tuple(slice(low, -high or None) if a == axis else slice(None) for a in range(rank))


def _line(rng: random.Random, rank: int) -> Line:
    """A function of one field that keeps its shape."""
    axis, r = rng.randrange(rank), rng.choice((1, 1, 2, 3))
    widths = [(r, r) if a == axis else (0, 0) for a in range(rank)]
    mode = rng.choice(("constant", "constant", "edge", "reflect", "symmetric", "wrap"))
    weight = rng.choice((2, 3, -1))

    def padded(u: Any) -> Any:
        p = jnp.pad(u, widths, mode=mode)
        n = u.shape[axis]
        return u + weight * lax.slice_in_dim(p, 0, n, axis=axis) - lax.slice_in_dim(p, 2 * r, 2 * r + n, axis=axis)

    def rolled(u: Any) -> Any:
        return weight * jnp.roll(u, r, axis) + jnp.roll(u, -r, axis) - u

    def interior(u: Any) -> Any:
        here = _inner(rank, axis, r, r)
        return u.at[here].set(weight * u[_inner(rank, axis, 0, 2 * r)] + u[_inner(rank, axis, 2 * r, 0)])

    def windows(u: Any) -> Any:
        size = [2 * r + 1 if a == axis else 1 for a in range(rank)]
        padding = [(r, r) if a == axis else (0, 0) for a in range(rank)]
        return lax.reduce_window(u, jnp.asarray(-99, u.dtype), lax.max, size, [1] * rank, padding)

    def numbered(u: Any) -> Any:
        return u + lax.broadcasted_iota(u.dtype, u.shape, axis)

    def masked(u: Any) -> Any:
        index = lax.broadcasted_iota("int32", u.shape, axis)
        return jnp.where((index >= r) & (index != weight), u, weight)

    def shortened(u: Any) -> Any:
        d = jnp.diff(u, axis=axis)
        return u + jnp.concatenate([d, lax.slice_in_dim(d, 0, 1, axis=axis)], axis)

    def flipped(u: Any) -> Any:
        return u + jnp.flip(u, axis)

    def folded(u: Any) -> Any:
        n = u.shape[axis]
        over = jnp.flip(lax.slice_in_dim(u, n - r, n, axis=axis), axis)
        return u + lax.slice_in_dim(jnp.concatenate([u, over], axis), r, n + r, axis=axis)

    def summed(u: Any) -> Any:
        return u - weight * jnp.sum(u, axis=axis, keepdims=True)

    def most(u: Any) -> Any:
        return jnp.minimum(u, jnp.max(u) - weight)

    def looped(u: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, v: jnp.maximum(v, jnp.roll(v, r, axis)) - 1, u)

    def chosen(u: Any) -> Any:
        return lax.cond(jnp.sum(u) > 0, lambda v: v + jnp.roll(v, 1, axis), lambda v: -v, u)

    return rng.choice((padded, padded, rolled, interior, interior, windows, numbered, masked, shortened, flipped,
                       folded, summed, most, looped, chosen))


class Scalable:
    """A random program of one field, its mesh, and another mesh with as many elements on each device."""

    def __init__(self, seed: int):
        rng = random.Random(seed)
        self.old, self.new, self.spec = rng.choice(_MESHES)
        rank = len(self.spec)
        tile = [rng.choice((2, 3, 4, 6, 8)) if axes else rng.choice((3, 8)) for axes in self.spec]
        self.tile = tuple(tile)
        self.lines = [_line(rng, rank) for _ in range(rng.choice((1, 2, 3)))]
        self.reduced = rng.random() < 0.2

    def function(self, u: Any) -> Any:
        for line in self.lines:
            u = line(u)
        return jnp.sum(u, axis=0) if self.reduced else u

    def at(self, mesh: dict[str, int]) -> tuple[Argument, jax.stages.Lowered]:
        """The program at the sizes that a mesh has."""
        shape = list(self.tile)
        for d, axes in enumerate(self.spec):
            for axis in axes:
                shape[d] *= mesh[axis]
        argument = Argument(tuple(shape), "int32", self.spec)
        out = placed(mesh, self.spec[1:] if self.reduced else self.spec)
        return argument, lowered(self.function, mesh, [argument], out)

    def plan(self, mesh: dict[str, int]) -> es.Plan:
        return es.optimize(self.at(mesh)[1], cost_model=WireBytes())


X: Spec = (("x",), ())
_MESHES: tuple[tuple[dict[str, int], dict[str, int], Spec], ...] = (
    ({"x": 4}, {"x": 8}, X), ({"x": 4}, {"x": 3}, X), ({"x": 5}, {"x": 7}, (("x",),)), ({"x": 8}, {"x": 5}, X),
    ({"x": 4, "y": 2}, {"x": 3, "y": 2}, (("x",), ("y",))), ({"x": 2, "y": 4}, {"x": 2, "y": 3}, (("y",), ("x",))),
    ({"x": 4, "y": 2}, {"x": 3, "y": 2}, (("y", "x"), ())), ({"x": 2, "y": 4}, {"x": 1, "y": 8}, (("y",), ())),
)  # fmt: skip
