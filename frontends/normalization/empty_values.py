"""Removal of values without elements: they hold nothing, so that nothing needs to be computed or moved for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType

#: Ops that say where their operand lies, which is observable without elements too.
_PLACING = frozenset({"sharding_constraint"})


def _concatenate(builder: RegionBuilder, op: Op, parts: list[int], region: Region) -> int:
    return builder.concatenate(parts, op.attributes["dimension"])


def _pad(builder: RegionBuilder, op: Op, full: list[int], region: Region) -> int:
    return builder.broadcast(full[-1], region.types[op.results[0]].shape)


#: What ops make of their operands that have elements, where another has none.
_WITHOUT_EMPTY: dict[str, Callable[[RegionBuilder, Op, list[int], Region], int]] = {
    "concatenate": _concatenate, "pad": _pad, "dynamic_update_slice": lambda builder, op, full, region: full[0],
    "update_slice": lambda builder, op, full, region: full[0],
}


def without_empty_values(region: Region) -> Region:
    """The region in which every use of an array without elements is one of a broadcast of zero.

    A broadcast is made in place on any shards. What computed the array is dead, unless it has effects or says where the
    array lies. Empty parts of concatenations and empty updates are left out, and a padded empty array is all padding.
    """
    if all(type_.elements for type_ in region.types):
        return region
    builder = RegionBuilder([region.types[v] for v in region.inputs])
    values = dict(zip(region.inputs, builder.inputs, strict=True))
    made: dict[TensorType, int] = {}
    kept = {v for op in region.ops if op.name in _PLACING for v in op.results}

    def used(v: int) -> int:
        type_ = region.types[v]
        if type_.elements or v in kept:
            return values[v]
        if type_ not in made:
            made[type_] = builder.broadcast(builder.scalar(0, type_.dtype), type_.shape)
        return made[type_]

    for op in region.ops:
        if _computes_nothing(op, region) and op.name not in _PLACING:
            continue
        full = [v for v in op.operands if region.types[v].elements]
        if len(full) < len(op.operands) and op.name in _WITHOUT_EMPTY:
            values[op.results[0]] = _WITHOUT_EMPTY[op.name](builder, op, [used(v) for v in full], region)
            continue
        seen = {v: used(v) for v in op.operands}
        builder.copy(op, region.types, seen)
        values.update((v, seen[v]) for v in op.results)
    return builder.build([used(v) for v in region.outputs])


def without_empty_values_throughout(region: Region) -> Region:
    """The region and those inside it `without_empty_values`; the same object where there are none."""
    ops = tuple([
        replace(op, regions=tuple(map(without_empty_values_throughout, op.regions))) if op.regions else op
        for op in region.ops])
    return without_empty_values(region if ops == region.ops else replace(region, ops=ops))


def _computes_nothing(op: Op, region: Region) -> bool:
    empty = all(not region.types[v].elements for v in op.results)
    return bool(op.results) and empty and registry.is_pure(op.name, op.regions)
