"""The rules of ops by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eggshard.shardy.module import RULE, shape
from eggshard.shardy.rules.rule import OpShardingRule

#: An op's rule, None where it has none; whether sharding propagates only where nothing has to be exchanged.
Derive = Callable[[Any, bool], OpShardingRule | None]
RULES: dict[str, Derive] = {}


def rule_of(op: Any, conservative: bool = False) -> OpShardingRule | None:
    """The rule stated on an op, else the one that its name and attributes imply, else None."""
    operation = op.operation
    if RULE in operation.attributes:
        rule = OpShardingRule.parse(str(operation.attributes[RULE]))
        rule.check_shapes([shape(v) for v in operation.operands], [shape(v) for v in operation.results], operation.name)
        return rule
    return implied_rule(operation, conservative)


def implied_rule(op: Any, conservative: bool = False) -> OpShardingRule | None:
    """The rule that an op's name, types and attributes imply, None where there is none."""
    derive = RULES.get(op.name)
    return derive(op, conservative) if derive else None
