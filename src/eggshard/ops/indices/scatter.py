"""Scatter, which combines updates into a tensor at data-dependent positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import (
    PASS,
    REDUCE,
    REPLICATE,
    Arrays,
    FactorRule,
    OpDef,
    Printed,
    Printer,
    Regions,
    Results,
    Types,
    Values,
    register,
)
from eggshard.ops.evaluate import evaluate_elementwise
from eggshard.ops.factor_table import Dimension, FactorTable, Linear
from eggshard.ops.indices.sharded_windows import indexed_dimension, indexed_windows, local_windows, narrow_dimensions
from eggshard.ops.reductions.monoids import SET
from eggshard.ops.reductions.reduction import monoid_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.ops.shapes.movement import moves_partial_sums
from eggshard.ops.shard_program import ShardProgram
from eggshard.ops.signatures import require_signature
from eggshard.ops.windows import Windows
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType, mlir_dtype


class _Scatter(OpDef):
    """Tensors (operands 0..n-1) into which windows of updates (n+1..2n) are combined at index vectors (n).

    The body is attribute ``monoid`` (``set``: the update replaces what stood there) where there is one tensor and the
    body is one, else a region of ``(old..., update...)`` scalars. A window that would leave the tensor is dropped
    whole, as XLA does. Updates of the same element combine in row-major order.

    Where tensors are sharded along a dimension in which windows begin at data, every device applies the updates that
    lie in its shard. By a monoid, devices may also combine a part of the updates each: the results are partial values
    then.
    """

    name = "scatter"
    attributes = {
        "indices_are_sorted": codec.Flag(default=False),
        "scatter_dimension_numbers": codec.SCATTER_DIMENSIONS,
        "unique_indices": codec.Flag(default=False),
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        count = len(operands) // 2
        if len(operands) != 2 * count + 1 or not count:
            raise ProgramError(f"takes n tensors, indices, and n updates, got {len(operands)} operands")
        inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
        windows = Windows.of_scatter(attrs["scatter_dimension_numbers"])
        windows.check(inputs[0], indices)
        for x, update in zip(inputs, updates, strict=True):
            if x.shape != inputs[0].shape or update.shape != updates[0].shape:
                raise ProgramError("all tensors have one shape, and so have all updates")
            if update.dtype != x.dtype:
                raise ProgramError("an update has another element type than its tensor; convert it")
        sizes = self._window_sizes(windows, inputs[0].rank, updates[0].shape)
        if updates[0].shape != windows.windowed_shape(indices.shape, sizes) or any(
            sizes[d] > inputs[0].shape[d] for d in windows.operand_window_dims(inputs[0].rank)
        ):
            raise ProgramError(f"updates {updates[0]} do not fit the dimension numbers")
        if regions:
            scalars = tuple(TensorType((), t.dtype) for t in inputs)
            require_signature(regions[0], scalars * 2, scalars, "the body")
        elif count != 1 or not attrs.get("monoid"):
            raise ProgramError("needs a body: a region, or for one tensor the attribute 'monoid'")
        elif attrs["monoid"] != SET:
            monoids.monoid(attrs["monoid"])
        return tuple(inputs)

    def _window_sizes(self, windows: Windows, rank: int, updates: tuple[int, ...]) -> tuple[int, ...]:
        """The window's sizes along the tensors' dimensions."""
        if len(windows.window_dims) != len(windows.operand_window_dims(rank)) or len(updates) < len(
            windows.window_dims
        ):
            raise ProgramError(f"update window dimensions {windows.window_dims} do not pair up with the tensor's")
        sizes = dict(zip(windows.operand_window_dims(rank), (updates[w] for w in windows.window_dims), strict=True))
        return tuple(sizes.get(d, 1) for d in range(rank))

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        count = len(results)
        x, indices, update = operands[0], operands[count], operands[count + 1]
        windows = Windows.of_scatter(attrs["scatter_dimension_numbers"])
        table = FactorTable()
        ours: dict[int, Dimension] = {}
        theirs: dict[int, Dimension] = {}
        updating: dict[int, Dimension] = {}
        for d, w in zip(windows.operand_window_dims(x.rank), windows.window_dims, strict=True):
            if update.shape[w] == x.shape[d]:
                ours[d] = updating[w] = table.new(x.shape[d])
        batch = dict(zip(windows.indices_dims(indices.rank), windows.batch_dims(update.rank), strict=True))
        for d, e in zip(windows.operand_batching, windows.indices_batching, strict=True):
            ours[d] = theirs[e] = updating[batch[e]] = table.new(x.shape[d])
        sizes = self._window_sizes(windows, x.rank, update.shape)
        for d in narrow_dimensions(windows, x.shape, sizes):
            ours[d] = indexed_dimension(table, x.shape[d], sizes[d], PASS)
        linear = self._linear(attrs, operands)
        monoid = attrs.get("monoid", "")
        parts = any(name == monoid for name, _ in linear)
        for e, b in batch.items():
            if e not in theirs:
                kind, accumulators = (REDUCE, (0,)) if parts else (REPLICATE, ())
                theirs[e] = updating[b] = table.new(
                    update.shape[b], kind, monoid if parts else "", accumulators=accumulators
                )
        row, changes = table.row(x, ours), table.row(update, updating)
        rows = (*(row for _ in results), table.row(indices, theirs), *(changes for _ in results))
        return table.rule(rows, tuple(row for _ in results), linear)

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        return _promises(attrs, local_operands[len(results)] != operands[len(results)])

    def _linear(self, attrs: Attributes, operands: Types) -> Linear:
        monoid = attrs.get("monoid")
        if monoid == SET:
            return tuple((name, (0, 2)) for name, _ in moves_partial_sums(operands[0].dtype))
        return ((monoid, (0, 2)),) if monoid in monoids.of_dtype(operands[0].dtype) else ()

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        count = len(arrays) // 2
        shape, indices, updates = arrays[0].shape, arrays[count], arrays[count + 1 :]
        windows = Windows.of_scatter(attrs["scatter_dimension_numbers"])
        sizes = self._window_sizes(windows, len(shape), updates[0].shape)
        starts = windows.starts(shape, indices)
        inside = np.ones((1,) * len(windows.batch_shape(indices.shape)), np.bool_)
        for d in windows.index_map:
            inside = inside & (starts[d] >= 0) & (starts[d] <= shape[d] - sizes[d])
        rank = updates[0].ndim
        strides = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        positions = windows.positions(starts, sizes, rank)
        flat = sum((p * s for p, s in zip(positions, strides, strict=True)), np.zeros((1,) * rank, np.int64))
        kept = np.broadcast_to(windows.spread(inside, rank), updates[0].shape)
        targets = np.broadcast_to(flat, updates[0].shape)[kept]
        combine = self._combiner(attrs, regions)
        out = combine(targets, [np.array(x).reshape(-1) for x in arrays[:count]], [u[kept] for u in updates])
        return tuple(x.reshape(shape) for x in out)

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        count = len(program.results)
        updates = program.operands[count + 1]
        windows = Windows.of_scatter(attrs["scatter_dimension_numbers"])
        sizes = self._window_sizes(windows, program.operands[0].type.rank, updates.type.shape)
        windows, components = indexed_windows(program, windows, program.values[count], sizes)
        local = local_windows(program, windows, components, sizes, updates.local.shape, clamped=False)
        operands = (*program.values[:count], local.indices, *program.values[count + 1 :])
        indices = program.operands[count]
        placed = _promises(attrs, indices.local != indices.type).updated(
            scatter_dimension_numbers=local.windows.scatter_numbers, indices_are_sorted=False
        )
        return program.emit("scatter", operands, placed, regions)

    def _combiner(
        self, attrs: Attributes, regions: tuple[Region, ...]
    ) -> Callable[[np.ndarray, list[np.ndarray], list[np.ndarray]], list[np.ndarray]]:
        """A function of (positions, flat tensors, updates at the positions) to the updated flat tensors."""

        def replace(targets: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> list[np.ndarray]:
            old[0][targets] = new[0]
            return old

        def accumulate(targets: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> list[np.ndarray]:
            dtype = mlir_dtype(old[0].dtype)
            sub_byte = numerics.bit_width(dtype) < 8 and dtype != "i1"
            total, updates = (numerics.widened(a) if sub_byte else a for a in (old[0], new[0]))
            with np.errstate(all="ignore"):
                current().combine(attrs["monoid"]).at(total, targets, updates)
            return [numerics.narrowed(total, dtype)]

        def apply(targets: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> list[np.ndarray]:
            for turn in by_turns(targets):
                where = targets[turn]
                results = evaluate_elementwise(regions[0], [x[where] for x in old] + [u[turn] for u in new])
                for x, result in zip(old, results, strict=True):
                    x[where] = result
            return old

        if regions:
            return apply
        return replace if attrs["monoid"] == SET else accumulate

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        moved = attrs.get("monoid") == SET
        return 0.0 if moved else float(sum(t.elements for t in operands[len(results) + 1 :]))

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        return super().emit(attrs, operands, results, regions or (self._body(attrs, results[0].dtype),), printer)

    def _body(self, attrs: Attributes, dtype: str) -> Region:
        """The region that attribute ``monoid`` stands for."""
        if attrs["monoid"] != SET:
            return monoid_region(attrs["monoid"], dtype)
        scalar = TensorType((), dtype)
        return RegionBuilder((scalar, scalar)).build((1,))


def _promises(attrs: Attributes, sharded: bool) -> Attributes:
    """The attributes on shards: what is promised of indices does not hold of those past the end of sharded ones."""
    return attrs.updated(indices_are_sorted=False, unique_indices=False) if sharded else attrs


def by_turns(targets: np.ndarray) -> list[np.ndarray]:
    """Groups of update numbers without a common target; the i-th group has the i-th update of each target."""
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else order
    counts = np.diff(np.append(first, len(ordered)))
    turn = np.arange(len(ordered)) - np.repeat(first, counts)
    return [order[turn == i] for i in range(int(counts.max(initial=0)))]


register(_Scatter())
