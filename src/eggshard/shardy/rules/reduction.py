"""Ops that combine elements of a tensor, or put them in order."""

from __future__ import annotations

from typing import Any

from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, PERMUTATION, REDUCTION, OpShardingRule
from eggshard.shardy.module import shape
from eggshard.shardy.rules.attributes import integer, integers, matrix
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for


@rule_for("stablehlo.reduce")
def _reduce(op: Any, conservative: bool) -> OpShardingRule:
    """Initial values are scalars."""
    rule = RuleBuilder(op)
    reduced = integers(op, "dimensions") or ()
    inputs = range(len(rule.results))
    kept = 0
    for dim, size in enumerate(rule.operands[0]):
        if dim in reduced:
            rule.add(size, dict.fromkeys(inputs, dim), {}, REDUCTION)
        else:
            rule.add(size, dict.fromkeys(inputs, dim), dict.fromkeys(inputs, kept))
            kept += 1
    return rule.built()


@rule_for("stablehlo.reduce_window")
def _reduce_window(op: Any, conservative: bool) -> OpShardingRule:
    """Windows look at neighbours; a factor has the size of the result."""
    rule = RuleBuilder(op)
    rule.add_pointwise(
        rule.results[0], lambda dim: PASS_THROUGH if _is_window_free(op, dim) else PERMUTATION, blocked=conservative)
    return rule.built()


@rule_for("stablehlo.select_and_scatter")
def _select_and_scatter(op: Any, conservative: bool) -> OpShardingRule:
    """The source has an element per window and stays whole where windows look at neighbours."""
    rule = RuleBuilder(op)
    for dim, size in enumerate(rule.results[0]):
        if _is_window_free(op, dim):
            rule.add_everywhere(dim, size)
            continue
        rule.add(rule.operands[1][dim], {1: dim}, {}, NEED_REPLICATION, blocked=conservative)
        rule.add(size, {0: dim}, {0: dim}, PERMUTATION, blocked=conservative)
    return rule.built()


def _is_window_free(op: Any, dim: int) -> bool:
    """Whether every window along a dimension is one element, each element has one, and nothing is put between."""
    padding = matrix(op, "padding")
    windows = [integers(op, name) for name in ("window_dimensions", "window_strides")]
    return (
        (padding is None or not padding[dim].any())
        and all(not stated or stated[dim] == 1 for stated in windows)
        and shape(op.operands[0])[dim] == shape(op.results[0])[dim]
    )


@rule_for("stablehlo.sort")
def _sort(op: Any, conservative: bool) -> OpShardingRule:
    """The sorted dimension stays whole; it takes part in propagation only where another could be sharded instead."""
    rule = RuleBuilder(op)
    sizes = rule.operands[0]
    sorted_ = integer(op, "dimension", default=-1) % max(len(sizes), 1)
    alone = all(size == 1 for dim, size in enumerate(sizes) if dim != sorted_)
    rule.add_pointwise(sizes, lambda dim: NEED_REPLICATION if dim == sorted_ else PASS_THROUGH, blocked=alone)
    return rule.built()
