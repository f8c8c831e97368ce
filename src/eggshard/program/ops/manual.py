"""Computations that the author wrote per device (JAX's shard_map)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eggshard.errors import LoweringError, ProgramError
from eggshard.program.mesh import AxisRef
from eggshard.program.ops.base import Arrays, OpDef, Types, Values, register
from eggshard.program.ops.codec import String
from eggshard.program.program import Attributes, Region
from eggshard.program.types import TensorType

if TYPE_CHECKING:
    from eggshard.placement.sharding import Sharding


class _ManualComputation(OpDef):
    """A region that every device runs on its own shards (JAX's shard_map).

    ``in_shardings`` and ``out_shardings`` (one Sharding per operand and result) say how global tensors are cut along
    ``manual_axes`` for the region, whose types are local to these axes; ``result_types`` are the global results.
    Axes that are not manual may be named too: along them the region still sees whole tensors.
    """

    name = "manual_computation"
    mlir_name = "sdy.manual_computation"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        ins, outs, results = attrs["in_shardings"], attrs["out_shardings"], attrs["result_types"]
        if len(regions) != 1:
            raise ProgramError(f"takes 1 region, got {len(regions)}")
        (region,) = regions
        for what, shardings, types, inner in (
            ("operand", ins, operands, region.inputs), ("result", outs, results, region.outputs)
        ):
            if not len(shardings) == len(types) == len(inner):
                raise ProgramError(
                    f"has {len(shardings)} {what} shardings, {len(types)} {what}s, {len(inner)} in its region"
                )
            for i, (sharding, type_, value) in enumerate(zip(shardings, types, inner, strict=True)):
                self._check(sharding, type_, region.types[value], attrs["manual_axes"], f"{what} {i}")
        return tuple(results)

    def _check(
        self, sharding: Sharding, type_: TensorType, local: TensorType, axes: tuple[str, ...], what: str
    ) -> None:
        fits = local.dtype == type_.dtype and local.rank == type_.rank == len(sharding.dims)
        for n, m, dim in zip(type_.shape, local.shape, sharding.dims, strict=False):
            manual = any(a.name in axes for a in dim.axes)
            fits = fits and (n == m if not manual else m > 0 and n % m == 0 or n == m == 0)
        if not fits:
            raise ProgramError(f"{what} is {type_} sharded as {sharding}, which does not give {local} in the region")

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        """Runs the region per shard, where no op of it communicates; else LoweringError."""
        from eggshard.program.evaluate import evaluate_region

        (region,) = regions
        if communicates(region):
            raise LoweringError("a manual computation with collectives has no NumPy meaning here; run it with JAX")
        grid, sizes = _shard_grid(attrs, arrays, region)
        outputs: list[np.ndarray] | None = None
        for index in np.ndindex(*grid):
            position = dict(zip(sizes, index, strict=True))
            locals_ = [
                a[_box(s, region.types[v].shape, position, sizes, attrs["manual_axes"])]
                for a, s, v in zip(arrays, attrs["in_shardings"], region.inputs, strict=True)
            ]
            results = evaluate_region(region, locals_)
            if outputs is None:
                outputs = [np.empty(t.shape, r.dtype) for t, r in zip(attrs["result_types"], results, strict=True)]
            for out, sharding, result in zip(outputs, attrs["out_shardings"], results, strict=True):
                out[_box(sharding, result.shape, position, sizes, attrs["manual_axes"])] = result
        return tuple(outputs or ())

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], fresh: Callable[[], str]
    ) -> tuple[list[str], list[str]]:
        from eggshard.program.ops.spelling import emit_operation, region_text

        body = region_text(regions[0], fresh, None, "sdy.return")
        return emit_operation(self.spelling, manual_attributes(attrs), operands, results, [body], fresh)


def manual_attributes(attrs: Attributes) -> list[tuple[str, str]]:
    """The (name, text) pairs of a manual computation's attributes."""

    def listed(shardings: Sequence[Sharding]) -> str:
        return f"#sdy.sharding_per_value<[{', '.join(s.text() for s in shardings)}]>"

    axes = ", ".join(String().encode(a) for a in attrs["manual_axes"])
    return [
        ("in_shardings", listed(attrs["in_shardings"])),
        ("out_shardings", listed(attrs["out_shardings"])),
        ("manual_axes", f"#sdy<manual_axes{{{axes}}}>"),
    ]


_PER_DEVICE = (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "reduce_scatter",
    "partition_id", "replica_id", "send", "recv",
)  # fmt: skip


def communicates(region: Region) -> bool:
    """Whether some op of a region gives other results on other devices, or needs their data."""
    for op in region.ops:
        opaque = str(op.attributes.get("mlir_name", "")).removeprefix("stablehlo.")
        if op.name in _PER_DEVICE or opaque in _PER_DEVICE or any(communicates(r) for r in op.regions):
            return True
    return False


def _manual_axes(sharding: Sharding, dim: int, axes: tuple[str, ...]) -> tuple[AxisRef, ...]:
    return tuple(a for a in sharding.dims[dim].axes if a.name in axes)


def _shard_grid(attrs: Attributes, arrays: Arrays, region: Region) -> tuple[tuple[int, ...], dict[str, int]]:
    """The sizes of the manual axes that shard something, as the global and local shapes tell them."""
    globals_ = [*(a.shape for a in arrays), *(t.shape for t in attrs["result_types"])]
    inner = [region.types[v].shape for v in (*region.inputs, *region.outputs)]
    sizes: dict[str, int] = {}
    for sharding, whole, part in zip((*attrs["in_shardings"], *attrs["out_shardings"]), globals_, inner, strict=True):
        for d, (n, m) in enumerate(zip(whole, part, strict=True)):
            refs = _manual_axes(sharding, d, attrs["manual_axes"])
            if len(refs) == 1 and not refs[0].size and m:
                sizes[refs[0].name] = n // m
    for sharding, whole, part in zip((*attrs["in_shardings"], *attrs["out_shardings"]), globals_, inner, strict=True):
        for d, (n, m) in enumerate(zip(whole, part, strict=True)):
            refs = _manual_axes(sharding, d, attrs["manual_axes"])
            unknown = [r for r in refs if r.name not in sizes]
            if any(r.size for r in refs) or len(unknown) > 1:
                raise LoweringError("the sizes of a manual computation's axes do not follow from its shapes")
            if unknown:
                sizes[unknown[0].name] = n // m // math.prod(sizes[r.name] for r in refs if r is not unknown[0])
    return tuple(sizes.values()), sizes


def _box(sharding: Sharding, local: tuple[int, ...], position: dict[str, int], sizes: dict[str, int],
         axes: tuple[str, ...]) -> tuple[slice, ...]:
    """Where a device's shard lies in the global tensor."""
    out = []
    for d, m in enumerate(local):
        at = 0
        for ref in _manual_axes(sharding, d, axes):
            at = at * sizes[ref.name] + position[ref.name]
        out.append(slice(at * m, at * m + m))
    return tuple(out)


register(_ManualComputation())
