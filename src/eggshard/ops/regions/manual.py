"""Manual computations, which the author wrote per device (JAX's shard_map)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops.base import Arrays, OpDef, Printed, Printer, Regions, Results, Types, Values, register
from eggshard.program.attributes import Attributes
from eggshard.program.codec import String
from eggshard.program.program import Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType


class ManualComputation(OpDef):
    """A region that every device runs on its own shards (JAX's shard_map).

    ``in_shardings`` and ``out_shardings`` (one Sharding per operand and result) say how global tensors are cut along
    ``manual_axes`` for the region, whose types are local to these axes; ``result_types`` are the global results,
    ``mesh`` is the module's. Axes that are not manual may be named too: along them the region still sees whole tensors.
    """

    name = "manual_computation"
    mlir_name = "sdy.manual_computation"
    #: Runs a region on simulated devices, given attributes and whole arrays; `simulate.manual` sets it.
    meaning: ClassVar[Callable[[Attributes, Region, Sequence[np.ndarray]], tuple[np.ndarray, ...]] | None] = None

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
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

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        """Runs on simulated devices; LoweringError for a partly manual computation that communicates."""
        if ManualComputation.meaning is None:
            raise LoweringError("a manual computation runs on simulated devices; import eggshard.simulate.manual first")
        return ManualComputation.meaning(attrs, regions[0], arrays)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        body = printer.region(regions[0], None, "sdy.return")
        return printer.operation(self.spelling, manual_attributes(attrs), operands, results, [body])


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


register(ManualComputation())
