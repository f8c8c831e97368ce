"""Ops that read or replace windows at data-dependent positions: dynamic_slice, dynamic_update_slice, gather.

Along a sharded dimension every device reads the part of a window inside its shard and zeros elsewhere, so that results
are partial sums; an update replaces the part inside the shard without any communication.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops.base import PASS, REDUCE, Arrays, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import Dimension, FactorTable
from eggshard.ops.indices.sharded_windows import indexed_dimension, indexed_windows, local_windows, narrow_dimensions
from eggshard.ops.shapes.movement import moves_partial_sums
from eggshard.ops.shard_program import ShardProgram, owner_monoid
from eggshard.ops.windows import Windows
from eggshard.program import codec
from eggshard.program.attributes import Attributes


def _require_starts(starts: Types, rank: int) -> None:
    if len(starts) != rank:
        raise ProgramError(f"takes one start index per dimension ({rank}), got {len(starts)}")
    for t in starts:
        if t.rank or t.dtype == "i1" or not t.dtype.startswith(("i", "ui")):
            raise ProgramError(f"a start index is an integer scalar, not {t}")


def _clamped(starts: Arrays, shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """The window of these sizes, moved into the tensor where it would leave it."""
    lows = (max(0, min(int(s), n - k)) for s, n, k in zip(starts, shape, sizes, strict=True))
    return tuple(slice(low, low + k) for low, k in zip(lows, sizes, strict=True))


def _read_windows(
    program: ShardProgram, windows: Windows, components: Sequence[int], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """What of the windows lies in a device's shard of operand 0, and else the identity; the windows are clamped."""
    y = program.results[0].local
    local = local_windows(program, windows, components, sizes, y.shape, clamped=True)
    taken = program.op(
        "gather", program.values[0], local.indices, dimension_numbers=local.windows.gather_numbers,
        slice_sizes=local.sizes, indices_are_sorted=False,
    )
    return (program.owned(local.inside, local.windows.batch_dims(y.rank), taken),)


class _DynamicSlice(OpDef):
    """The window of ``slice_sizes`` at the start indices (operands 1...), clamped so that it fits."""

    name = "dynamic_slice"
    computes = False
    attributes = {"slice_sizes": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        if not operands:
            raise ProgramError("takes a tensor and its start indices")
        x, sizes = operands[0], attrs["slice_sizes"]
        _require_starts(operands[1:], x.rank)
        if len(sizes) != x.rank or any(not 0 <= k <= n for k, n in zip(sizes, x.shape, strict=True)):
            raise ProgramError(f"slice sizes {sizes} do not fit {x}")
        return (x.with_shape(tuple(sizes)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x, y = operands[0], results[0]
        table = FactorTable()
        sizes = list(enumerate(zip(x.shape, y.shape, strict=True)))
        whole = {d: table.new(n) for d, (n, k) in sizes if n == k}
        monoid = owner_monoid(x.dtype)
        indexed = {d: indexed_dimension(table, n, k, REDUCE, monoid) for d, (n, k) in sizes if n != k}
        rows = (table.row(x, {**whole, **indexed}), *(() for _ in operands[1:]))
        return table.rule(rows, (table.row(y, whole),), moves_partial_sums(x.dtype))

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        return attrs.updated(slice_sizes=local_results[0].shape)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (arrays[0][_clamped(arrays[1:], arrays[0].shape, attrs["slice_sizes"])],)

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        dims = tuple(range(program.results[0].type.rank))
        one = Windows(dims, (), (), (), dims, 0)
        return _read_windows(program, one, program.values[1:], attrs["slice_sizes"])

    def touched(self, operands: Types, results: Types) -> float:
        """What is taken, read and written: a loop over stacked arrays reads each once, not once per iteration."""
        return float(2 * results[0].bytes + sum(t.bytes for t in operands[1:]))


class _DynamicUpdateSlice(OpDef):
    """Operand 0 with the window at the start indices (operands 2...), clamped so that it fits, set to operand 1."""

    name = "dynamic_update_slice"
    computes = False

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        if len(operands) < 2:
            raise ProgramError("takes a tensor, an update and the start indices")
        x, update = operands[:2]
        _require_starts(operands[2:], x.rank)
        if update.dtype != x.dtype:
            raise ProgramError("the update has another element type; convert it")
        if update.rank != x.rank or any(k > n for k, n in zip(update.shape, x.shape, strict=True)):
            raise ProgramError(f"the update {update} does not fit into {x}")
        return (x,)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x, update = operands[:2]
        table = FactorTable()
        sizes = list(enumerate(zip(x.shape, update.shape, strict=True)))
        whole = {d: table.new(n) for d, (n, k) in sizes if n == k}
        indexed = {d: indexed_dimension(table, n, k, PASS) for d, (n, k) in sizes if n != k}
        row = table.row(x, {**whole, **indexed})
        rows = (row, table.row(update, whole), *(() for _ in operands[2:]))
        return table.rule(rows, (row,), moves_partial_sums(x.dtype, 2))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        out = np.array(arrays[0])
        out[_clamped(arrays[2:], out.shape, arrays[1].shape)] = arrays[1]
        return (out,)

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        """The window at the nearest place in the shard, as it was except where the update reaches into it."""
        (x, update, *_), (old, new, *starts) = program.operands, program.values
        places, sizes = [], list(update.local.shape)
        masks: list[tuple[int, tuple[int, ...]]] = []  # where the update lies, over these dimensions
        for d, start in enumerate(starts):
            n, k, tile = x.type.shape[d], update.type.shape[d], x.local.shape[d]
            place = program.places(start, 0, n - k)
            if x.cut(d) and k < n:
                sizes[d] = size = min(k, tile)
                wanted = program.op("subtract", place, program.start(x, d))
                place = program.places(wanted, 0, tile - size)
                skipped = program.op("subtract", place, wanted)  # elements of the update before the window
                if k > 1:
                    skipped = program.combine("add", program.counter((size,), 0), skipped)
                    new = program.take(new, skipped, d)
                masks.append((program.within(skipped, k), (d,) if k > 1 else ()))
            places.append(place)
        before = program.op("dynamic_slice", old, *places, slice_sizes=tuple(sizes))
        for mask, dims in masks:
            new = program.select(mask, dims, new, before)
        return (program.op("dynamic_update_slice", old, new, *places),)

    def touched(self, operands: Types, results: Types) -> float:
        """The update, read and written: compilers update in place what a loop carries."""
        return float(2 * operands[1].bytes + sum(t.bytes for t in operands[2:]))


class _Gather(OpDef):
    """Windows of ``slice_sizes`` of operand 0 at the index vectors in operand 1, clamped so that they fit.

    A dimension that a window takes whole, batching dimensions and the indices' other dimensions pass.
    """

    name = "gather"
    computes = False
    attributes = {
        "dimension_numbers": codec.GATHER_DIMENSIONS,
        "slice_sizes": codec.Integers(),
        "indices_are_sorted": codec.Flag(default=False),
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        if len(operands) != 2:
            raise ProgramError(f"takes a tensor and indices, got {len(operands)} operands")
        (x, indices), sizes = operands, attrs["slice_sizes"]
        windows = Windows.of_gather(attrs["dimension_numbers"])
        windows.check(x, indices)
        if len(sizes) != x.rank or any(not 0 <= k <= n for k, n in zip(sizes, x.shape, strict=True)):
            raise ProgramError(f"slice sizes {sizes} do not fit {x}")
        if any(sizes[d] > 1 for d in (*windows.collapsed, *windows.operand_batching)):
            raise ProgramError(f"slice sizes {sizes} exceed 1 in collapsed or batching dimensions")
        return (x.with_shape(windows.windowed_shape(indices.shape, sizes)),)

    def _whole(self, attrs: Attributes, x: tuple[int, ...]) -> dict[int, int]:
        """From operand dimensions that a window takes whole to the result's dimensions."""
        windows = Windows.of_gather(attrs["dimension_numbers"])
        pairs = zip(windows.operand_window_dims(len(x)), windows.window_dims, strict=True)
        return {d: w for d, w in pairs if attrs["slice_sizes"][d] == x[d]}

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (x, indices), y = operands, results[0]
        windows = Windows.of_gather(attrs["dimension_numbers"])
        table = FactorTable()
        ours: dict[int, Dimension] = {}
        theirs: dict[int, Dimension] = {}
        result: dict[int, Dimension] = {}
        for d, w in self._whole(attrs, x.shape).items():
            ours[d] = result[w] = table.new(x.shape[d])
        for b, e in zip(windows.batch_dims(y.rank), windows.indices_dims(indices.rank), strict=True):
            theirs[e] = result[b] = table.new(y.shape[b])
        for d, e in zip(windows.operand_batching, windows.indices_batching, strict=True):
            ours[d] = theirs[e]
        for d in narrow_dimensions(windows, x.shape, attrs["slice_sizes"]):
            ours[d] = indexed_dimension(table, x.shape[d], attrs["slice_sizes"][d], REDUCE, owner_monoid(x.dtype))
        rows = table.row(x, ours), table.row(indices, theirs)
        return table.rule(rows, (table.row(y, result),), moves_partial_sums(x.dtype))

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        sizes = list(attrs["slice_sizes"])
        batching = Windows.of_gather(attrs["dimension_numbers"]).operand_batching
        for d in (*self._whole(attrs, operands[0].shape), *(d for d in batching if not local_operands[0].shape[d])):
            sizes[d] = local_operands[0].shape[d]
        # What lies past the end of sharded indices is in no order.
        ordered = attrs.get("indices_are_sorted", False) and operands[1] == local_operands[1]
        return attrs.updated(slice_sizes=tuple(sizes), indices_are_sorted=ordered)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        (x, indices), sizes = arrays, attrs["slice_sizes"]
        windows = Windows.of_gather(attrs["dimension_numbers"])
        starts = windows.starts(x.shape, indices)
        for d in windows.index_map:
            starts[d] = np.clip(starts[d], 0, x.shape[d] - sizes[d])
        shape = windows.windowed_shape(indices.shape, sizes)
        if 0 in shape:
            return (np.empty(shape, x.dtype),)
        return (np.array(np.broadcast_to(x[windows.positions(starts, sizes, len(shape))], shape)),)

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        sizes = attrs["slice_sizes"]
        windows = Windows.of_gather(attrs["dimension_numbers"])
        return _read_windows(program, *indexed_windows(program, windows, program.values[1], sizes), sizes)


for _definition in (_DynamicSlice(), _DynamicUpdateSlice(), _Gather()):
    register(_definition)
