"""The ops that writers of programs have in common, whatever their values are and wherever the ops go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from eggshard.ops.windowing import Run
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType, numpy_dtype

if TYPE_CHECKING:
    from eggshard.program.program import Region

V = TypeVar("V")


class OpWriter(ABC, Generic[V]):
    """Appends ops of the registry. What changes nothing appends nothing, and is the value itself."""

    @abstractmethod
    def emit(
        self, name: str, operands: Sequence[V], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[V, ...]:
        """Append an op of the registry and return its results."""

    @abstractmethod
    def type_of(self, value: V) -> TensorType:
        """The type of a value."""

    def op(self, name: str, *operands: V, **attributes: Any) -> V:
        """Append an op with one result."""
        (result,) = self.emit(name, operands, Attributes(attributes))
        return result

    def constant(self, array: np.ndarray) -> V:
        """A constant."""
        return self.op("constant", value=Literal(array))

    def splat(self, value: Any, type_: TensorType) -> V:
        """A constant that has the same value everywhere."""
        return self.constant(np.broadcast_to(np.asarray(value).astype(numpy_dtype(type_.dtype)), type_.shape))

    def scalar(self, value: Any, dtype: str) -> V:
        """A constant of rank 0."""
        return self.splat(value, TensorType((), dtype))

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """x with the same elements in row-major order."""
        return x if self.type_of(x).shape == tuple(shape) else self.op("reshape", x, shape=tuple(shape))

    def broadcast(self, x: V, shape: tuple[int, ...], dims: Sequence[int] = ()) -> V:
        """x repeated to a shape in which its dimension i is dimension ``dims[i]``."""
        if self.type_of(x).shape == shape:
            return x
        return self.op("broadcast_in_dim", x, broadcast_dimensions=tuple(dims), shape=shape)

    def slice(self, x: V, bounds: Sequence[tuple[int, int, int]]) -> V:
        """(start, limit, stride) of each dimension."""
        if all(b == (0, n, 1) for b, n in zip(bounds, self.type_of(x).shape, strict=True)):
            return x
        starts, limits, strides = zip(*bounds, strict=True)
        return self.op("slice", x, start_indices=starts, limit_indices=limits, strides=strides)

    def part(self, x: V, dim: int, start: int, limit: int, stride: int = 1) -> V:
        """Some indices of one dimension."""
        own = start, limit, stride
        return self.slice(x, [own if d == dim else (0, n, 1) for d, n in enumerate(self.type_of(x).shape)])

    def concatenate(self, parts: Sequence[V], dim: int) -> V:
        """Values one after the other along a dimension."""
        return parts[0] if len(parts) == 1 else self.op("concatenate", *parts, dimension=dim)

    def picked(self, x: V, dim: int, runs: Sequence[Run]) -> V:
        """Runs of indices along one dimension, one after the other; those without indices are left out."""
        parts = []
        for run in runs:
            if not run.length:
                continue
            y, shape = self.part(x, dim, *run.bounds), self.type_of(x).shape
            if run.length > 1 and run.step < 0:
                y = self.op("reverse", y, dimensions=(dim,))
            elif run.length > 1 and run.step == 0:
                y = self.broadcast(y, (*shape[:dim], run.length, *shape[dim + 1 :]), range(len(shape)))
            parts.append(y)
        return self.concatenate(parts or [x], dim)
