"""A monoid's binary function over a field, with the methods of a NumPy ufunc; integers go to the ufunc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.ops.arithmetic import Combine
from eggshard.ops.indices.scatter import by_turns
from eggshard.prove.residues import Residues, is_complex, paired

_Function = Callable[[np.ndarray], np.ndarray]


class Combination:
    """A monoid, of residues by a function, of integers by a ufunc.

    many: the function of all along a first dimension. elements: what the function sees of an array.
    """

    def __init__(self, monoid: str, integers: Combine, function: Callable[[np.ndarray, np.ndarray], np.ndarray],
                 residues: Residues, many: _Function | None = None, elements: _Function = np.asarray):
        self._monoid, self._integers, self._function = monoid, integers, function
        self._residues, self._many, self._elements = residues, many, elements

    def __call__(self, a: np.ndarray, b: np.ndarray, /) -> np.ndarray:
        with np.errstate(all="ignore"):
            if a.dtype.kind in "fc":
                return self._function(self._elements(a), self._elements(b))
            return self._integers(a, b)

    def reduce(self, array: np.ndarray, /, *, axis: tuple[int, ...], dtype: Any, initial: Any) -> np.ndarray:
        if array.dtype.kind not in "fc":
            return self._integers.reduce(array, axis=axis, dtype=dtype, initial=initial)
        array = self._elements(array)
        if not array.size:
            return np.full([n for d, n in enumerate(array.shape) if d not in axis], initial, array.dtype)
        if self._monoid == "add":
            return self._residues.total(array, axis)
        kept = [d for d in range(array.ndim) if d not in axis]
        rows = np.transpose(array, (*axis, *kept)).reshape(-1, *(array.shape[d] for d in kept))
        if self._many is not None:
            return self._many(rows)
        while len(rows) > 1:
            even = len(rows) // 2 * 2
            rows = np.concatenate([self._function(rows[0:even:2], rows[1:even:2]), rows[even:]])
        return np.asarray(rows[0])

    def accumulate(self, array: np.ndarray, /, *, axis: int, dtype: Any) -> np.ndarray:
        if array.dtype.kind not in "fc":
            return self._integers.accumulate(array, axis=axis, dtype=dtype)
        array = self._elements(array)
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
            array[indices[turn]] = self(array[indices[turn]], partial_sums[turn])

