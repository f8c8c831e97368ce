"""Readers of loops and branches of MLIR modules; values captured from outside become operands and region inputs."""

from __future__ import annotations

from typing import Any

from eggshard.frontends.stablehlo.module_reader import captured_values
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.ops.regions.counted_loops import find_counter, scalar
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region


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
    reader.add(operation, name.removeprefix("stablehlo."), regions, operands=operands)


def _captures(reader: RegionReader, operation: Any) -> list[Any]:
    """Outer values that the regions use; constants are not among them, they are repeated inside."""
    return [v for v in captured_values(operation) if reader.constant(reader.value(v)) is None]


def trip_count(condition: Region, body: Region, starts: list[Literal | None]) -> int | None:
    """How often a counted loop runs: a counter from a constant start, by a constant step, while below a constant.

    None for loops of any other form, and for those that end by anything but the counter.
    """
    counter = find_counter(condition, body)
    start = None if counter is None else scalar(starts[counter.position])
    return None if counter is None or start is None else counter.trips(start)
