"""Mesh axes that steps move between the dimensions of a tensor: the shapes that result, and what is copied for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

#: (tensor dimension, mesh axes major to minor): which axes a step adds to or takes from a dimension.
Moves = tuple[tuple[int, tuple[str, ...]], ...]


def moved_axes(moves: Moves) -> tuple[str, ...]:
    """The axes of all moves in order: the order of devices within the step's groups (first is major)."""
    return tuple(a for _, axes in moves for a in axes)


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes read and written, and the contiguous pieces of memory that they are copied in."""

    bytes: float = 0.0
    runs: float = 0.0

    def __add__(self, other: Copies) -> Copies:
        return Copies(self.bytes + other.bytes, self.runs + other.runs)


def copied(mesh: Mesh, whole: TensorType, moves: Moves) -> Copies:
    """Return the local copies that bring each device's part of an array together: none if they are contiguous."""
    last = max(dim for dim, _ in moves)
    outer = math.prod(whole.shape[:last])
    return Copies() if outer == 1 else Copies(2.0 * whole.bytes, float(outer * mesh.count(dict(moves)[last])))


def copied_along(mesh: Mesh, moves: Moves, part: TensorType, whole: TensorType) -> Copies:
    """Return the local copies of splitting an array into parts or joining parts into an array. Along one dimension XLA
    makes that one the outermost of both, and so copies what is inside one index of it at a time."""
    if len(moves) > 1:
        return copied(mesh, whole, moves)
    dim = moves[0][0]
    outer = math.prod(whole.shape[:dim])
    if outer == 1:
        return Copies()
    return Copies(2.0 * (part.bytes + whole.bytes), float(outer * (part.shape[dim] + whole.shape[dim])))


def scaled(mesh: Mesh, type_: TensorType, grow: Moves, shrink: Moves) -> TensorType:
    """The local type of which dimensions grow and others shrink by the number of devices along axes."""
    shape = list(type_.shape)
    for dim, axes in grow:
        shape[dim] *= mesh.count(axes)
    for dim, axes in shrink:
        count = mesh.count(axes)
        if shape[dim] % count:
            raise ValueError(f"dimension {dim} of local {type_} does not split over {axes}")
        shape[dim] //= count
    return type_.with_shape(tuple(shape))
