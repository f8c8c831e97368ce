"""StableHLO's collectives: dimensions that they gather, scatter or exchange stay whole, the others pass."""

from __future__ import annotations

from typing import Any

from eggshard.program.op_sharding_rule import NEED_REPLICATION, OpShardingRule
from eggshard.shardy.rules.attributes import integer
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for


@rule_for(
    "stablehlo.all_reduce", "stablehlo.collective_broadcast", "stablehlo.collective_permute",
    "stablehlo.cross-replica-sum")
def _whole(op: Any, conservative: bool) -> OpShardingRule:
    return _communicated(op)


@rule_for("stablehlo.all_gather")
def _all_gather(op: Any, conservative: bool) -> OpShardingRule:
    return _communicated(op, integer(op, "all_gather_dim"))


@rule_for("stablehlo.reduce_scatter")
def _reduce_scatter(op: Any, conservative: bool) -> OpShardingRule:
    return _communicated(op, integer(op, "scatter_dimension"))


@rule_for("stablehlo.all_to_all")
def _all_to_all(op: Any, conservative: bool) -> OpShardingRule:
    return _communicated(op, integer(op, "split_dimension"), integer(op, "concat_dimension"))


def _communicated(op: Any, *dims: int) -> OpShardingRule:
    """Operands of one shape have one sharding; of several shapes, each has that of its result."""
    rule = RuleBuilder(op)
    numbers = range(len(rule.operands))
    together = [list(numbers)] if len(set(rule.operands)) == 1 else [[number] for number in numbers]
    for members in together:
        operand, result = rule.operands[members[0]], rule.results[members[0]]
        for dim, size in enumerate(operand):
            if dim not in dims:
                rule.add(size, dict.fromkeys(members, dim), dict.fromkeys(members, dim))
        for dim in dict.fromkeys(dims):
            rule.add(operand[dim], dict.fromkeys(members, dim), {}, NEED_REPLICATION)
            rule.add(result[dim], {}, dict.fromkeys(members, dim), NEED_REPLICATION)
    return rule.built()
