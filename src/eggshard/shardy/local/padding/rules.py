"""Padding rules of ops: which dimensions are padded together, which must keep their own size, and what the padding must
hold.

Ops without a rule take operands of their own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.ops import registry
from eggshard.ops.base import Traits
from eggshard.program.op_sharding_rule import REDUCTION, RuleFactor, TensorFactors
from eggshard.shardy.local.emission import zero_text
from eggshard.shardy.local.padding.values import PaddedValues, Sizes, constant_text, scalar_text, splat_text
from eggshard.shardy.local.permutation.permuted import integers_of
from eggshard.shardy.module import COLLECTIVES, HINTS, MOVING, rank, shape
from eggshard.shardy.rules import implied_rule
from eggshard.shardy.traits import QUANTIZATION, is_pointwise

#: A dimension with the same label has the same size everywhere; None: its own size.
Labels = list[int | None]


@dataclass
class Rule:
    """The dimensions of operands and results.

    fixed: sizes of labels; without one a label has the size at which a result's shards are equal, or the largest that
    an operand has. masks: per operand the dimensions whose padding must hold a scalar. adjust: changes the op's
    attributes, or operands of indices, for the new sizes of its operands (given) and results. kinds: per result what
    its padding then holds.
    """

    operands: Sequence[Labels]
    results: Sequence[Labels]
    fixed: dict[int, int] = field(default_factory=dict)
    masks: Mapping[int, tuple[Sequence[int], Any]] = field(default_factory=dict)
    adjust: Callable[[], None] | None = None
    kinds: Callable[[], list[str | None]] | None = None


#: Besides the ops that are defined as pointwise, those that take operands of one shape.
ELEMENTWISE = {*QUANTIZATION, "stablehlo.bitcast_convert", "stablehlo.map", "sdy.propagation_barrier"}
#: Shardy's ops that change where a tensor lies and not what it is.
MOVES = (*COLLECTIVES, *(name for name in HINTS if name not in ELEMENTWISE))


def rule_of(values: PaddedValues, op: Any) -> Rule | None:
    """The rule of an op; None if it takes operands of their own sizes only."""
    if is_pointwise(op.name) or op.name in ELEMENTWISE:
        return _elementwise(values, op)
    if op.name in MOVES:
        return _moved(values, op)
    make = RULES.get(op.name)
    return make(values, op) if make else None


def _elementwise(values: PaddedValues, op: Any) -> Rule | None:
    own = values.own(op.results[0])
    if any(rank(x) and values.own(x) != own for x in op.operands):
        return None
    labels: Labels = list(range(len(own)))
    definition = registry.spelled(op.name)
    traits = Traits.NONE if definition is None else definition.traits

    def kinds() -> list[str | None]:
        found = [values.kind(x) if rank(x) else scalar_text(x) for x in op.operands]
        found = found[1:] if op.name == "stablehlo.select" else found
        if not all(found) or not labels:
            return [None]
        element_type = ir.RankedTensorType(op.results[0].type).element_type
        if Traits.IDEMPOTENT in traits and len(set(found)) == 1:
            return [found[0]]
        if Traits.KEEPS_ZERO in traits and all(
                kind == constant_text(x, zero_text(x.type.element_type))
                for kind, x in zip(found, list(op.operands)[-len(found):], strict=True)):
            return [constant_text(op.results[0], zero_text(element_type))]
        return [None]

    return Rule([labels if rank(x) else [] for x in op.operands], [labels], kinds=kinds)


def _moved(values: PaddedValues, op: Any) -> Rule:
    """One size for both, so that shards are equal before and after."""
    operand, result = op.operands[0], op.results[0]
    labels: Labels = list(range(rank(result)))
    counts = [values.shards(values.sharding(x), rank(x)) for x in (operand, result)]
    fixed = {}
    for d, (before, after) in enumerate(zip(*counts, strict=True)):
        own, least = values.own(operand)[d], math.lcm(before, after)
        sizes = shape(operand)[d], -(-own // after) * after, -(-own // least) * least
        fixed[d] = next(size for size in sizes if size % least == 0)

    def kinds() -> list[str | None]:
        kind = values.kind(op.operands[0])
        if op.name in COLLECTIVES and op.name not in MOVING:  # partial values leave zeros as they are, and nothing else
            return [kind if kind == constant_text(result, zero_text(result.type.element_type)) else None]
        return [kind]

    return Rule([labels], [labels], fixed, kinds=kinds)


def _barrier(values: PaddedValues, op: Any) -> Rule:
    labels: list[Labels] = []
    count = 0
    for x in op.operands:
        labels.append(list(range(count, count + rank(x))))
        count += rank(x)
    return Rule([*labels], [*labels], kinds=lambda: [values.kind(x) for x in op.operands])


def _created(values: PaddedValues, op: Any) -> Rule:
    return Rule([], [list(range(rank(op.results[0])))])


def _constant(values: PaddedValues, op: Any) -> Rule | None:
    """A splat of another size; other constants are padded behind the op."""
    kind = splat_text(op)
    if kind is None:
        return None

    def adjust() -> None:
        sizes = values.even(op.results[0], values.own(op.results[0]))
        type_ = ir.RankedTensorType.get(list(sizes), ir.RankedTensorType(op.results[0].type).element_type)
        op.attributes["value"] = ir.Attribute.parse(f"dense<{kind}> : {type_}")

    rule = _created(values, op)
    rule.adjust, rule.kinds = adjust, lambda: [kind]
    return rule


def _broadcast(values: PaddedValues, op: Any) -> Rule:
    dims = integers_of(op, "broadcast_dimensions", rank(op.operands[0]))
    own, result = values.own(op.operands[0]), values.own(op.results[0])
    operand: Labels = [d if own[i] == result[d] else None for i, d in enumerate(dims)]

    def kinds() -> list[str | None]:
        x, even = op.operands[0], values.even(op.results[0], result)
        if not rank(x):
            return [scalar_text(x)]
        new = [d for d in range(len(result)) if d not in operand]
        return [values.kind(x) if all(even[d] == result[d] for d in new) else None]

    return Rule([operand], [list(range(len(result)))], kinds=kinds)


def _reshape(values: PaddedValues, op: Any) -> Rule:
    """Groups of dimensions with equal products; only a group's major dimension may have padding.

    It then has as many indices as make whole ones of the result's major dimension on every device.
    """
    operand, result = op.operands[0], op.results[0]
    own, new = values.own(operand), values.own(result)
    sources: Labels = [None] * len(own)
    targets: Labels = [None] * len(new)
    fixed: dict[int, int] = {}
    counts, targets_of = (values.shards(values.sharding(x), rank(x)) for x in (operand, result))
    for ins, outs in groups_of_dimensions(own, new):
        major, first = ins[0], outs[0]
        padded = [d for d in ins if shape(operand)[d] != own[d]]
        alike = 1 < counts[major] == targets_of[first]
        if any(d != major for d in padded) or not (padded or alike):
            continue
        inner, outer = math.prod(own[d] for d in ins[1:]), math.prod(new[d] for d in outs[1:])
        count = counts[major]
        step = math.lcm(count, count * outer // math.gcd(count * outer, inner))
        size = shape(operand)[major]
        size = size if size % step == 0 else -(-own[major] // step) * step
        sources[major], targets[first] = 2 * major, 2 * major + 1
        fixed |= {2 * major: size, 2 * major + 1: size * inner // outer}
    return Rule([sources], [targets], fixed, kinds=lambda: [values.kind(operand)])


def groups_of_dimensions(own: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Dimensions larger than 1 of two shapes with equal products, in the finest groups with equal products."""
    left = [d for d, n in enumerate(own) if n != 1]
    right = [d for d, n in enumerate(new) if n != 1]
    if 0 in own:
        return []
    out = []
    while left or right:
        ins, outs = [left.pop(0)], [right.pop(0)]
        products = [own[ins[0]], new[outs[0]]]
        while products[0] != products[1]:
            if products[0] < products[1]:
                ins.append(left.pop(0))
                products[0] *= own[ins[-1]]
            else:
                outs.append(right.pop(0))
                products[1] *= new[outs[-1]]
        out.append((ins, outs))
    return out


def _slice(values: PaddedValues, op: Any) -> Rule:
    """Dimensions that are taken whole, or from the beginning and as large as shards hold them anyway.

    Padding that is cut off, of an operand that is sharded otherwise than the result, need not be cut off before.
    """
    names = ("start_indices", "limit_indices", "strides")
    cuts = list(zip(*(integers_of(op, name, rank(op.results[0])) for name in names), strict=True))
    own, even = values.own(op.operands[0]), values.even(op.results[0], values.own(op.results[0]))
    sizes = shape(op.operands[0])
    labels: Labels = [
        d if cut == (0, own[d], 1) or (cut[0] == 0 and cut[2] == 1 and even[d] == sizes[d]) else None
        for d, cut in enumerate(cuts)]

    def adjust() -> None:
        limits = [even[d] if label is not None else cuts[d][1] for d, label in enumerate(labels)]
        op.attributes["limit_indices"] = ir.DenseI64ArrayAttr.get(limits)

    def kinds() -> list[str | None]:
        whole = all(cuts[d] == (0, own[d], 1) for d, label in enumerate(labels) if label is not None)
        return [values.kind(op.operands[0]) if whole else None]

    counts = values.shards(values.sharding(op.results[0]), len(own))
    operand = [len(own) + d if label is None and counts[d] == 1 else label for d, label in enumerate(labels)]
    return Rule([operand], [labels], adjust=adjust, kinds=kinds)


def _pad(values: PaddedValues, op: Any) -> Rule:
    """Dimensions that are not padded, or where the shards of the operand have room for what is added behind it."""
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    edges = list(zip(*(integers_of(op, name, rank(op.results[0])) for name in names), strict=True))
    even, sizes = values.even(op.results[0], values.own(op.results[0])), shape(op.operands[0])
    within = [d for d, (low, high, interior) in enumerate(edges)
              if high and low == interior == 0 and even[d] == sizes[d]]
    labels: Labels = [d if not any(edge) or d in within else None for d, edge in enumerate(edges)]

    def adjust() -> None:
        op.attributes["edge_padding_high"] = ir.DenseI64ArrayAttr.get(
            [0 if d in within else high for d, (_, high, _) in enumerate(edges)])

    return Rule([labels, []], [labels], masks={0: (within, op.operands[1])}, adjust=adjust)


def _convolution(values: PaddedValues, op: Any) -> Rule:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    groups = [ir.IntegerAttr(op.attributes[n]).value for n in ("feature_group_count", "batch_group_count")]
    left: Labels = [None] * rank(op.operands[0])
    right: Labels = [None] * rank(op.operands[1])
    result: Labels = [None] * rank(op.results[0])
    if max(groups) == 1:
        left[numbers.input_batch_dimension] = result[numbers.output_batch_dimension] = 0
        right[numbers.kernel_output_feature_dimension] = result[numbers.output_feature_dimension] = 1
        left[numbers.input_feature_dimension] = right[numbers.kernel_input_feature_dimension] = 2
    masks = {
        0: ([numbers.input_feature_dimension], zero_text(op.operands[0].type.element_type)),
        1: ([numbers.kernel_input_feature_dimension], zero_text(op.operands[1].type.element_type)),
    }
    return Rule([left, right], [result], masks=masks)


#: The scalars that combined with anything are without effect; of other ops an initial value is.
NEUTRAL = {"stablehlo.add": "0", "stablehlo.multiply": "1", "stablehlo.xor": "0"}


def _reduced(values: PaddedValues, op: Any, operand: int) -> Any:
    """What the padding of an operand must hold along dimensions that are summed up or otherwise reduced.

    Zeros in both operands of a product, as zero times NaN is not zero.
    """
    element_type = op.operands[operand].type.element_type
    if op.name != "stablehlo.reduce":
        return zero_text(element_type)
    inside = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    digit = NEUTRAL.get(inside[0]) if len(inside) == 2 else None
    return op.operands[len(op.results) + operand] if digit is None else _digit(element_type, digit)


def _digit(element_type: Any, digit: str) -> str:
    """Zero or one of an element type, as MLIR reads it."""
    zero = zero_text(element_type)
    return zero if digit == "0" else {"0": "1", "false": "true", "0.0": "1.0"}.get(zero, zero.replace("0.0", "1.0", 1))


#: Ops that do for one index of a dimension what they do for any other, where it is a factor by itself.
BY_FACTORS = {f"stablehlo.{name}" for name in (
    "transpose", "reverse", "concatenate", "sort", "fft", "cholesky", "triangular_solve", "reduce", "reduce_window",
    "select_and_scatter", "dot", "dot_general")}


def labels_of(values: PaddedValues, op: Any) -> tuple[list[Labels], list[Labels], list[list[int]]] | None:
    """Per operand and per result the dimensions' factors, as Shardy's rule of the op on tensors of their own sizes has
    them, and per operand the dimensions that are reduced. None if there is no rule.

    Dimensions that the rule lets be sharded only with an exchange, or not at all, have no label.
    """
    rule = implied_rule(op, sizes=values.own)
    if rule is None:
        return None

    def labelled(dims: TensorFactors, own: Sizes) -> Labels:
        return [
            dim[0] if len(dim) == 1 and rule.factors[dim[0]] in (
                RuleFactor(n), RuleFactor(n, REDUCTION)) else None
            for dim, n in zip(dims, own, strict=True)]

    operands, results = (
        [labelled(dims, values.own(x)) for dims, x in zip(listed, side, strict=True)]
        for listed, side in ((rule.operands, op.operands), (rule.results, op.results)))
    sums = rule.of_kind(REDUCTION)
    return operands, results, [[d for d, label in enumerate(row) if label in sums] for row in operands]


def _by_factors(values: PaddedValues, op: Any) -> Rule | None:
    found = labels_of(values, op)
    if found is None:
        return None
    operands, results, sums = found
    masks = {i: (dims, _reduced(values, op, i)) for i, dims in enumerate(sums) if dims}
    moved = op.name == "stablehlo.transpose"
    return Rule(operands, results, masks=masks, kinds=(lambda: [values.kind(op.operands[0])]) if moved else None)


RULES: dict[str, Callable[[PaddedValues, Any], Rule | None]] = {
    "stablehlo.optimization_barrier": _barrier, "stablehlo.iota": _created, "stablehlo.constant": _constant,
    "sdy.constant": _constant, "stablehlo.broadcast_in_dim": _broadcast, "stablehlo.reshape": _reshape,
    "stablehlo.slice": _slice, "stablehlo.pad": _pad, "stablehlo.convolution": _convolution,
    **dict.fromkeys(BY_FACTORS, _by_factors),
}
