"""Dimension arithmetic that several topics share: permutations, dot dimension numbers, the groups of a reshape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

Dims = tuple[int, ...]
T = TypeVar("T")


def inverse(permutation: Sequence[int]) -> Dims:
    """The permutation that undoes this one."""
    out = [0] * len(permutation)
    for i, d in enumerate(permutation):
        out[d] = i
    return tuple(out)


def is_identity(permutation: Sequence[int]) -> bool:
    return all(i == d for i, d in enumerate(permutation))


def drop(shape: Sequence[int], dims: Iterable[int]) -> Dims:
    """The shape without some dimensions."""
    gone = set(dims)
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def replaced(values: Sequence[T], at: int, value: T) -> tuple[T, ...]:
    """The tuple with one entry replaced."""
    return (*values[:at], value, *values[at + 1 :])


def full_slice(shape: Sequence[int]) -> Attributes:
    """The slice that keeps everything."""
    return slice_of([(0, n, 1) for n in shape])


def slice_of(bounds: Iterable[tuple[int, int, int]]) -> Attributes:
    """Slice attributes from (start, limit, stride) per dimension."""
    rows = list(bounds)
    return Attributes(
        start_indices=tuple(r[0] for r in rows),
        limit_indices=tuple(r[1] for r in rows),
        strides=tuple(r[2] for r in rows),
    )


def bounds_of(s: Attributes) -> tuple[tuple[int, int, int], ...]:
    """(start, limit, stride) per dimension of slice attributes."""
    return tuple(zip(s["start_indices"], s["limit_indices"], s["strides"], strict=True))


def sliced_shape(s: Attributes) -> Dims:
    """The shape that a slice makes."""
    return tuple(-(-(limit - start) // stride) for start, limit, stride in bounds_of(s))


class Group(NamedTuple):
    """Dimensions of two shapes that hold the same elements in the same order."""

    source: Dims
    target: Dims


def groups(source: Sequence[int], target: Sequence[int]) -> list[Group]:
    """The finest aligned groups of a reshape, in order; unit dimensions at a boundary are groups of their own.

    >>> groups((2, 3, 4), (6, 4))
    [Group(source=(0, 1), target=(0,)), Group(source=(2,), target=(1,))]
    """
    if 0 in source or 0 in target:
        return [Group(tuple(range(len(source))), tuple(range(len(target))))]
    out: list[Group] = []
    i = j = 0
    while i < len(source) or j < len(target):
        unit_i, unit_j = i < len(source) and source[i] == 1, j < len(target) and target[j] == 1
        if unit_i or unit_j:
            out.append(Group((i,) if unit_i else (), (j,) if unit_j else ()))
            i, j = i + unit_i, j + unit_j
            continue
        left, right = [i], [j]
        a, b = source[i], target[j]
        while a != b:
            if a < b:
                left.append(left[-1] + 1)
                a *= source[left[-1]]
            else:
                right.append(right[-1] + 1)
                b *= target[right[-1]]
        i, j = left[-1] + 1, right[-1] + 1
        out.append(Group(tuple(left), tuple(right)))
    return out


def same_dims(source: Sequence[int], target: Sequence[int]) -> dict[int, int]:
    """Source dimensions that a reshape leaves alone, with the target dimension that each became."""
    return {g.source[0]: g.target[0] for g in groups(source, target) if len(g.source) == len(g.target) == 1}


class Dot(NamedTuple):
    """The roles of the operands' dimensions in a dot_general. Free dimensions are in the operands' order."""

    lhs_batch: Dims
    rhs_batch: Dims
    lhs_contracting: Dims
    rhs_contracting: Dims
    lhs_free: Dims
    rhs_free: Dims

    @classmethod
    def of(cls, attributes: Attributes, lhs: TensorType, rhs: TensorType) -> Dot:
        n = attributes["dot_dimension_numbers"]
        lb, rb = n["lhs_batching_dimensions"], n["rhs_batching_dimensions"]
        lc, rc = n["lhs_contracting_dimensions"], n["rhs_contracting_dimensions"]
        return cls(
            lb,
            rb,
            lc,
            rc,
            tuple(i for i in range(lhs.rank) if i not in lb + lc),
            tuple(i for i in range(rhs.rank) if i not in rb + rc),
        )

    def side(self, which: int) -> tuple[Dims, Dims, Dims]:
        """Batch, contracting and free dimensions of one operand (0 or 1)."""
        return self[which], self[2 + which], self[4 + which]

    def result_of(self, which: int) -> dict[int, int]:
        """Map each batch and free dimension of one operand to its dimension of the result."""
        batch, _, free = self.side(which)
        start = len(batch) + (len(self.lhs_free) if which else 0)
        return {d: i for i, d in enumerate(batch)} | {d: start + i for i, d in enumerate(free)}


def numbers(
    lhs_batch: Dims = (), rhs_batch: Dims = (), lhs_contracting: Dims = (), rhs_contracting: Dims = ()
) -> Attributes:
    """Dot dimension numbers."""
    return Attributes(
        lhs_batching_dimensions=tuple(lhs_batch),
        rhs_batching_dimensions=tuple(rhs_batch),
        lhs_contracting_dimensions=tuple(lhs_contracting),
        rhs_contracting_dimensions=tuple(rhs_contracting),
    )


def with_numbers(dot: Attributes, *sides: Dims) -> Attributes:
    """Return the attributes of a dot_general with its dimension numbers replaced."""
    return dot.updated(dot_dimension_numbers=numbers(*sides))


def renumbered(dot: Attributes, d: Dot, which: int, mapping: dict[int, int]) -> Attributes:
    """Return the attributes of a dot_general whose operand ``which`` had its dimensions renumbered by ``mapping``."""
    sides = [d.lhs_batch, d.rhs_batch, d.lhs_contracting, d.rhs_contracting]
    for k in (which, 2 + which):
        sides[k] = tuple(mapping[i] for i in sides[k])
    return with_numbers(dot, *sides)


def kept_dims(rank: int, dims: Iterable[int]) -> Dims:
    """The dimensions that a reduction keeps, in order."""
    gone = set(dims)
    return tuple(i for i in range(rank) if i not in gone)


def elements(shape: Iterable[int]) -> int:
    return math.prod(shape)
