"""Shardy's op sharding rules as values: factors, and the factors that make up each dimension.

Text, as Shardy prints it: ``#sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=16, k=8} reduction={k}>``.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What sharding a factor takes: none, an all-reduce of the results, replication, or an exchange between neighbours.
PASS_THROUGH, REDUCTION, NEED_REPLICATION, PERMUTATION = "pass-through", "reduction", "need-replication", "permutation"


@dataclass(frozen=True, slots=True)
class RuleFactor:
    """An index of the op. blocked: shardings do not propagate along it."""

    size: int
    kind: str = PASS_THROUGH
    blocked: bool = False


#: The factors of each dimension of a tensor, major to minor.
TensorFactors = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class OpShardingRule:
    """factors: numbered in the order in which dimensions name them. custom: stated by the user, not by the op."""

    factors: tuple[RuleFactor, ...]
    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    custom: bool = False
