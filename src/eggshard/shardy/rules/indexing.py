"""Gather and scatter: tensors that are read or written in slices at places that another tensor lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, REDUCTION, OpShardingRule
from eggshard.shardy.rules.attributes import defining
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for

#: What a scatter may combine with for devices to write each some of the updates; those of the second for bits alone.
_COMBINERS = ("stablehlo.add", "stablehlo.multiply", "stablehlo.maximum", "stablehlo.minimum")
_BIT_COMBINERS = ("stablehlo.and", "stablehlo.or")


@dataclass(frozen=True)
class _Indexing:
    """The dimension numbers that gather and scatter have in common.

    window: dimensions of the slices that are dimensions of the indexed tensor; collapsed: its dimensions that the
    slices leave out; batching: (dimension of the indexed tensor, dimension of the indices) pairs.
    """

    window: Sequence[int]
    collapsed: Sequence[int]
    batching: Sequence[tuple[int, int]]
    vector: int

    def dims(self, indexed_rank: int, slice_rank: int) -> list[tuple[bool, int]]:
        """Per dimension of the slices (True, that of the indexed tensor) in a window, else (False, the indices')."""
        batched = {dim for dim, _ in self.batching}
        windows = iter(d for d in range(indexed_rank) if d not in self.collapsed and d not in batched)
        listed = iter(d for d in range(slice_rank + 1) if d != self.vector)
        return [(dim in self.window, next(windows if dim in self.window else listed)) for dim in range(slice_rank)]


@rule_for("stablehlo.gather")
def _gather(op: Any, conservative: bool) -> OpShardingRule:
    """A dimension of which slices have one element each can be sharded, and the results summed.

    One of which they have more, but not all, stays whole and takes no part in propagation.
    """
    rule = RuleBuilder(op)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    indexing = _Indexing(
        numbers.offset_dims, numbers.collapsed_slice_dims,
        list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        numbers.index_vector_dim)
    (operand, indices), (slices,) = rule.operands, rule.results
    batched = {listed: dim for dim, listed in indexing.batching}
    for dim, (in_window, other) in enumerate(indexing.dims(len(operand), len(slices))):
        if not in_window:
            places = {0: batched[other]} if other in batched else {}
            rule.add(slices[dim], {**places, 1: other}, {0: dim})
        elif operand[other] == slices[dim]:
            rule.add(operand[other], {0: other}, {0: dim})
        elif slices[dim] == 1:
            rule.add(operand[other], {0: other}, {}, REDUCTION)
            rule.add(1, {}, {0: dim}, NEED_REPLICATION)
        else:
            rule.add(operand[other], {0: other}, {0: dim}, NEED_REPLICATION, blocked=True)
    for dim in indexing.collapsed:
        rule.add(operand[dim], {0: dim}, {}, NEED_REPLICATION if operand[dim] == 1 else REDUCTION)
    if indexing.vector < len(indices):
        rule.add(indices[indexing.vector], {1: indexing.vector}, {}, NEED_REPLICATION)
    return rule.built()


@rule_for("stablehlo.scatter")
def _scatter(op: Any, conservative: bool) -> OpShardingRule:
    """Dimensions that updates leave out pass; updates can be sharded by index if devices' results can be combined."""
    rule = RuleBuilder(op)
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    indexing = _Indexing(
        numbers.update_window_dims, numbers.inserted_window_dims,
        list(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        numbers.index_vector_dim)
    count = len(rule.results)
    operand, indices, updates = rule.operands[0], rule.operands[count], rule.operands[-1]
    batched = {listed: dim for dim, listed in indexing.batching}
    by_index = REDUCTION if _combines(op, count) else NEED_REPLICATION

    def add(size: int, inputs: int | None, listed: int | None, update: int | None, kind: str = PASS_THROUGH) -> None:
        results = {} if inputs is None else dict.fromkeys(range(count), inputs)
        places = dict(results)
        if listed is not None:
            places[count] = listed
        if update is not None:
            places.update(dict.fromkeys(range(count + 1, 2 * count + 1), update))
        rule.add(size, places, results, kind)

    for dim, (in_window, other) in enumerate(indexing.dims(len(operand), len(updates))):
        if not in_window:
            add(updates[dim], batched.get(other), other, dim, PASS_THROUGH if other in batched else by_index)
        elif operand[other] == updates[dim]:
            add(updates[dim], other, None, dim)
        else:
            add(operand[other], other, None, None, NEED_REPLICATION)
            add(updates[dim], None, None, dim, NEED_REPLICATION)
    for dim in indexing.collapsed:
        add(operand[dim], dim, None, None)
    if indexing.vector < len(indices):
        add(indices[indexing.vector], None, indexing.vector, None, NEED_REPLICATION)
    return rule.built()


def _combines(op: Any, count: int) -> bool:
    """Whether a scatter's body combines each of its tensors with the update, all by one commutative op."""
    block = op.regions[0].blocks[0]
    returned = list(block.operations)[-1].operands
    found = {_combiner(value, block, number, count) for number, value in enumerate(returned)}
    return len(returned) == count and len(found) == 1 and None not in found


def _combiner(value: Any, block: Any, number: int, count: int) -> str | None:
    """The op that makes a value of a tensor's element and its update, None for any other value."""
    made = defining(value)
    if made is None or len(made.operands) != 2:
        return None
    bits = ir.RankedTensorType(value.type).element_type == ir.IntegerType.get_signless(1)
    if made.name not in _COMBINERS + (_BIT_COMBINERS if bits else ()):
        return None
    arguments = {block.arguments[number], block.arguments[count + number]}
    return made.name if set(made.operands) == arguments else None
