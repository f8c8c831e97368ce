"""A builder of factor rules, for ops whose dimensions correspond irregularly."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from eggshard.ops.base import PASS, REPLICATE, Factor, FactorRule, Types
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
        return self.add(Factor(size, kind, monoid, positional, accumulators))

    def add(self, factor: Factor) -> Dimension:
        """A dimension made of one new factor."""
        self._factors.append(factor)
        return (len(self._factors) - 1,)

    def row(self, type_: TensorType, shared: Mapping[int, Dimension] | None = None, kind: str = REPLICATE) -> Row:
        """All dimensions of a tensor: those in ``shared`` as given, each other one a new factor of ``kind``."""
        shared = shared or {}
        return tuple(shared[d] if d in shared else self.new(n, kind) for d, n in enumerate(type_.shape))

    def rule(self, operands: Sequence[Row], results: Sequence[Row], linear: Linear = ()) -> FactorRule:
        """The finished rule."""
        return FactorRule(tuple(self._factors), tuple(operands), tuple(results), linear)


#: What a dimension is about; equal labels are one factor. None: a factor of its own that is never sharded. Three dots:
#: a dimension of size 1 that has no factor.
Label = Hashable


def labelled_rule(
    operands: Types, results: Types, labels: Sequence[Iterable[Label]], kinds: Mapping[Any, Factor] | None = None,
    linear: Linear = (), order: Iterable[Label] = (),
) -> FactorRule:
    """The rule of an op whose dimensions are labelled, tensor by tensor, operands first.

    Factors pass unless ``kinds`` says otherwise. They are numbered as ``order`` lists them, and then as they appear.

    >>> matrices = TensorType((2, 3), "f32"), TensorType((3, 4), "f32")
    >>> rule = labelled_rule(matrices, (TensorType((2, 4), "f32"),), ("ik", "kj", "ij"), order="ijk")
    >>> rule.operands, rule.results
    ((((0,), (2,)), ((2,), (1,))), (((0,), (1,)),))
    """
    table, found = FactorTable(), dict[Label, Dimension]({...: ()})
    tensors = [list(zip(own, t.shape, strict=True)) for own, t in zip(labels, (*operands, *results), strict=True)]
    sizes = {label: n for row in reversed(tensors) for label, n in reversed(row)}

    def dimension(label: Label, n: int) -> Dimension:
        if label is None:
            return table.new(n, REPLICATE)
        if label not in found:
            found[label] = table.add(kinds[label] if kinds and label in kinds else Factor(n))
        return found[label]

    for label in order:
        dimension(label, sizes[label])
    rows = [tuple(dimension(label, n) for label, n in row) for row in tensors]
    return table.rule(rows[: len(operands)], rows[len(operands) :], linear)


def common_factors(source: Sequence[int], target: Sequence[int]) -> tuple[tuple[Factor, ...], Row, Row]:
    """The factors that the dimensions of two shapes of equally many elements have in common, major to minor.

    Walks both shapes from the major end. Where as many elements are behind the sides' current dimensions, what these
    have in common is a pass factor of both. Where they have nothing in common, each side has factors of its own that
    are never sharded, nor is what is minor to one, up to the next place where the shapes align.

    >>> common_factors((8, 2048), (2, 4, 2048))[1:]
    (((0, 1), (2,)), ((0,), (1,), (2,)))
    >>> [f.kind for f in common_factors((4, 6), (6, 4))[0]]
    ['pass', 'replicate', 'replicate', 'replicate', 'replicate', 'replicate']
    """
    shapes = (source, target)
    factors: list[Factor] = []
    rows: tuple[list[list[int]], list[list[int]]] = ([[] for _ in source], [[] for _ in target])
    at, left = [-1, -1], [1, 1]  # the current dimension of each side, and what of it has no factor yet
    taken = [1, 1]  # elements of the factors so far

    def add(sides: Sequence[int], size: int, kind: str) -> None:
        for side in sides:
            rows[side][at[side]].append(len(factors))
            left[side] //= size
            taken[side] *= size
        factors.append(Factor(size, kind))

    total = math.prod(source)
    while min(taken) < total:
        for side in (0, 1):
            while left[side] == 1 and taken[side] < total:
                at[side] += 1
                left[side] = shapes[side][at[side]]
        common = math.gcd(*left)
        if taken[0] != taken[1]:
            behind = int(taken[1] < taken[0])
            missing, rest = divmod(max(taken), taken[behind])
            aligns = not rest and left[behind] % missing == 0
            add((behind,), missing if aligns else left[behind] // (common if left[behind] > common else 1), REPLICATE)
        elif common > 1:
            behind_own = any(factors[f].kind != PASS for side in (0, 1) for f in rows[side][at[side]])
            add((0, 1), common, REPLICATE if behind_own else PASS)
        else:
            add((0,), left[0], REPLICATE)
            add((1,), left[1], REPLICATE)
    row, result = (tuple(tuple(dim) for dim in rows[side]) for side in (0, 1))
    return tuple(factors), row, result
