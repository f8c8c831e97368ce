"""Physical steps on windows: slabs exchanged with neighbours, and what lies beyond a tensor's ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eggshard.placement.placement import Dim
from eggshard.placement.windows import Slab
from eggshard.plan.steps import Action
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType


@dataclass(frozen=True, slots=True)
class Crop(Action):
    """Hold another window of dimension ``dim``: of the shard of size ``old``, what falls into the one of size ``new``.

    ``offsets``: per position along ``over`` where the old shard begins in the new one (negative: what lies below is
    cut off). The rest of the new shard is unspecified.
    """

    dim: int
    over: tuple[str, ...]
    new: int
    offsets: tuple[int, ...]
    kind: ClassVar[str] = "window"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (_resized(operands[0], self.dim, self.new),)


@dataclass(frozen=True, slots=True)
class HaloExchange(Action):
    """`Crop`, then slabs from other devices along ``over`` are put where the new shard lacks them.

    Each round is one collective-permute of equal slabs within every group along ``over``; devices of a group are
    numbered by their position in it.
    """

    dim: int
    over: tuple[str, ...]
    new: int
    offsets: tuple[int, ...]
    rounds: tuple[Slab, ...]
    kind: ClassVar[str] = "halo-exchange"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    @property
    def messages(self) -> int:
        return len(self.rounds)

    @property
    def collectives(self) -> dict[str, int]:
        return {"collective-permute": self.messages}

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (_resized(operands[0], self.dim, self.new),)

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        position = mesh.index(self.over)
        out = np.zeros(mesh.size)
        for slab in self.rounds:
            receives = np.isin(position, [receiver for _, receiver in slab.pairs])
            out += receives * float(_resized(operands[0], self.dim, slab.width).bytes)
        return out

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(sum(_resized(operands[0], self.dim, slab.width).bytes for slab in self.rounds))


@dataclass(frozen=True, slots=True)
class BoxSelect(Action):
    """Of two operands the first inside a box of global indices, the second outside it.

    box: per dimension (dimension, its window, start, stop); the shard at position p along the window's axes begins at
    global index ``p * tile + low``. Both operands have the result's local type; the second may be a scalar.
    """

    box: tuple[tuple[int, Dim, int, int], ...]
    kind: ClassVar[str] = "select"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0],)


@dataclass(frozen=True, slots=True)
class EdgeFill(Action):
    """What a shard holds outside the tensor along ``dim``, of global size ``size``, is filled from the tensor's ends.

    ``mode`` as in `numpy.pad`: ``edge`` repeats the end, ``reflect`` mirrors at the end element, ``symmetric`` mirrors
    beyond it. Every shard that reaches outside holds the elements that are needed.
    """

    dim: int
    window: Dim
    size: int
    mode: str
    kind: ClassVar[str] = "edge"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands


def _resized(type_: TensorType, dim: int, size: int) -> TensorType:
    shape = list(type_.shape)
    shape[dim] = size
    return type_.with_shape(tuple(shape))
