"""Building the sharding rule of an op whose dimensions correspond irregularly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eggshard.ops.base import PASS, REPLICATE, Factor, FactorRule
from eggshard.program.types import TensorType

#: The factors of one dimension, major to minor.
Dimension = tuple[int, ...]
Row = tuple[Dimension, ...]
Linear = tuple[tuple[str, tuple[int, ...]], ...]


class FactorTable:
    """Collects factors while the dimensions of operands and results are named by them."""

    def __init__(self) -> None:
        self._factors: list[Factor] = []

    def new(
        self, size: int, kind: str = PASS, monoid: str = "", *, positional: bool = False,
        accumulators: tuple[int, ...] = ()
    ) -> Dimension:
        """A dimension made of one new factor."""
        self._factors.append(Factor(size, kind, monoid, positional, accumulators))
        return (len(self._factors) - 1,)

    def row(self, type_: TensorType, shared: Mapping[int, Dimension] | None = None, kind: str = REPLICATE) -> Row:
        """All dimensions of a tensor: those in ``shared`` as given, each other one a new factor of ``kind``."""
        shared = shared or {}
        return tuple(shared[d] if d in shared else self.new(n, kind) for d, n in enumerate(type_.shape))

    def rule(self, operands: Sequence[Row], results: Sequence[Row], linear: Linear = ()) -> FactorRule:
        """The finished rule."""
        return FactorRule(tuple(self._factors), tuple(operands), tuple(results), linear)


def common_factors(source: Sequence[int], target: Sequence[int]) -> tuple[tuple[Factor, ...], Row, Row]:
    """The factors that the dimensions of two shapes of equally many elements have in common, major to minor.

    Walks both shapes from the major end. While the remaining sizes of the current dimensions have a common divisor,
    that is a pass factor of both. Where they have none, each side keeps factors of its own that are never sharded, up
    to the next place where the shapes align.

    >>> common_factors((8, 2048), (2, 4, 2048))[1:]
    (((0, 1), (2,)), ((0,), (1,), (2,)))
    >>> [f.kind for f in common_factors((4, 6), (6, 4))[0]]
    ['pass', 'replicate', 'replicate', 'replicate', 'replicate']
    """
    shapes = (source, target)
    factors: list[Factor] = []
    rows: tuple[list[list[int]], list[list[int]]] = ([[] for _ in source], [[] for _ in target])
    at, left = [-1, -1], [1, 1]  # the current dimension of each side, and what of it has no factor yet

    def advance(side: int) -> None:
        at[side] += 1
        left[side] = shapes[side][at[side]]

    def add(sides: Sequence[int], size: int, kind: str) -> None:
        for side in sides:
            rows[side][at[side]].append(len(factors))
        factors.append(Factor(size, kind))

    total, seen = math.prod(source), 1
    while seen < total:
        for side in (0, 1):
            while left[side] == 1:
                advance(side)
        common = math.gcd(*left)
        if common > 1:
            add((0, 1), common, PASS)
            left = [n // common for n in left]
            seen *= common
            continue
        reached = [seen, seen]
        for side in (0, 1):
            add((side,), left[side], REPLICATE)
            reached[side] *= left[side]
            left[side] = 1
        while reached[0] != reached[1]:
            side = int(reached[1] < reached[0])
            advance(side)
            if left[side] > 1:
                add((side,), left[side], REPLICATE)
            reached[side] *= left[side]
            left[side] = 1
        seen = reached[0]
    row, result = (tuple(tuple(dim) for dim in rows[side]) for side in (0, 1))
    return tuple(factors), row, result
