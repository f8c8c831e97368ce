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
from eggshard.shardy.local.emission import zero_text
from eggshard.shardy.local.padding.values import PaddedValues, constant_text, scalar_text, splat_text
from eggshard.shardy.local.permutation.permuted import edges_of, integers_of
from eggshard.shardy.module import rank, shape
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
#: Shardy's ops that change where a tensor lies and not what it is; the first kind leaves zeros and all else as it is.
MOVES = ("sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.collective_permute", "sdy.reshard",
         "sdy.sharding_constraint", "sdy.data_flow_edge", "sdy.func_data_flow_edge")
SUMS = ("sdy.all_reduce", "sdy.reduce_scatter", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced")


def rule_of(values: PaddedValues, op: Any) -> Rule | None:
    """The rule of an op; None if it takes operands of their own sizes only."""
    if is_pointwise(op.name) or op.name in ELEMENTWISE:
        return _elementwise(values, op)
    if op.name in MOVES or op.name in SUMS:
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
        summed = op.name in SUMS and kind != constant_text(result, zero_text(result.type.element_type))
        return [None if summed else kind]

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


def _transpose(values: PaddedValues, op: Any) -> Rule:
    order = integers_of(op, "permutation", rank(op.results[0]))
    operand: Labels = [None] * len(order)
    for d, source in enumerate(order):
        operand[source] = d
    return Rule([operand], [list(range(len(order)))], kinds=lambda: [values.kind(op.operands[0])])


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
    """Dimensions that are taken whole, or from the beginning and as large as shards hold them anyway."""
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

    return Rule([labels], [labels], adjust=adjust, kinds=kinds)


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


def _kept(values: PaddedValues, op: Any, changed: Sequence[int]) -> Rule:
    """An op along some dimensions, the same for each index of the others."""
    labels: list[Labels] = [[None if d in changed else d for d in range(rank(x))] for x in op.operands]
    return Rule(labels, [[None if d in changed else d for d in range(rank(r))] for r in op.results])


def _minor(values: PaddedValues, op: Any, count: int) -> Rule | None:
    """An op on matrices, or vectors, that are the last dimensions."""
    if len({rank(x) for x in (*op.operands, *op.results)}) > 1:
        return None
    return _kept(values, op, range(rank(op.operands[0]) - count, rank(op.operands[0])))


def _windowed(values: PaddedValues, op: Any) -> Rule:
    """Only dimensions in which windows are single elements."""
    result, tensors = op.results[0], [x for x in op.operands if rank(x)]
    count = len(values.own(result))
    ones = [integers_of(op, name, count) for name in (
        "window_dimensions", "window_strides", "base_dilations", "window_dilations")]
    edges = edges_of(op, "padding", count)
    plain = [d for d in range(count) if all(row[d] == 1 for row in ones) and edges[d] == (0, 0)]
    labels: Labels = [d if d in plain else None for d in range(count)]
    return Rule([labels if x in tensors else [] for x in op.operands], [labels for _ in op.results])


def _dot_general(values: PaddedValues, op: Any) -> Rule:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return _dot(op, *(list(dims) for dims in (
        numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, numbers.lhs_contracting_dimensions,
        numbers.rhs_contracting_dimensions)))


def _dot(op: Any, lhs_batch: list[int], rhs_batch: list[int], lhs_sum: list[int], rhs_sum: list[int]) -> Rule:
    """Zeros along what is contracted: in both operands, as zero times NaN is not zero."""
    lhs, rhs = op.operands
    left: Labels = [None] * rank(lhs)
    right: Labels = [None] * rank(rhs)
    count = 0
    for i, j in zip(lhs_batch, rhs_batch, strict=True):
        left[i] = right[j] = count
        count += 1
    for labels, used in ((left, lhs_batch + lhs_sum), (right, rhs_batch + rhs_sum)):
        for d in range(len(labels)):
            if d not in used:
                labels[d] = count
                count += 1
    results: Labels = list(range(count))
    for i, j in zip(lhs_sum, rhs_sum, strict=True):
        left[i] = right[j] = count
        count += 1
    masks = {0: (lhs_sum, zero_text(lhs.type.element_type)), 1: (rhs_sum, zero_text(rhs.type.element_type))}
    return Rule([left, right], [results], masks=masks)


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


def _reduce(values: PaddedValues, op: Any) -> Rule:
    count, reduced = len(op.results), integers_of(op, "dimensions", 0)
    labels: Labels = []
    kept = 0
    for d in range(rank(op.operands[0])):
        labels.append(len(op.results[0].type.shape) + d if d in reduced else kept)
        kept += d not in reduced
    inside = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    masks: dict[int, tuple[Sequence[int], Any]] = {}
    for i in range(count):
        digit = NEUTRAL.get(inside[0]) if len(inside) == 2 else None
        fill = op.operands[count + i] if digit is None else _digit(op.operands[i].type.element_type, digit)
        masks[i] = (reduced, fill)
    results: list[Labels] = [list(range(kept)) for _ in range(count)]
    return Rule([list(labels) for _ in range(count)] + [[] for _ in range(count)], results, masks=masks)


def _digit(element_type: Any, digit: str) -> str:
    """Zero or one of an element type, as MLIR reads it."""
    zero = zero_text(element_type)
    return zero if digit == "0" else {"0": "1", "false": "true", "0.0": "1.0"}.get(zero, zero.replace("0.0", "1.0", 1))


def _sort(values: PaddedValues, op: Any) -> Rule:
    return _kept(values, op, [int(ir.IntegerAttr(op.attributes["dimension"]).value) % max(1, rank(op.operands[0]))])


def _fft(values: PaddedValues, op: Any) -> Rule | None:
    return _minor(values, op, len(integers_of(op, "fft_length", 0)))


RULES: dict[str, Callable[[PaddedValues, Any], Rule | None]] = {
    "stablehlo.optimization_barrier": _barrier, "stablehlo.iota": _created, "stablehlo.constant": _constant,
    "sdy.constant": _constant, "stablehlo.transpose": _transpose, "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape, "stablehlo.slice": _slice, "stablehlo.pad": _pad,
    "stablehlo.reverse": lambda values, op: _kept(values, op, integers_of(op, "dimensions", 0)),
    "stablehlo.concatenate": _sort, "stablehlo.sort": _sort, "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _windowed, "stablehlo.select_and_scatter": _windowed,
    "stablehlo.dot_general": _dot_general, "stablehlo.convolution": _convolution, "stablehlo.fft": _fft,
    "stablehlo.dot": lambda values, op: _dot(op, [], [], [rank(op.operands[0]) - 1], [0]),
    "stablehlo.cholesky": lambda values, op: _minor(values, op, 2),
    "stablehlo.triangular_solve": lambda values, op: _minor(values, op, 2),
}
