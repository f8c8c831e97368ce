"""Ops that multiply two tensors and sum over what they share."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import stablehlo

from eggshard.program.op_sharding_rule import PERMUTATION, REDUCTION, OpShardingRule
from eggshard.shardy.rules.attributes import integer
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for


@rule_for("stablehlo.dot_general")
def _dot_general(op: Any, conservative: bool) -> OpShardingRule:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batching = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True))
    summed = list(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    return _product(op, batching, summed)


@rule_for("stablehlo.dot")
def _dot(op: Any, conservative: bool) -> OpShardingRule:
    """The last dimension of the first operand with the first of the second."""
    return _product(op, [], [(len(RuleBuilder(op).operands[0]) - 1, 0)])


def _product(op: Any, batching: list[tuple[int, int]], summed: list[tuple[int, int]]) -> OpShardingRule:
    rule = RuleBuilder(op)
    left, right = rule.operands
    result = 0
    for a, b in batching:
        rule.add(left[a], {0: a, 1: b}, {0: result})
        result += 1
    for operand, sizes in enumerate((left, right)):
        shared = {pair[operand] for pair in batching + summed}
        for dim, size in enumerate(sizes):
            if dim not in shared:
                rule.add(size, {operand: dim}, {0: result})
                result += 1
    for a, b in summed:
        rule.add(left[a], {0: a, 1: b}, {}, REDUCTION)
    return rule.built()


@rule_for("stablehlo.convolution")
def _convolution(op: Any, conservative: bool) -> OpShardingRule:
    """Groups are major to what is in each; a spatial dimension of the input is windows, and places in a window."""
    rule = RuleBuilder(op)
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    batch_groups, feature_groups = integer(op, "batch_group_count"), integer(op, "feature_group_count")
    (_, kernel), (result,) = rule.operands, rule.results
    batch, feature = numbers.input_batch_dimension, numbers.input_feature_dimension
    kernel_feature, kernel_output = numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension
    result_batch, result_feature = numbers.output_batch_dimension, numbers.output_feature_dimension

    if batch_groups > 1:
        rule.add(batch_groups, {0: batch, 1: kernel_output}, {0: result_feature})
    rule.add(result[result_batch], {0: batch}, {0: result_batch})
    if not conservative:
        spatial = (numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions,
                   numbers.output_spatial_dimensions)
        for dims in zip(*spatial, strict=True):
            _add_spatial(rule, *dims)
    if feature_groups > 1:
        rule.add(feature_groups, {0: feature, 1: kernel_output}, {0: result_feature})
    rule.add(kernel[kernel_feature], {0: feature, 1: kernel_feature}, {}, REDUCTION)
    per_group = result[result_feature] // (batch_groups * feature_groups)
    if per_group > 1:
        rule.add(per_group, {1: kernel_output}, {0: result_feature})
    return rule.built()


def _add_spatial(rule: RuleBuilder, source: int, kernel: int, target: int) -> None:
    """The larger one of the windows' number and size is the major factor, so that its shardings come first.

    Each is at most what the input has left, and not a factor if that is 1.
    """
    windows, size = rule.results[0][target], rule.operands[1][kernel]
    left = rule.operands[0][source]
    for reduced in ((False, True) if windows >= size else (True, False)):
        factor = min(left, size if reduced else windows)
        if factor <= 1:
            continue
        if reduced:
            rule.add(factor, {0: source, 1: kernel}, {}, REDUCTION)
        else:
            rule.add(factor, {0: source}, {0: target}, PERMUTATION)
        left //= factor
