"""Custom calls whose meaning Shardy knows by the name of their target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.op_sharding_rule import NEED_REPLICATION, OpShardingRule
from eggshard.shardy.module import uses
from eggshard.shardy.rules.builder import RuleBuilder, pointwise
from eggshard.shardy.rules.registry import rule_for

Target = Callable[[Any], OpShardingRule | None]

#: Targets all of whose tensors correspond index by index: markers, and ops between neighbours, which move what they
#: have along the dimension that they are about.
POINTWISE = (
    "annotate_device_placement", "Cholesky", "CompactWyHelper", "InspectSharding", "InvertDiagBlocksLowerTriangular",
    "InvertDiagBlocksUpperTriangular", "LayoutConstraint", "mhlo.erf", "MoveToDevice", "MoveToHost", "X64SplitHigh",
    "X64SplitLow", "xla.megascale.provide_metadata", "_SPMDInternalOp_MultiPad", "_SPMDInternalOp_MultiRotate",
    "_SPMDInternalOp_MultiSlice", "_SPMDInternalOp_RotateRight", "_SPMDInternalOp_Wrap",
)


@rule_for("stablehlo.custom_call")
def _custom_call(op: Any, conservative: bool) -> OpShardingRule | None:
    """None for targets that are not known, and for calls that do not look as theirs do."""
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    found = TARGETS.get(target)
    return found(op) if found else None


def _eigh(op: Any) -> OpShardingRule | None:
    """Matrices to eigenvectors and eigenvalues; matrix dimensions pass too, though they have to be exchanged."""
    rule = RuleBuilder(op)
    rank = _matrices(rule, operands=(0,), results=(0, -1))
    if rank is None:
        return None
    (sizes,) = rule.operands
    rule.add_pointwise(sizes[:-2])
    rule.add(sizes[-2], {0: rank - 2}, {0: rank - 2})
    rule.add(sizes[-1], {0: rank - 1}, {0: rank - 1, 1: rank - 2})
    return rule.built()


def _qr(op: Any) -> OpShardingRule | None:
    """Matrices to matrices and a vector for each."""
    rule = RuleBuilder(op)
    rank = _matrices(rule, operands=(0,), results=(0, -1))
    return None if rank is None else _factorised(rule, rank, {}, {1: rank - 2}, rule.results[1][-1])


def _householder_product(op: Any) -> OpShardingRule | None:
    """Matrices and a vector for each to matrices."""
    rule = RuleBuilder(op)
    rank = _matrices(rule, operands=(0, -1), results=(0,))
    return None if rank is None else _factorised(rule, rank, {1: rank - 2}, {}, rule.operands[1][-1])


def _factorised(
    rule: RuleBuilder, rank: int, vector_operand: dict[int, int], vector_result: dict[int, int], size: int
) -> OpShardingRule:
    sizes = rule.operands[0]
    rule.add_pointwise(sizes[:-2])
    for dim in (rank - 2, rank - 1):
        rule.add(sizes[dim], {0: dim}, {0: dim}, NEED_REPLICATION)
    rule.add(size, vector_operand, vector_result, NEED_REPLICATION)
    return rule.built()


def _matrices(rule: RuleBuilder, operands: tuple[int, ...], results: tuple[int, ...]) -> int | None:
    """The rank of the first operand, if it is at least 2 and the tensors' ranks are that plus those given."""
    rank = len(rule.operands[0]) if rule.operands else 0
    found = tuple(tuple(len(dims) - rank for dims in side) for side in (rule.operands, rule.results))
    return rank if rank >= 2 and found == (operands, results) else None


def _top_k(op: Any) -> OpShardingRule | None:
    """The largest elements along a dimension, and where they are."""
    rule = RuleBuilder(op)
    if not rule.operands or len({len(dims) for dims in (*rule.operands, *rule.results)}) != 1 or not rule.results:
        return None
    rule.add_resized(NEED_REPLICATION, blocked=True)
    return rule.built()


def _approximate_top_k(op: Any) -> OpShardingRule | None:
    """The same, of values and their places, which can be sharded along the dimension that is searched."""
    rule = RuleBuilder(op)
    ranks = [len(dims) for dims in (*rule.operands, *rule.results)]
    if len(rule.operands) != 4 or len(rule.results) != 2 or ranks != [ranks[0], ranks[0], 0, 0, ranks[0], ranks[0]]:
        return None
    for dim, (size, found) in enumerate(zip(rule.operands[0], rule.results[0], strict=True)):
        if size == found:
            rule.add_everywhere(dim, size)
            continue
        rule.add(size, {0: dim, 1: dim}, {})
        rule.add(found, {}, {0: dim, 1: dim}, NEED_REPLICATION, blocked=True)
    return rule.built()


def _combine_words(op: Any) -> OpShardingRule | None:
    """The words of 64-bit numbers; whole where they are a random generator's state, which is."""
    users = [user for result in op.results for user, _ in uses(result)]
    rule = RuleBuilder(op)
    if len(rule.results[0]) != 1 or not any(user.name == "stablehlo.rng_bit_generator" for user in users):
        return pointwise(op)
    rule.add_everywhere(0, rule.results[0][0], NEED_REPLICATION, blocked=True)
    return rule.built()


TARGETS: dict[str, Target] = {
    **dict.fromkeys(POINTWISE, pointwise),
    "Eigh": _eigh,
    "Qr": _qr,
    "QrDecompositionBlock": _qr,
    "ProductOfElementaryHouseholderReflectors": _householder_product,
    "mhlo.topk": _top_k,
    "ApproxTopK": _approximate_top_k,
    "PartialReduce": _approximate_top_k,
    "X64Combine": _combine_words,
}
