"""Conversion of gathers and scatters of rows, each at its own index, to batched ones, so that rows can be sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.shardy.dead_ops import erase_dead, share_constants
from eggshard.shardy.edges import owner_of
from eggshard.shardy.local.emission import sliced
from eggshard.shardy.module import RULE, ShardyModule, shape
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.known_indices import Known, known_indices
from eggshard.shardy.traits import is_static

GATHER, SCATTER, CONCATENATE = "stablehlo.gather", "stablehlo.scatter", "stablehlo.concatenate"


@shardy_pass("explicit-gather-scatter-batching", on="func.func")
def explicit_gather_scatter_batching(module: ShardyModule) -> None:
    """Index the first dimension by batching dimensions where the indices say that each row looks at its own.

    ``table[arange(n), columns]`` indexes rows by an iota. Said as batching dimensions, the rows of table, columns and
    result are one factor, which propagation shards; otherwise the table's rows can only be looked up. As in Shardy,
    only first dimensions of equal size, if another index is left; and, as its greedy rewriting does, ops that no op
    uses go, and constants are at the beginning.
    """
    share_constants(module)
    ops = module.walk(GATHER, SCATTER)
    known = known_indices(module) if ops else {}
    for op in ops:
        _batch(op, known)
    erase_dead(module)


def _batch(op: Any, known: Mapping[Any, Known]) -> None:
    """Take the index of rows out of a gather or scatter, if it is their position."""
    gather = op.name == GATHER
    place = 1 if gather else (len(op.operands) - 1) // 2
    operands, indices = list(op.operands)[:place], op.operands[place]
    if RULE in op.attributes or not is_static(operands[0]) or not is_static(indices):
        return  # a rule that is stated is of these indices
    key = "dimension_numbers" if gather else "scatter_dimension_numbers"
    numbers = (stablehlo.GatherDimensionNumbers if gather else stablehlo.ScatterDimensionNumbers)(op.attributes[key])
    indexed = list(numbers.start_index_map if gather else numbers.scattered_dims_to_operand_dims)
    single = list(numbers.collapsed_slice_dims if gather else numbers.inserted_window_dims)
    batched = numbers.operand_batching_dims if gather else numbers.input_batching_dims
    along = numbers.index_vector_dim
    if batched or along == 0 or len(indexed) < 2 or 0 not in indexed or 0 not in single:
        return
    row = indexed.index(0)
    counted = known.get(_part(indices, row, along))
    if shape(operands[0])[0] != shape(indices)[0] or counted is None or 0 not in counted.counted:
        return
    op.operands[place] = _without(indices, row, along, op)
    indexed.remove(0)
    single.remove(0)
    if gather:
        op.attributes[key] = stablehlo.GatherDimensionNumbers.get(
            list(numbers.offset_dims), single, [0], [0], indexed, along)
    else:
        op.attributes[key] = stablehlo.ScatterDimensionNumbers.get(
            list(numbers.update_window_dims), single, [0], [0], indexed, along)
        if "unique_indices" not in op.attributes:
            op.attributes["unique_indices"] = ir.BoolAttr.get(False)
    # Indices in the order of rows may be in any order without them.
    op.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)


def _part(indices: Any, component: int, along: int) -> Any:
    """The value that holds a component of the index vectors: what was concatenated there, or all indices."""
    while not isinstance(indices, ir.BlockArgument) and _concatenates(owner_of(indices), along):
        parts = list(owner_of(indices).operands)
        ends = list(accumulate(shape(part)[along] for part in parts))
        number = next(i for i, end in enumerate(ends) if component < end)
        component -= ends[number] - shape(parts[number])[along]
        indices = parts[number]
    return indices


def _without(indices: Any, component: int, along: int, before: Any) -> Any:
    """The index vectors without a component, written before an op."""
    with ir.InsertionPoint(before):
        if not isinstance(indices, ir.BlockArgument) and _concatenates(owner_of(indices), along):
            parts = list(owner_of(indices).operands)
            if all(shape(part)[along] == 1 for part in parts):
                return _joined([*parts[:component], *parts[component + 1:]], along)
        runs = [(0, component), (component + 1, shape(indices)[along])]
        return _joined([sliced(indices, along, *run) for run in runs if run[0] < run[1]], along)


def _concatenates(op: Any, along: int) -> bool:
    return bool(op.name == CONCATENATE and ir.IntegerAttr(op.attributes["dimension"]).value == along)


def _joined(parts: Sequence[Any], along: int) -> Any:
    return parts[0] if len(parts) == 1 else stablehlo.concatenate(parts, along)
