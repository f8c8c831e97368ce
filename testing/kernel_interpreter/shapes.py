"""Ops that only arrange elements: ranges, splats, broadcasts, reshapes, joins. Layouts do not change values."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation
from testing.kernel_interpreter.elements import Array
from testing.kernel_interpreter.integers import element_of
from testing.kernel_interpreter.registry import pure


def shape_of(op: Operation, result: int = 0) -> tuple[int, ...]:
    tensor = op.results[result].tensor
    return () if tensor is None else tensor.shape


@pure("tt.make_range")
def _range(op: Operation) -> Array:
    start, end = op.integer("start"), op.integer("end")
    assert start is not None and end is not None
    return np.arange(start, end, dtype=element_of(op))


@pure("tt.splat", "tt.broadcast")
def _broadcast(op: Operation, a: Array) -> Array:
    return np.broadcast_to(a, shape_of(op))


@pure("tt.unsplat")
def _unsplat(op: Operation, a: Array) -> Array:
    return a.reshape(())


@pure("tt.expand_dims")
def _expand(op: Operation, a: Array) -> Array:
    axis = op.integer("axis")
    assert axis is not None
    return np.expand_dims(a, axis)


@pure("tt.reshape")
def _reshape(op: Operation, a: Array) -> Array:
    """In row-major order, also where ``allow_reorder`` would let the compiler choose another."""
    return a.reshape(shape_of(op))


@pure("tt.trans")
def _transpose(op: Operation, a: Array) -> Array:
    return a.transpose(op.integers("order"))


@pure("tt.join")
def _join(op: Operation, a: Array, b: Array) -> Array:
    return np.stack([a, b], axis=-1)


@pure("tt.split")
def _split(op: Operation, a: Array) -> tuple[Array, Array]:
    return a[..., 0], a[..., 1]


@pure("tt.cat")
def _concatenate(op: Operation, a: Array, b: Array) -> Array:
    """One after the other, though the op lets the compiler order elements as it likes."""
    return np.concatenate([a, b], axis=0)


@pure("ttg.convert_layout", "amdg.in_thread_transpose", "gluon.set_auto_layout")
def _same(op: Operation, a: Array) -> Array:
    return a


@pure("amdg.extract_slice")
def _extract(op: Operation, a: Array) -> Array:
    starts = op.integers("static_offsets")
    return a[tuple(slice(s, s + n) for s, n in zip(starts, shape_of(op), strict=True))]


@pure("amdg.concat")
def _tiles(op: Operation, *parts: Array) -> Array:
    """Tiles of one shape, in row-major order."""
    result = np.empty(shape_of(op), element_of(op))
    counts = [n // m for n, m in zip(result.shape, parts[0].shape, strict=True)]
    for part, position in zip(parts, np.ndindex(*counts), strict=True):
        result[tuple(slice(p * n, (p + 1) * n) for p, n in zip(position, part.shape, strict=True))] = part
    return result


@pure("tt.gather")
def _gather(op: Operation, a: Array, indices: Array) -> Array:
    axis = op.integer("axis")
    assert axis is not None
    if ((indices < 0) | (indices >= a.shape[axis])).any():
        raise ProgramError(f"an index is outside of the {a.shape[axis]} elements of dimension {axis}")
    others = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))
    return np.take_along_axis(a[others], indices.astype(np.int64), axis)


@pure("tt.histogram")
def _histogram(op: Operation, values: Array, mask: Any = None) -> Array:
    (bins,) = shape_of(op)
    counted = values.reshape(-1) if mask is None else values[mask]
    if ((counted < 0) | (counted >= bins)).any():
        raise ProgramError(f"a value is outside of the {bins} bins")
    return np.bincount(counted.astype(np.int64), minlength=bins).astype(element_of(op))
