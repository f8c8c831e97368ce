"""Reductions whose body no all-reduce can repeat, although Shardy's rule lets the reduced dimensions be sharded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eggshard.program.monoids import OF_OP
from eggshard.program.op_sharding_rule import NEED_REPLICATION, REDUCTION, OpShardingRule
from eggshard.shardy.edges import owner_of, terminator


def repeatable(op: Any, rule: OpShardingRule) -> OpShardingRule:
    """The rule of an op, with reduced dimensions that need replication where devices' results cannot be combined.

    A body that combines each component by one monoid is repeated by an all-reduce per result; one that looks at several
    components, as that of an argmax, is not, and neither is a body of several steps.
    """
    if op.name != "stablehlo.reduce" or combines_each(op):
        return rule
    factors = tuple(replace(f, kind=NEED_REPLICATION) if f.kind == REDUCTION else f for f in rule.factors)
    return replace(rule, factors=factors)


def combines_each(op: Any) -> bool:
    """Whether a reduction's body combines each component, by itself, by one of the ops of `MONOIDS`."""
    (region,) = op.regions
    arguments = region.blocks[0].arguments
    returned = terminator(region).operands
    for i, value in enumerate(returned):
        made = owner_of(value)
        if made == op or made.name.removeprefix("stablehlo.") not in OF_OP:
            return False
        if {arguments[i], arguments[len(returned) + i]} != set(made.operands):
            return False
    return True
