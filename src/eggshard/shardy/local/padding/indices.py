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
from eggshard.shardy.local.padding.rules import RULES, Labels, Rule, labels_of
from eggshard.shardy.local.padding.values import PaddedValues
from eggshard.shardy.local.permutation.permuted import integers_of
from eggshard.shardy.module import rank, shape


def _dynamic_slice(values: PaddedValues, op: Any) -> Rule | None:
    own, sizes = values.own(op.operands[0]), integers_of(op, "slice_sizes", rank(op.results[0]))
    found = labels_of(values, op)
    if found is None:
        return None
    (operand, *starts), (result,), _ = found

    def adjust() -> None:
        now = shape(op.operands[0])
        op.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(
            [m if n == size else size for m, n, size in zip(now, own, sizes, strict=True)])
        _clamp_starts(op, 1, own, sizes)

    return Rule([_free(operand), *starts], [result], adjust=adjust)


def _dynamic_update_slice(values: PaddedValues, op: Any) -> Rule | None:
    found = labels_of(values, op)
    if found is None:
        return None
    (operand, update, *starts), results, _ = found
    own, sizes = values.own(op.operands[0]), values.own(op.operands[1])
    shared: Labels = [label if label in operand else None for label in update]
    return Rule([operand, shared, *starts], results, adjust=lambda: _clamp_starts(op, 2, own, sizes))


def _free(labels: Labels) -> Labels:
    """Labels of their own for dimensions that may have any size, as indices say what is looked at."""
    return [-1 - d if label is None else label for d, label in enumerate(labels)]


def _clamp_starts(op: Any, first: int, own: Sequence[int], sizes: Sequence[int]) -> None:
    """Clamp the scalar start indices, from an operand on, so that what has these sizes lies in the tensor itself."""
    with ir.InsertionPoint(op):
        for d, (n, size, now) in enumerate(zip(own, sizes, shape(op.operands[0]), strict=True)):
            if now != n > size:
                start = op.operands[first + d]
                kind = start.type.element_type
                op.operands[first + d] = stablehlo.clamp(scalar(kind, "0"), start, scalar(kind, str(n - size)))


def _gather(values: PaddedValues, op: Any) -> Rule | None:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    own, sizes = values.own(op.operands[0]), integers_of(op, "slice_sizes", rank(op.operands[0]))
    found = labels_of(values, op)
    if found is None:
        return None
    (operand, indices), (result,), _ = found
    taken = [result[d] for d in numbers.offset_dims]
    whole = [d for d, label in enumerate(operand) if label is not None and label in taken]

    def adjust() -> None:
        now = shape(op.operands[0])
        op.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(
            [now[d] if d in whole else sizes[d] for d in range(len(own))])
        if any(now[d] != own[d] and d not in whole for d in numbers.start_index_map):
            limits = [0 if d in whole else own[d] - sizes[d] for d in numbers.start_index_map]
            op.operands[1] = _clamped(values, op.operands[1], numbers.index_vector_dim, limits, op)

    return Rule([_free(operand), indices], [result], adjust=adjust)


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

