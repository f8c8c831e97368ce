"""StableHLO's collectives that gather, scatter or exchange dimensions: those stay whole, the others pass."""

from __future__ import annotations

from typing import Any

from eggshard.shardy.rules.attributes import integer
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for
from eggshard.shardy.rules.rule import NEED_REPLICATION, OpShardingRule


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
    rule = RuleBuilder(op)
    for dim, size in enumerate(rule.operands[0]):
        if dim not in dims:
            rule.add_everywhere(dim, size)
    for dim in dict.fromkeys(dims):
        rule.add(rule.operands[0][dim], rule.all_operands(dim), {}, NEED_REPLICATION)
        rule.add(rule.results[0][dim], {}, rule.all_results(dim), NEED_REPLICATION)
    return rule.built()
