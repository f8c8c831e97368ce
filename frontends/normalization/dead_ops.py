"""Dead-op elimination, for example of the init values of reductions that are read in their simple form."""

from __future__ import annotations

from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Op, Region


def without_dead_ops(region: Region) -> Region:
    """The region of the ops that its outputs or effects need, or that ops without results speak of."""
    live = set(region.outputs)
    kept: list[Op] = []
    for op in reversed(region.ops):
        if any(v in live for v in op.results) or not op.results or not registry.is_pure(op.name, op.regions):
            live.update(op.operands)
            kept.append(op)
    if len(kept) == len(region.ops):
        return region
    builder = RegionBuilder([region.types[v] for v in region.inputs])
    values = dict(zip(region.inputs, builder.inputs, strict=True))
    for op in reversed(kept):
        builder.copy(op, region.types, values)
    return builder.build([values[v] for v in region.outputs])
