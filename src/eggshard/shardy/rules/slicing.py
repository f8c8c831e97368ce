"""Ops that cut out of tensors, put into them and join them."""

from __future__ import annotations

from typing import Any

from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, PERMUTATION, OpShardingRule
from eggshard.shardy.rules.attributes import defining, integer, integers
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for

_CONSTANTS = ("arith.constant", "chlo.constant", "mhlo.constant", "sdy.constant", "stablehlo.constant")


@rule_for("stablehlo.slice")
def _slice(op: Any, conservative: bool) -> OpShardingRule:
    """What a device needs lies with its neighbours, at a distance known from the attributes."""
    rule = RuleBuilder(op)
    rule.add_resized(PERMUTATION, blocked=conservative)
    return rule.built()


@rule_for("stablehlo.pad")
def _pad(op: Any, conservative: bool) -> OpShardingRule:
    """The same. A dimension of the same size is shifted nevertheless if as much is cut off one end as put on the other.
    """
    rule = RuleBuilder(op)
    sizes = rule.operands[0]
    low, inner = integers(op, "edge_padding_low") or (), integers(op, "interior_padding") or ()
    kept = [
        size == rule.results[0][dim] and not low[dim] and (not inner[dim] or size <= 1)
        for dim, size in enumerate(sizes)
    ]
    rule.add_pointwise(sizes, lambda dim: PASS_THROUGH if kept[dim] else PERMUTATION, blocked=conservative)
    return rule.built()


@rule_for("stablehlo.dynamic_slice")
def _dynamic_slice(op: Any, conservative: bool) -> OpShardingRule:
    """Where the slice begins is not known, so that what is cut stays whole."""
    rule = RuleBuilder(op)
    rule.add_resized(NEED_REPLICATION, blocked=True)
    return rule.built()


@rule_for("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(op: Any, conservative: bool) -> OpShardingRule:
    """Along a dimension that is updated in part every device needs the whole update, and writes its own part of it.

    Where the update begins at constants it may be sharded too.
    """
    rule = RuleBuilder(op)
    fixed = all(_is_constant(start) for start in list(op.operands)[2:])
    for dim, (size, part) in enumerate(zip(rule.operands[0], rule.operands[1], strict=True)):
        if size == part:
            rule.add_everywhere(dim, size)
            continue
        rule.add(size, {0: dim}, {0: dim})
        rule.add(part, {1: dim}, {}, PASS_THROUGH if fixed else NEED_REPLICATION)
    return rule.built()


def _is_constant(value: Any) -> bool:
    op = defining(value)
    return op is not None and op.name in _CONSTANTS


@rule_for("stablehlo.concatenate")
def _concatenate(op: Any, conservative: bool) -> OpShardingRule:
    """The dimension along which operands follow each other is one factor, of the result's size."""
    rule = RuleBuilder(op)
    joined = integer(op, "dimension")
    kind = PERMUTATION if _joins_slices(op) else NEED_REPLICATION
    for dim, size in enumerate(rule.results[0]):
        if dim != joined:
            rule.add_everywhere(dim, size)
        elif not conservative:
            rule.add_everywhere(dim, size, kind)
    return rule.built()


def _joins_slices(op: Any) -> bool:
    """Whether all operands are slices, or all of one value, of which some are slices: a shift of what it holds."""
    sources, slices = [], []
    for operand in op.operands:
        made = defining(operand)
        slices.append(made is not None and made.name == "stablehlo.slice")
        sources.append(made.operands[0] if slices[-1] else operand)
    return all(slices) or (any(slices) and all(source == sources[0] for source in sources))
