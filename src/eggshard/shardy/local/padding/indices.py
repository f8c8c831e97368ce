"""Padding of operands that are looked up by index: indices stay relative to the tensor's own size.

Slices are clamped into a tensor and updates outside of it are dropped; where a dimension gets larger, clamping and
dropping are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.shardy.local.emission import scalar
from eggshard.shardy.local.padding.rules import RULES, Labels, Rule
from eggshard.shardy.local.padding.values import PaddedValues
from eggshard.shardy.local.permutation.permuted import integers_of
from eggshard.shardy.module import rank, shape


def _dynamic_slice(values: PaddedValues, op: Any) -> Rule:
    own, sizes = values.own(op.operands[0]), integers_of(op, "slice_sizes", rank(op.results[0]))
    count = len(own)
    operand: Labels = [d if own[d] == sizes[d] else count + d for d in range(count)]
    result: Labels = [d if own[d] == sizes[d] else None for d in range(count)]

    def adjust() -> None:
        x = op.operands[0]
        op.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(
            [shape(x)[d] if own[d] == sizes[d] else sizes[d] for d in range(count)])
        _clamp_starts(op, 1, [own[d] - sizes[d] if shape(x)[d] != own[d] > sizes[d] else None for d in range(count)])

    return Rule([operand, *([] for _ in range(count))], [result], adjust=adjust)


def _dynamic_update_slice(values: PaddedValues, op: Any) -> Rule:
    own, update = values.own(op.operands[0]), values.own(op.operands[1])
    count = len(own)
    labels: Labels = list(range(count))

    def adjust() -> None:
        x = op.operands[0]
        limits = [own[d] - update[d] if shape(x)[d] != own[d] > update[d] else None for d in range(count)]
        _clamp_starts(op, 2, limits)

    part: Labels = [d if own[d] == update[d] else None for d in range(count)]
    return Rule([labels, part, *([] for _ in range(count))], [labels], adjust=adjust)


def _clamp_starts(op: Any, first: int, limits: Sequence[int | None]) -> None:
    """Clamp the scalar start indices, from an operand on, to 0 up to these limits."""
    with ir.InsertionPoint(op):
        for d, limit in enumerate(limits):
            if limit is not None:
                start = op.operands[first + d]
                kind = start.type.element_type
                op.operands[first + d] = stablehlo.clamp(scalar(kind, "0"), start, scalar(kind, str(limit)))


def _gather(values: PaddedValues, op: Any) -> Rule:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    own, sizes = values.own(op.operands[0]), integers_of(op, "slice_sizes", rank(op.operands[0]))
    offsets, result_rank = list(numbers.offset_dims), rank(op.results[0])
    batch = [d for d in range(result_rank) if d not in offsets]
    vector = numbers.index_vector_dim
    places = [d for d in range(rank(op.operands[1])) if d != vector]
    indices: Labels = [None] * rank(op.operands[1])
    for place, d in zip(places, batch, strict=True):
        indices[place] = d
    operand: Labels = [result_rank + d for d in range(len(own))]
    result: Labels = list(range(result_rank))
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    kept = iter(offsets)
    for d in range(len(own)):
        if d in batching:
            operand[d] = indices[batching[d]]
        elif d not in numbers.collapsed_slice_dims:
            target = next(kept)
            if sizes[d] == own[d]:
                operand[d] = target
            else:
                result[target] = None
    whole = [d for d in range(len(own)) if isinstance(operand[d], int) and operand[d] in offsets]

    def adjust() -> None:
        now = shape(op.operands[0])
        op.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(
            [now[d] if d in whole else sizes[d] for d in range(len(own))])
        limits = [own[d] - sizes[d] for d in numbers.start_index_map]
        if any(now[d] != own[d] and d not in whole for d in numbers.start_index_map):
            limits = [0 if d in whole else limit for d, limit in zip(numbers.start_index_map, limits, strict=True)]
            op.operands[1] = _clamped(values, op.operands[1], vector, limits, op)

    return Rule([operand, indices], [result], adjust=adjust)


def _clamped(values: PaddedValues, indices: Any, vector: int, limits: Sequence[int], before: Any) -> Any:
    """Index vectors with each component from 0 up to its limit."""
    kind, sharding = ir.RankedTensorType(indices.type).element_type, values.sharding(indices)
    with ir.InsertionPoint(before):
        if vector < rank(indices):
            text = "[" + ", ".join(map(str, limits)) + "]"
            row = stablehlo.constant(ir.Attribute.parse(f"dense<{text}> : tensor<{len(limits)}x{kind}>"))
        else:
            row = scalar(kind, str(limits[0]))
        most = stablehlo.broadcast_in_dim(indices.type, row, [vector] if vector < rank(indices) else [])
        least = stablehlo.broadcast_in_dim(indices.type, scalar(kind, "0"), [])
        out = stablehlo.clamp(least, indices, most)
    if sharding is not None:
        for value in (most, least, out):
            values.module.set_sharding(value, sharding)
    values.record(out, values.own(indices))
    return out


def _scatter(values: PaddedValues, op: Any) -> Rule | None:
    """Padded index vectors point outside of the operand, so that their updates are dropped."""
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(op.results)
    indices, update = op.operands[count], op.operands[count + 1]
    own, update_own = values.own(op.operands[0]), values.own(update)
    vector = numbers.index_vector_dim
    windows = list(numbers.update_window_dims)
    operand: Labels = list(range(len(own)))
    updates: Labels = [None] * rank(update)
    looked_up: Labels = [None] * rank(indices)
    batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True))
    places = [d for d in range(rank(indices)) if d != vector]
    free = []
    for place, d in zip(places, (d for d in range(rank(update)) if d not in windows), strict=True):
        label = batching.get(place, len(own) + place)
        looked_up[place] = updates[d] = label
        if place not in batching:
            free.append(place)
    inserted = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    for d, window in zip((d for d in range(len(own)) if d not in inserted), windows, strict=True):
        if update_own[window] == own[d]:
            updates[window] = d
        else:
            operand[d] = None
    targets = list(numbers.scattered_dims_to_operand_dims)
    even = values.even(op.results[0], own)
    outside = max((max(even[d], shape(op.operands[0])[d]) for d in targets), default=0)
    kind = ir.RankedTensorType(indices.type).element_type
    largest = 2 ** (ir.IntegerType(kind).width - (0 if ir.IntegerType(kind).is_unsigned else 1)) - 1
    if not targets or outside > largest:
        return None
    masks = {count: (free, str(outside))}
    return Rule([operand] * count + [looked_up] + [updates] * count, [operand] * count, masks=masks)


RULES |= {
    "stablehlo.dynamic_slice": _dynamic_slice, "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather, "stablehlo.scatter": _scatter,
}

