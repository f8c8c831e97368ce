"""Loops and branches of MLIR modules: what their regions use from outside becomes operands and region inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eggshard.program.ops import registry
from eggshard.program.program import Attributes, Literal, Op, Region

if TYPE_CHECKING:
    from eggshard.frontends.region_reader import RegionReader


def read_while(reader: RegionReader, operation: Any, name: str) -> None:
    """A loop; values that its regions use from outside are carried round unchanged."""
    captures = _captures(reader, operation)
    operands = (*reader.operands(operation), *(reader.value(v) for v in captures))
    condition = reader.subregion(operation.regions[0].blocks[0], captures)
    body = reader.subregion(operation.regions[1].blocks[0], captures, carried=True)
    starts = [reader.constant(v) for v in operands]
    count = trip_count(condition, body, [s["value"] if s else None for s in starts])
    attributes = Attributes(trip_count=count)
    types = reader.types_of(operands)
    results = reader.append("while", operands, types, attributes, (condition, body), operation)
    reader.bind(operation, results[: len(operation.results)])


def read_branches(reader: RegionReader, operation: Any, name: str) -> None:
    """A case or an if; every branch takes all values that any of them uses from outside."""
    captures = _captures(reader, operation)
    operands = (*reader.operands(operation), *(reader.value(v) for v in captures))
    regions = tuple(reader.subregion(r.blocks[0], captures) for r in operation.regions)
    results = reader.result_types(operation)
    definition = registry.get(name.removeprefix("stablehlo."))
    attributes = reader.module.attributes(definition, operation, reader.types_of(operands), results)
    reader.bind(operation, reader.append(definition.name, operands, results, attributes, regions, operation))


def _captures(reader: RegionReader, operation: Any) -> list[Any]:
    """Outer values that the regions use; constants are not among them, they are repeated inside."""
    from eggshard.frontends.region_reader import captured_values

    return [v for v in captured_values(operation) if reader.constant(reader.value(v)) is None]


def trip_count(condition: Region, body: Region, starts: list[Literal | None]) -> int | None:
    """How often a counted loop runs: a counter from a constant start, by a constant step, while below a constant.

    None for loops of any other form, and for those that end by anything but the counter.
    """
    conditions, steps = _definitions(condition), _definitions(body)
    compare = conditions.get(condition.outputs[0])
    if compare is None or compare.name != "compare":
        return None
    direction = compare.attributes["comparison_direction"]
    counter, limit = compare.operands
    if limit in condition.inputs:
        counter, limit = limit, counter
        direction = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}.get(direction, direction)
    if counter not in condition.inputs:
        return None
    position = condition.inputs.index(counter)
    step = steps.get(body.outputs[position])
    if step is None or step.name not in ("add", "subtract") or body.inputs[position] not in step.operands:
        return None
    if step.name == "subtract" and step.operands[0] != body.inputs[position]:
        return None
    other = step.operands[1] if step.operands[0] == body.inputs[position] else step.operands[0]
    by = _integer(steps.get(other))
    end = _integer(conditions.get(limit))
    start = _scalar(starts[position])
    if by is None or end is None or start is None:
        return None
    by = -by if step.name == "subtract" else by
    match direction:
        case "LT" if by > 0:
            return max(0, -(-(end - start) // by))
        case "LE" if by > 0:
            return max(0, (end - start) // by + 1)
        case "GT" if by < 0:
            return max(0, -(-(start - end) // -by))
        case "GE" if by < 0:
            return max(0, (start - end) // -by + 1)
        case "NE" if by and (end - start) % by == 0 and (end - start) // by >= 0:
            return (end - start) // by
    return None


def _definitions(region: Region) -> dict[int, Op]:
    return {v: op for op in region.ops for v in op.results}


def _integer(op: Op | None) -> int | None:
    return _scalar(op.attributes["value"]) if op is not None and op.name == "constant" else None


def _scalar(literal: Literal | None) -> int | None:
    if literal is None or literal.array.size != 1 or literal.array.dtype.kind not in "iu":
        return None
    return int(literal.array.reshape(-1)[0])
