"""Stencils in the spellings in which users write them: the same values, other operations.

``Edge`` says what a stencil reads outside the domain: zeros, the end element again, the other end, or the mirrored
domain. Every function takes and returns arrays of the domain's own size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Edge = Literal["zero", "edge", "periodic", "reflect"]
Offset = tuple[int, ...]
Step = Callable[[Array], Array]

MODES: Mapping[Edge, str] = {"zero": "constant", "edge": "edge", "periodic": "wrap", "reflect": "reflect"}

FIVE_POINT: Mapping[Offset, float] = {(-1, 0): 0.25, (1, 0): 0.25, (0, -1): 0.25, (0, 1): 0.25}
NINE_POINT: Mapping[Offset, float] = {
    at: 0.125 for at in itertools.product((-1, 0, 1), repeat=2) if at != (0, 0)
}  # fmt: skip


def star(rank: int, radius: int, axes: Sequence[int] | None = None) -> dict[Offset, float]:
    """Taps along each axis up to ``radius``, their weights adding up to one."""
    axes = range(rank) if axes is None else axes
    taps = [
        tuple(distance * (axis == a) for a in range(rank))
        for axis in axes
        for distance in (*range(-radius, 0), *range(1, radius + 1))
    ]
    return dict.fromkeys([(0,) * rank, *taps], 1 / (len(taps) + 1))


def by_pad(taps: Mapping[Offset, float], edge: Edge = "zero") -> Step:
    """Pad the domain once, then add slices of it."""
    radii = [max(abs(at[axis]) for at in taps) for axis in range(len(next(iter(taps))))]

    def step(u: Array) -> Array:
        padded = jnp.pad(u, [(r, r) for r in radii], mode=MODES[edge])
        return _sum(
            weight * padded[tuple(slice(r + o, r + o + n) for r, o, n in zip(radii, at, u.shape, strict=True))]
            for at, weight in taps.items()
        )

    return step


def by_shift(taps: Mapping[Offset, float], shift: Callable[[Array, int, int, Edge], Array], edge: Edge) -> Step:
    """Shift the domain along one axis after the other, and add."""

    def shifted(u: Array, at: Offset) -> Array:
        for axis, offset in enumerate(at):
            if offset:
                u = shift(u, offset, axis, edge)
        return u

    return lambda u: _sum(weight * shifted(u, at) for at, weight in taps.items())


def by_convolution(taps: Mapping[Offset, float], edge: Edge = "zero") -> Step:
    """One convolution; what lies outside the domain is padded before it, except zeros."""
    rank = len(next(iter(taps)))
    radius = max(abs(o) for at in taps for o in at)
    kernel = np.zeros((2 * radius + 1,) * rank, np.float32)
    for at, weight in taps.items():
        kernel[tuple(o + radius for o in at)] = weight

    def step(u: Array) -> Array:
        padding = "SAME" if edge == "zero" else "VALID"
        padded = u if edge == "zero" else jnp.pad(u, radius, mode=MODES[edge])
        out = lax.conv_general_dilated(
            padded[None, None], jnp.asarray(kernel, u.dtype)[None, None], (1,) * rank, padding
        )
        return out[0, 0]

    return step


def roll(u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``u[i + offset]`` by `jnp.roll`, and a select at the ends."""
    return _ends(jnp.roll(u, -offset, axis), u, offset, axis, edge)


def concatenated(u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``u[i + offset]`` by a slice and what follows it."""
    n, size = u.shape[axis], abs(offset)
    if offset > 0:
        kept, outside = _slice(u, offset, n, axis), _outside(u, size, axis, edge, high=True)
        return jnp.concatenate([kept, outside], axis)
    kept, outside = _slice(u, 0, n - size, axis), _outside(u, size, axis, edge, high=False)
    return jnp.concatenate([outside, kept], axis)


def padded(u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``u[i + offset]`` by a pad on one side and a slice."""
    widths = [(0, 0)] * u.ndim
    widths[axis] = (0, offset) if offset > 0 else (-offset, 0)
    start = max(offset, 0)
    return _slice(jnp.pad(u, widths, mode=MODES[edge]), start, start + u.shape[axis], axis)


def updated(u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``u[i + offset]`` written into an array by ``.at[].set``."""
    n, size = u.shape[axis], abs(offset)
    kept = _slice(u, max(offset, 0), n + min(offset, 0), axis)
    at = [slice(None)] * u.ndim
    at[axis] = slice(0, n - size) if offset > 0 else slice(size, n)
    out = jnp.zeros_like(u).at[tuple(at)].set(kept)
    if edge == "zero":
        return out
    at[axis] = slice(n - size, n) if offset > 0 else slice(0, size)
    return out.at[tuple(at)].set(_outside(u, size, axis, edge, high=offset > 0))


def taken(u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``u[i + offset]`` by constant indices."""
    n = u.shape[axis]
    index = np.arange(n) + offset
    if edge == "periodic":
        return jnp.take(u, index % n, axis)
    if edge == "reflect":
        return jnp.take(u, np.where(index < 0, -index, np.where(index < n, index, 2 * n - 2 - index)), axis)
    return _ends(jnp.take(u, np.clip(index, 0, n - 1), axis), u, offset, axis, edge if edge == "zero" else "periodic")


SHIFTS: Mapping[str, Callable[[Array, int, int, Edge], Array]] = {
    "roll": roll, "concat": concatenated, "pad each": padded, "at": updated, "take": taken,
}  # fmt: skip
SPELLINGS = (*SHIFTS, "pad", "convolution")


def spelled(spelling: str, taps: Mapping[Offset, float], edge: Edge) -> Step:
    """A stencil in one of `SPELLINGS`."""
    if spelling == "pad":
        return by_pad(taps, edge)
    if spelling == "convolution":
        return by_convolution(taps, edge)
    return by_shift(taps, SHIFTS[spelling], edge)


def repeated(step: Callable[[Any], Any], count: int, form: str = "unrolled") -> Callable[[Any], Any]:
    """``count`` steps: "unrolled", in a "fori" loop, or in a "scan"."""

    def unrolled(state: Any) -> Any:
        for _ in range(count):
            state = step(state)
        return state

    if form == "unrolled":
        return unrolled
    if form == "fori":
        return lambda state: lax.fori_loop(0, count, lambda _, carried: step(carried), state)
    return lambda state: lax.scan(lambda carried, _: (step(carried), None), state, length=count)[0]


def _sum(terms: Any) -> Array:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def _slice(u: Array, start: int, stop: int, axis: int) -> Array:
    return lax.slice_in_dim(u, start, stop, axis=axis)


def _outside(u: Array, size: int, axis: int, edge: Edge, *, high: bool) -> Array:
    """``size`` elements beyond an end of the domain."""
    n = u.shape[axis]
    if edge == "zero":
        return jnp.zeros_like(_slice(u, 0, size, axis))
    if edge == "periodic":
        return _slice(u, 0, size, axis) if high else _slice(u, n - size, n, axis)
    if edge == "edge":
        return jnp.repeat(_slice(u, n - 1, n, axis) if high else _slice(u, 0, 1, axis), size, axis)
    return jnp.flip(_slice(u, n - 1 - size, n - 1, axis) if high else _slice(u, 1, 1 + size, axis), axis)


def _ends(moved: Array, u: Array, offset: int, axis: int, edge: Edge) -> Array:
    """``moved`` with its elements from outside the domain replaced."""
    if edge == "periodic":
        return moved
    n = u.shape[axis]
    index = jnp.arange(n).reshape([-1 if a == axis else 1 for a in range(u.ndim)])
    inside = index < n - offset if offset > 0 else index >= -offset
    if edge == "reflect":
        index = index + offset
        mirrored = padded(u, offset, axis, edge)
        return jnp.where(inside, moved, mirrored)
    end = _slice(u, n - 1, n, axis) if offset > 0 else _slice(u, 0, 1, axis)
    return jnp.where(inside, moved, jnp.zeros_like(u) if edge == "zero" else end)
