"""Ops whose tensors correspond index by index."""

from __future__ import annotations

from typing import Any

from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.shardy.rules.attributes import integer
from eggshard.shardy.rules.builder import RuleBuilder, pointwise
from eggshard.shardy.rules.registry import rule_for

_UNARY = (
    "abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag is_finite log "
    "log_plus_one logistic negate not popcnt real reduce_precision round_nearest_afz round_nearest_even rsqrt sign "
    "sine sqrt tan tanh"
)
_BINARY = (
    "add and atan2 compare complex divide maximum minimum multiply or power remainder shift_left "
    "shift_right_arithmetic shift_right_logical subtract xor"
)


@rule_for("sdy.sharding_constraint", *(f"stablehlo.{name}" for name in f"{_UNARY} {_BINARY}".split()))
def _pointwise(op: Any, conservative: bool) -> OpShardingRule | None:
    return pointwise(op)


@rule_for("stablehlo.select", "stablehlo.clamp")
def _with_scalars(op: Any, conservative: bool) -> OpShardingRule:
    """A predicate or bound that is a scalar belongs to no factor."""
    rule = RuleBuilder(op)
    rule.add_pointwise(rule.results[0])
    return rule.built()


@rule_for("stablehlo.batch_norm_inference")
def _batch_norm_inference(op: Any, conservative: bool) -> OpShardingRule:
    """Scale, offset, mean and variance have the feature dimension alone."""
    rule = RuleBuilder(op)
    feature = integer(op, "feature_index")
    for dim, size in enumerate(rule.operands[0]):
        others = dict.fromkeys(range(1, len(rule.operands)), 0) if dim == feature else {}
        rule.add(size, {0: dim, **others}, {0: dim})
    return rule.built()
