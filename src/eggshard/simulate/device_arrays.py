"""Arrays of all devices at once, ``[devices, *local shape]``: poison for unspecified data, and equality."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.ops.arithmetic import current
from eggshard.program import monoids
from eggshard.program.types import mlir_dtype
from eggshard.steps.handlers import Handlers

Arrays = tuple[np.ndarray, ...]

#: What each action does: (action, mesh, operands ``[devices, *local shape]``) to results of such form.
PERFORMED: Handlers[Arrays] = Handlers("simulation")


def poison(dtype: np.dtype) -> np.ndarray:
    """An element that stands for unspecified data: NaN, True, or alternating bits."""
    if dtype == np.bool_:
        return np.array(True)
    name = mlir_dtype(dtype)
    if name.startswith(("i", "ui")):
        highest = monoids.identity("min", name)
        return np.array(int(highest) // 3 * 2 + 1).astype(dtype)
    return np.array(complex(np.nan, np.nan) if name.startswith("complex") else np.nan).astype(dtype)


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of nothing but unspecified data."""
    return np.full(shape, poison(dtype), dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Per element, whether bits are the same or both are NaN."""
    a, b = np.ascontiguousarray(a).reshape(a.shape), np.ascontiguousarray(b).reshape(b.shape)
    size = a.dtype.itemsize
    bits = [x.reshape(-1).view(np.uint8).reshape(*x.shape, size) for x in (a, b)]
    out: np.ndarray = (bits[0] == bits[1]).all(axis=-1)
    if not mlir_dtype(a.dtype).startswith(("i", "ui")):
        with np.errstate(invalid="ignore"):
            out |= (a != a) & (b != b)
    return out


def combined(monoid: str, partial_sums: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of one type combined in their order; bfloat16 and 8-bit floats in f32, rounded at the end (as XLA does on
    CPU)."""
    dtype = partial_sums[0].dtype
    wide = np.dtype(np.float32) if mlir_dtype(dtype).startswith(("bf16", "f8")) else dtype
    combine = current().combine(monoid)
    total = partial_sums[0].astype(wide, copy=False)
    for partial_sum in partial_sums[1:]:
        total = combine(total, partial_sum.astype(wide, copy=False)).astype(wide, copy=False)
    return np.asarray(total).astype(dtype, copy=False)
