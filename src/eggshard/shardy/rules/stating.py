"""Passes that state op sharding rules on ops, and remove them again."""

from __future__ import annotations

from jaxlib.mlir import ir

from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.shardy.module import RULE, ShardyModule
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.rules import implied_rule


@shardy_pass("populate-op-sharding-rules", on="func.func")
def populate_op_sharding_rules(module: ShardyModule, *, conservative_propagation: bool = False) -> None:
    """State on every op in a function the sharding rule that it implies, unless one is stated.

    conservative_propagation: rules along which shardings propagate only where every shard stays where it is.
    """
    for function in module.functions:
        for op in module.walk(root=function):
            rule = None if RULE in op.attributes else implied_rule(op, conservative_propagation)
            if rule is not None:
                op.attributes[RULE] = ir.Attribute.parse(str(rule))


@shardy_pass("drop-sharding-rules", on="func.func")
def drop_sharding_rules(module: ShardyModule) -> None:
    """Take away the stated sharding rules, but for users' own."""
    for function in module.functions:
        for op in module.walk(root=function):
            if RULE in op.attributes and not OpShardingRule.parse(str(op.attributes[RULE])).custom:
                del op.attributes[RULE]
