"""The index map that gather and scatter share: windows of an operand at start indices that a tensor holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

#: StableHLO's names of the fields of `Windows`, in their order.
_GATHER = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
    "index_vector_dim",
)  # fmt: skip
_SCATTER = (
    "update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims", "index_vector_dim",
)  # fmt: skip


class Windows(NamedTuple):
    """Dimension numbers of gather and scatter under one set of names.

    *operand*: what the windows lie in. *windowed*: the gather's result, the scatter's updates; its dimensions are the
    ``window_dims``, which walk the operand's dimensions that are neither ``collapsed`` nor ``operand_batching``, and
    the batch dimensions, which walk the *indices* other than their ``index_vector_dim``. Component j of an index
    vector is where the window starts along operand dimension ``index_map[j]``.
    """

    window_dims: tuple[int, ...]
    collapsed: tuple[int, ...]
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]
    index_vector_dim: int

    @classmethod
    def of_gather(cls, numbers: Attributes) -> Windows:
        return cls(*(numbers[name] for name in _GATHER))

    @classmethod
    def of_scatter(cls, numbers: Attributes) -> Windows:
        return cls(*(numbers[name] for name in _SCATTER))

    @property
    def gather_numbers(self) -> Attributes:
        """The dimension numbers of a gather."""
        return Attributes(dict(zip(_GATHER, self, strict=True)))

    @property
    def scatter_numbers(self) -> Attributes:
        """The dimension numbers of a scatter."""
        return Attributes(dict(zip(_SCATTER, self, strict=True)))

    def operand_window_dims(self, rank: int) -> tuple[int, ...]:
        """The operand dimensions that ``window_dims`` walk, in the same order."""
        return tuple(d for d in range(rank) if d not in self.collapsed and d not in self.operand_batching)

    def indices_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of the indices without the index vector's, in the order of the batch dimensions."""
        return tuple(d for d in range(rank) if d != self.index_vector_dim)

    def batch_dims(self, rank: int) -> tuple[int, ...]:
        """The windowed tensor's dimensions that walk the indices."""
        return tuple(d for d in range(rank) if d not in self.window_dims)

    def sources(self, operand_rank: int, windowed_rank: int) -> list[int | None]:
        """Per dimension of the windowed tensor the operand's dimension that it walks, None for none."""
        sources: dict[int, int] = dict(zip(self.window_dims, self.operand_window_dims(operand_rank), strict=True))
        batch = self.batch_dims(windowed_rank)
        for d, e in zip(self.operand_batching, self.indices_batching, strict=True):
            sources[batch[e - (e > self.index_vector_dim)]] = d
        return [sources.get(w) for w in range(windowed_rank)]

    def check(self, operand: TensorType, indices: TensorType) -> None:
        """ProgramError where the dimension numbers contradict each other or the shapes."""
        if not 0 <= self.index_vector_dim <= indices.rank:
            raise ProgramError(f"index vector dimension {self.index_vector_dim} does not exist in {indices}")
        windowed_rank = len(self.indices_dims(indices.rank)) + len(self.window_dims)
        for what, dims, rank in (
            ("window", self.window_dims, windowed_rank),
            ("collapsed", self.collapsed, operand.rank),
            ("operand batching", self.operand_batching, operand.rank),
            ("indices batching", self.indices_batching, indices.rank),
            ("indexed", self.index_map, operand.rank),
        ):
            if len(set(dims)) != len(dims) or any(not 0 <= d < rank for d in dims):
                raise ProgramError(f"{what} dimensions {dims} repeat or do not exist")
        if list(self.window_dims) != sorted(self.window_dims):
            raise ProgramError(f"window dimensions {self.window_dims} are not in ascending order")
        if indices.dtype == "i1" or not indices.dtype.startswith(("i", "ui")):
            raise ProgramError(f"indices are {indices}, but must be integers")
        components = indices.shape[self.index_vector_dim] if self.index_vector_dim < indices.rank else 1
        if components != len(self.index_map):
            raise ProgramError(f"index vectors have {components} components for {len(self.index_map)} dimensions")
        if set(self.collapsed) & set(self.operand_batching) or set(self.index_map) & set(self.operand_batching):
            raise ProgramError("a batching dimension of the operand is collapsed or indexed as well")
        if len(self.window_dims) != len(self.operand_window_dims(operand.rank)):
            raise ProgramError(f"{len(self.window_dims)} window dimensions do not pair up with those of {operand}")
        if len(self.operand_batching) != len(self.indices_batching) or self.index_vector_dim in self.indices_batching:
            raise ProgramError("batching dimensions of operand and indices do not pair up")
        for d, e in zip(self.operand_batching, self.indices_batching, strict=True):
            if operand.shape[d] != indices.shape[e]:
                raise ProgramError(f"batching dimension {d} of {operand} and {e} of {indices} differ in size")

    def batch_shape(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of the batch dimensions."""
        return tuple(indices[d] for d in self.indices_dims(len(indices)))

    def windowed_shape(self, indices: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the windowed tensor; ``sizes`` are the window's along the operand's dimensions."""
        batch = self.batch_shape(indices)
        rank = len(batch) + len(self.window_dims)
        shape = dict(zip(self.batch_dims(rank), batch, strict=True))
        walked = (sizes[d] for d in self.operand_window_dims(len(sizes)))
        shape.update(zip(self.window_dims, walked, strict=True))
        return tuple(shape[d] for d in range(rank))

    def starts(self, operand: tuple[int, ...], indices: np.ndarray) -> list[np.ndarray]:
        """Per operand dimension, the window's start; the arrays broadcast to the batch dimensions.

        Operand batching dimensions start at their own batch index.
        """
        if indices.dtype == np.uint64:
            indices = np.minimum(indices, np.uint64(2**63 - 1))
        vectors = indices.astype(np.int64)
        if self.index_vector_dim < indices.ndim:
            vectors = np.moveaxis(vectors, self.index_vector_dim, -1)
        else:
            vectors = vectors[..., None]
        batch = self.indices_dims(indices.ndim)
        out = [np.zeros((1,) * len(batch), np.int64)] * len(operand)
        for j, d in enumerate(self.index_map):
            out[d] = vectors[..., j]
        for d, e in zip(self.operand_batching, self.indices_batching, strict=True):
            out[d] = np.arange(operand[d]).reshape([-1 if b == e else 1 for b in batch])
        return out

    def spread(self, batched: np.ndarray, windowed_rank: int) -> np.ndarray:
        """An array over the batch dimensions as one that broadcasts to the windowed tensor."""
        sizes = dict(zip(self.batch_dims(windowed_rank), batched.shape, strict=True))
        return batched.reshape([sizes.get(d, 1) for d in range(windowed_rank)])

    def positions(
        self, starts: list[np.ndarray], sizes: tuple[int, ...], windowed_rank: int
    ) -> tuple[np.ndarray, ...]:
        """Per operand dimension, the index that each element of the windowed tensor has there.

        ``sizes`` are the window's along the operand's dimensions. The arrays broadcast to the windowed shape.
        """
        out = [self.spread(start, windowed_rank) for start in starts]
        for d, w in zip(self.operand_window_dims(len(starts)), self.window_dims, strict=True):
            out[d] = out[d] + np.arange(sizes[d]).reshape([-1 if i == w else 1 for i in range(windowed_rank)])
        return tuple(out)
