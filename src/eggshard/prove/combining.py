"""A monoid's binary function over a field, with the methods of a NumPy ufunc; integers go to the ufunc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.ops.arithmetic import Combine
from eggshard.ops.indices.scatter import by_turns
from eggshard.prove.hashing import Hashes
from eggshard.prove.residues import Residues, is_complex, paired


class Combination:
    """One of ``add``, ``mul``, ``max`` and ``min``, of residues by a function, of integers by a ufunc."""

    def __init__(self, monoid: str, integers: Combine, function: Callable[[np.ndarray, np.ndarray], np.ndarray],
                 residues: Residues, hashes: Hashes):
        self._monoid, self._integers, self._function = monoid, integers, function
        self._residues, self._hashes = residues, hashes

    def __call__(self, a: np.ndarray, b: np.ndarray, /) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self._function(a, b) if a.dtype.kind in "fc" else self._integers(a, b)

    def reduce(self, array: np.ndarray, /, *, axis: tuple[int, ...], dtype: Any, initial: Any) -> np.ndarray:
        if array.dtype.kind not in "fc":
            return self._integers.reduce(array, axis=axis, dtype=dtype, initial=initial)
        if not array.size:
            return np.full([n for d, n in enumerate(array.shape) if d not in axis], initial, array.dtype)
        if self._monoid == "add":
            return self._residues.total(array, axis)
        kept = [d for d in range(array.ndim) if d not in axis]
        rows = np.transpose(array, (*axis, *kept)).reshape(-1, *(array.shape[d] for d in kept))
        if self._monoid == "mul":
            while len(rows) > 1:
                even = len(rows) // 2 * 2
                rows = np.concatenate([self._function(rows[0:even:2], rows[1:even:2]), rows[even:]])
            return np.asarray(rows[0])
        rank = self._hashes.rank(rows)
        best = rank.argmax(axis=0) if self._monoid == "max" else rank.argmin(axis=0)
        out = np.take_along_axis(rows, best[None], axis=0)[0]
        return np.where(np.isnan(rows).any(axis=0), np.nan, out)

    def accumulate(self, array: np.ndarray, /, *, axis: int, dtype: Any) -> np.ndarray:
        if array.dtype.kind not in "fc":
            return self._integers.accumulate(array, axis=axis, dtype=dtype)
        if self._monoid == "add" and np.isfinite(array).all():
            if is_complex(array):
                return paired(*(self.accumulate(part, axis=axis, dtype=None) for part in (array.real, array.imag)))
            return self._residues.reduced(np.add.accumulate(array, axis=axis))
        out = np.moveaxis(array, axis, 0).copy()
        reach = 1
        while reach < len(out):  # row i combines the rows from i - 2 * reach + 1 on
            out[reach:] = self._function(out[:-reach], out[reach:])
            reach *= 2
        return np.moveaxis(out, 0, axis)

    def at(self, array: np.ndarray, indices: np.ndarray, partial_sums: np.ndarray, /) -> None:
        if array.dtype.kind not in "fc":
            self._integers.at(array, indices, partial_sums)
            return
        partial_sums = np.broadcast_to(partial_sums, indices.shape)
        for turn in by_turns(indices):
            array[indices[turn]] = self._function(array[indices[turn]], partial_sums[turn])

