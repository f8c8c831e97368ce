"""The rules of ops by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.shardy.module import RULE, shape

#: An op's rule, None where it has none. conservative: shardings do not propagate where neighbours would exchange.
Derive = Callable[[Any, bool], OpShardingRule | None]
RULES: dict[str, Derive] = {}


def rule_for(*names: str) -> Callable[[Derive], Derive]:
    """Register a function as the rule of the ops of these names."""

    def add(derive: Derive) -> Derive:
        RULES.update(dict.fromkeys(names, derive))
        return derive

    return add


def rule_of(op: Any, conservative: bool = False) -> OpShardingRule | None:
    """The rule stated on an op, else the one that its name, types and attributes imply, else None.

    ShardingError, naming the op, for a stated rule that does not fit its operands and results.
    """
    operation = op.operation
    if RULE in operation.attributes:
        rule = OpShardingRule.parse(str(operation.attributes[RULE]))
        rule.check_shapes([shape(v) for v in operation.operands], [shape(v) for v in operation.results], operation.name)
        return rule
    return implied_rule(operation, conservative)


def implied_rule(op: Any, conservative: bool = False) -> OpShardingRule | None:
    """The rule that an op's name, types and attributes imply, None where there is none.

    Ops that take or make anything but tensors of known sizes, such as tokens, have none.
    """
    operation = op.operation
    derive = RULES.get(operation.name)
    if derive is None or not all(_is_static(value.type) for value in (*operation.operands, *operation.results)):
        return None
    return derive(operation, conservative)


def _is_static(type_: Any) -> bool:
    return isinstance(type_, ir.RankedTensorType) and type_.has_static_shape
