"""Per-device codes of stencils, drawn at random: exchanges of all kinds between steps of a few fields of integers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, Mesh, PartitionSpec as P

Field = Any
Step = Callable[[list[Field]], list[Field]]
SHAPE = (32, 16)


def mesh_of(**axes: int) -> Mesh:
    """A mesh of virtual devices, whose axes are left to the compiler outside `shard_map`."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def shift(n: int, by: int, ring: bool) -> list[tuple[int, int]]:
    """Who sends to whom: to the device ``by`` places further on, around the ring or not."""
    return [(i, (i + by) % n) for i in range(n) if ring or 0 <= i + by < n]


def part(x: Field, d: int, a: int | None, b: int | None) -> Field:
    """Some elements of a dimension."""
    return x[(slice(None),) * d + (slice(a, b),)]


class Codes:
    """A code over a mesh axis per dimension, drawn by a seed. Fields are integers, so that results are exact."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.mesh = self.draw.choice([mesh_of(x=8), mesh_of(x=4, y=2), mesh_of(x=2, y=4)])
        self.axes: list[str | None] = list(self.mesh.axis_names)
        self.axes += [None] * (2 - len(self.axes))
        if self.draw.random() < 0.3:
            self.axes.reverse()
        self.steps = [self.step() for _ in range(self.draw.randint(2, 5))]
        self.turns = self.draw.choice([0, 0, 2, 3])

    @property
    def function(self) -> Callable[..., Any]:
        """The code as a jitted function of two global fields."""
        spec = P(*self.axes)

        def body(u: Field, v: Field) -> list[Field]:
            def once(fields: list[Field]) -> list[Field]:
                for step in self.steps:
                    fields = step(fields)
                return fields

            fields = once([u, v])
            return lax.fori_loop(0, self.turns, lambda _, f: once(f), fields) if self.turns else fields

        code = jax.shard_map(body, mesh=self.mesh, in_specs=(spec, spec), out_specs=[spec, spec], check_vma=False)
        return jax.jit(code, keep_unused=True)

    def step(self) -> Step:
        kind = self.draw.choice([self.stencil, self.stencil, self.trimmed, self.strips, self.ghosts, self.pointwise,
                                 self.masked, self.scaled, self.two_ways])
        return kind()

    def along(self) -> tuple[int, str, int]:
        """A dimension that is cut, its axis and the devices along it."""
        d = self.draw.choice([d for d, a in enumerate(self.axes) if a is not None])
        axis = self.axes[d] or ""
        return d, axis, self.mesh.shape[axis]

    def extended(self, d: int, axis: str, n: int, low: int, high: int) -> Callable[[Field], Field]:
        """What puts neighbours' elements around a field: with a boundary condition, by one of several spellings."""
        ring = self.draw.random() < 0.5
        boundary = self.draw.choice(["none", "none", "constant", "mirror"])
        spelling = self.draw.choice(["concatenate", "set"])
        constant = self.draw.randint(0, 3)

        def apply(x: Field) -> Field:
            size = x.shape[d]
            before = lax.ppermute(part(x, d, size - low, size), axis, shift(n, 1, ring))
            after = lax.ppermute(part(x, d, 0, high), axis, shift(n, -1, ring))
            if boundary != "none":
                edges = (constant, constant) if boundary == "constant" else (
                    jnp.flip(part(x, d, 0, low), d), jnp.flip(part(x, d, size - high, size), d))
                before = jnp.where(lax.axis_index(axis) == 0, edges[0], before)
                after = jnp.where(lax.axis_index(axis) == n - 1, edges[1], after)
            if spelling == "concatenate" or not low or not high:
                return jnp.concatenate([before, x, after], d)
            widths = [(low, high) if i == d else (0, 0) for i in range(x.ndim)]
            whole = jnp.pad(x, widths)
            index = (slice(None),) * d
            return whole.at[(*index, slice(0, low))].set(before).at[(*index, slice(size + low, None))].set(after)

        return apply

    def stencil(self) -> Step:
        """A weighted sum of neighbours, of slices of an extended field."""
        d, axis, n = self.along()
        low, high = self.draw.randint(0, 2), self.draw.randint(1, 2)
        extend = self.extended(d, axis, n, low, high)
        which, weights = self.draw.randrange(2), [self.draw.randint(-2, 3) for _ in range(low + high + 1)]

        def apply(fields: list[Field]) -> list[Field]:
            wide, size = extend(fields[which]), fields[which].shape[d]
            total = sum(w * part(wide, d, k, k + size) for k, w in enumerate(weights) if w)
            return [total + fields[0], fields[1] - fields[0]]

        return apply

    def trimmed(self) -> Step:
        """A kernel for one device, which rolls; what it spoils at the ends is cut off."""
        d, axis, n = self.along()
        extend, which = self.extended(d, axis, n, 2, 2), self.draw.randrange(2)

        def apply(fields: list[Field]) -> list[Field]:
            wide = extend(fields[which])
            for _ in range(2):
                wide = 2 * wide + jnp.roll(wide, 1, d) - jnp.roll(wide, -1, d)
            return [part(wide, d, 2, -2), fields[0]]

        return apply

    def strips(self) -> Step:
        """The inner part and both ends computed apart, so that the inner part need not wait."""
        d, axis, n = self.along()
        which = self.draw.randrange(2)

        def apply(fields: list[Field]) -> list[Field]:
            x = fields[which]
            before = lax.ppermute(part(x, d, -1, None), axis, shift(n, 1, True))
            after = lax.ppermute(part(x, d, 0, 1), axis, shift(n, -1, True))
            first = before - 2 * part(x, d, 0, 1) + part(x, d, 1, 2)
            inner = part(x, d, None, -2) - 2 * part(x, d, 1, -1) + part(x, d, 2, None)
            last = part(x, d, -2, -1) - 2 * part(x, d, -1, None) + after
            return [x + jnp.concatenate([first, inner, last], d), fields[0]]

        return apply

    def ghosts(self) -> Step:
        """A field with ghost cells, of which the inner part is updated in place."""
        d, axis, n = self.along()
        extend = self.extended(d, axis, n, 1, 1)

        def apply(fields: list[Field]) -> list[Field]:
            wide = extend(fields[0])
            index = (*(slice(None),) * d, slice(1, -1))
            wide = wide.at[index].add(part(wide, d, None, -2) + part(wide, d, 2, None))
            return [part(wide, d, 1, -1), fields[1]]

        return apply

    def two_ways(self) -> Step:
        """Corners too: strips of a field that is extended already."""
        cut = [(d, a, self.mesh.shape[a]) for d, a in enumerate(self.axes) if a is not None]
        extend = [self.extended(d, a, n, 1, 1) for d, a, n in cut]

        def apply(fields: list[Field]) -> list[Field]:
            wide = fields[0]
            for one in extend:
                wide = one(wide)
            inner = tuple(slice(None, -2) if a is not None else slice(None) for a in self.axes)
            outer = tuple(slice(2, None) if a is not None else slice(None) for a in self.axes)
            return [fields[1], wide[inner] + wide[outer] - fields[0]]

        return apply

    def pointwise(self) -> Step:
        a, b = self.draw.randint(1, 3), self.draw.randint(-2, 2)
        return lambda fields: [jnp.maximum(a * fields[0], fields[1]), fields[0] + b]

    def masked(self) -> Step:
        """Some global rows are kept as they are."""
        d, axis, n = self.along()
        kept = self.draw.randint(0, 5)

        def apply(fields: list[Field]) -> list[Field]:
            size = fields[0].shape[d]
            row = lax.axis_index(axis) * size + jnp.arange(size)
            row = row[:, None] if d == 0 else row[None, :]
            return [jnp.where((row <= kept) | (row == n * size - 1), fields[0], fields[1]), fields[1]]

        return apply

    def scaled(self) -> Step:
        """A norm over all devices."""
        names = tuple(a for a in self.axes if a is not None)
        greatest = self.draw.random() < 0.5

        def apply(fields: list[Field]) -> list[Field]:
            norm = lax.pmax(fields[0].max(), names) if greatest else lax.psum(fields[0].sum(), names)
            return [fields[0] - norm % 7, fields[1]]

        return apply
