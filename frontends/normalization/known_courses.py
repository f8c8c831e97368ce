"""Removal of ops whose course is known: loops that run once or never, branches chosen beforehand, sorts of one element.

Compilers remove them, too. A plan that kept them would send what decides nothing, and in a body that runs once nothing
would be seen of what is known outside.
"""

from __future__ import annotations

from eggshard.frontends.normalization.region_writer import Constants
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Op, Region


def without_known_courses(region: Region) -> Region:
    """The region in which such ops are what they compute; those whose results have stated shardings stay."""
    constants = Constants(region)
    if not any(_inlined(op, region, constants) for op in region.ops):
        return region
    builder = RegionBuilder([region.types[v] for v in region.inputs])
    values = dict(zip(region.inputs, builder.inputs, strict=True))
    for op in region.ops:
        found = _inlined(op, region, constants)
        if found is None:
            builder.copy(op, region.types, values)
            continue
        body, operands = found
        inner = dict(zip(body.inputs, (values[v] for v in operands), strict=True))
        for part in body.ops:
            builder.copy(part, body.types, inner)
        values.update(zip(op.results, (inner[v] for v in body.outputs), strict=True))
    return builder.build([values[v] for v in region.outputs])


def _inlined(op: Op, region: Region, constants: Constants) -> tuple[Region, tuple[int, ...]] | None:
    """A region, and the values that it is given, that compute what the op does; None where that is not known."""
    if any(op.shardings):
        return None
    match op.name:
        case "sort" if (shape := region.types[op.operands[0]].shape) and shape[op.attributes["dimension"]] == 1:
            return _nothing(region, op), op.operands
        case "while" if op.attributes.get("trip_count") == 0:
            return _nothing(region, op), op.operands
        case "while" if op.attributes.get("trip_count") == 1:
            return op.regions[1], op.operands
        case "if" | "case":
            chosen = constants.array(op.operands[0])
            return None if chosen is None else (_branch(op, int(chosen)), op.operands[1:])
    return None


def _branch(op: Op, chosen: int) -> Region:
    """An `if` runs its first region where its predicate holds; a `case` out of range its last one."""
    if op.name == "if":
        return op.regions[not chosen]
    return op.regions[chosen if 0 <= chosen < len(op.regions) else -1]


def _nothing(region: Region, op: Op) -> Region:
    builder = RegionBuilder([region.types[v] for v in op.operands])
    return builder.build(builder.inputs)
