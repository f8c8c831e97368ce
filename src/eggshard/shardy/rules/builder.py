"""Building the rule of an op, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eggshard.program.op_sharding_rule import PASS_THROUGH, OpShardingRule, RuleFactor
from eggshard.shardy.module import shape

#: Which dimension a factor has in some operands, or in some results, by their numbers.
Places = Mapping[int, int]


class RuleBuilder:
    """Collects an op's factors in the order in which they are added; dimensions left without one get one of size 1.

    operands, results: their shapes, () for what is no tensor.
    """

    def __init__(self, op: Any) -> None:
        self.operands = [shape(value) for value in op.operands]
        self.results = [shape(value) for value in op.results]
        self._factors: list[RuleFactor] = []
        self._operand_rows: list[list[list[int]]] = [[[] for _ in dims] for dims in self.operands]
        self._result_rows: list[list[list[int]]] = [[[] for _ in dims] for dims in self.results]

    def add(
        self, size: int, operands: Places, results: Places, kind: str = PASS_THROUGH, *, blocked: bool = False
    ) -> None:
        """A factor that is minor to those that its dimensions have; one of size 1 does not stand beside others."""
        factor = len(self._factors)
        self._factors.append(RuleFactor(size, kind, blocked))
        for rows, places in ((self._operand_rows, operands), (self._result_rows, results)):
            for number, dim in places.items():
                if size != 1 or not rows[number][dim]:
                    rows[number][dim].append(factor)

    def add_everywhere(self, dim: int, size: int, kind: str = PASS_THROUGH, *, blocked: bool = False) -> None:
        """A factor that is the same dimension of every operand and result that is not a scalar."""
        self.add(size, self.all_operands(dim), self.all_results(dim), kind, blocked=blocked)

    def add_pointwise(
        self, sizes: Sequence[int], kind: Callable[[int], str] = lambda dim: PASS_THROUGH, *, blocked: bool = False
    ) -> None:
        """Such a factor per dimension. blocked: those that are not pass-through are."""
        for dim, size in enumerate(sizes):
            found = kind(dim)
            self.add_everywhere(dim, size, found, blocked=blocked and found != PASS_THROUGH)

    def add_resized(self, kind: str, *, blocked: bool) -> None:
        """The same for the first operand and result; a dimension whose size the op changes has a factor of ``kind``."""
        sizes = self.operands[0]
        self.add_pointwise(
            sizes, lambda dim: PASS_THROUGH if sizes[dim] == self.results[0][dim] else kind, blocked=blocked)

    def all_operands(self, dim: int) -> Places:
        """This dimension of every operand that is not a scalar."""
        return {number: dim for number, dims in enumerate(self.operands) if dims}

    def all_results(self, dim: int) -> Places:
        """This dimension of every result that is not a scalar."""
        return {number: dim for number, dims in enumerate(self.results) if dims}

    def built(self) -> OpShardingRule:
        """The finished rule."""
        factors = list(self._factors)

        def filled(dim: list[int]) -> tuple[int, ...]:
            if dim:
                return tuple(dim)
            factors.append(RuleFactor(1))
            return (len(factors) - 1,)

        operands = tuple(tuple(filled(dim) for dim in row) for row in self._operand_rows)
        results = tuple(tuple(filled(dim) for dim in row) for row in self._result_rows)
        return OpShardingRule(tuple(factors), operands, results)


def pointwise(op: Any) -> OpShardingRule | None:
    """The rule of an op all of whose tensors correspond index by index with its first result.

    None where a tensor has more dimensions than that.
    """
    rule = RuleBuilder(op)
    if not rule.operands or not rule.results:
        return None
    sizes = rule.results[0]
    if any(len(dims) > len(sizes) for dims in (*rule.operands, *rule.results)):
        return None
    for dim, size in enumerate(sizes):
        operands = {number: dim for number, dims in enumerate(rule.operands) if dim < len(dims)}
        rule.add(size, operands, {number: dim for number, dims in enumerate(rule.results) if dim < len(dims)})
    return rule.built()
