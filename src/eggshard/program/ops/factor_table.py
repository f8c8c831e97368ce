"""Building the sharding rule of an op whose dimensions correspond irregularly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eggshard.program.ops.base import PASS, REPLICATE, Factor, FactorRule
from eggshard.program.types import TensorType

#: The factors of one dimension, major to minor.
Dimension = tuple[int, ...]
Row = tuple[Dimension, ...]
Linear = tuple[tuple[str, tuple[int, ...]], ...]


class FactorTable:
    """Collects factors while the dimensions of operands and results are named by them."""

    def __init__(self) -> None:
        self._factors: list[Factor] = []

    def new(self, size: int, kind: str = PASS, monoid: str = "") -> Dimension:
        """A dimension made of one new factor."""
        self._factors.append(Factor(size, kind, monoid))
        return (len(self._factors) - 1,)

    def row(self, type_: TensorType, shared: Mapping[int, Dimension] | None = None, kind: str = REPLICATE) -> Row:
        """All dimensions of a tensor: those in ``shared`` as given, each other one a new factor of ``kind``."""
        shared = shared or {}
        return tuple(shared[d] if d in shared else self.new(n, kind) for d, n in enumerate(type_.shape))

    def rule(self, operands: Sequence[Row], results: Sequence[Row], linear: Linear = ()) -> FactorRule:
        """The finished rule."""
        return FactorRule(tuple(self._factors), tuple(operands), tuple(results), linear)
