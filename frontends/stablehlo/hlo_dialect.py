"""Readers of what compiled HLO has besides StableHLO: fusions, tuples, copies, bitcasts, exchanges of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.frontends.stablehlo.region_reader import Handler, RegionReader
from eggshard.ops import registry
from eggshard.ops.op_writer import OpWriter
from eggshard.program.attributes import Attributes
from eggshard.program.codec import Matrix
from eggshard.program.program import Region
from eggshard.program.types import TensorType


class _Writer(OpWriter[int]):
    """Appends ops to a region that is being read."""

    def __init__(self, reader: RegionReader):
        self._reader = reader

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        types = registry.get(name).infer(attributes, self._reader.types_of(operands), regions)
        return self._reader.append(name, tuple(operands), types, attributes, regions)

    def type_of(self, value: int) -> TensorType:
        return self._reader.builder.types[value]

    def transposed(self, x: int, order: Sequence[int]) -> int:
        return x if list(order) == sorted(order) else self.op("transpose", x, permutation=tuple(map(int, order)))


def _fusion(reader: RegionReader, operation: Any, name: str) -> None:
    """What was fused is read in place."""
    block = operation.regions[0].blocks[0]
    reader.bind(operation, reader.inline(block, reader.operands(operation)))


def _copy(reader: RegionReader, operation: Any, name: str) -> None:
    if not _is_tuple(operation.results[0]):
        reader.bind(operation, reader.operands(operation))


def _tuple(reader: RegionReader, operation: Any, name: str) -> None:
    """Nothing by itself: its elements are what is used of it."""


def _element(reader: RegionReader, operation: Any, name: str) -> None:
    if not _is_tuple(operation.results[0]):
        reader.bind(operation, [reader.value(_made(operation.results[0]))])


def _is_tuple(value: Any) -> bool:
    return isinstance(value.type, ir.TupleType)


def _made(value: Any) -> Any:
    """The value itself behind elements and copies of tuples. ProgramError where no op here makes the tuple."""
    op = value.owner
    name = getattr(op, "name", "")
    if name == "mhlo.copy" and _is_tuple(value):
        return _made(op.operands[0])
    if name == "stablehlo.get_tuple_element":
        made = _made(op.operands[0])
        if getattr(made.owner, "name", "") != "stablehlo.tuple":
            raise ProgramError("an element is taken of a tuple that no op of the same region makes")
        return _made(made.owner.operands[ir.IntegerAttr(op.attributes["index"]).value])
    return value


def _bitcast(reader: RegionReader, operation: Any, name: str) -> None:
    """Elements in the order in which they lie in memory, major to minor by the layouts stated."""
    (value,), (result,) = reader.operands(operation), reader.result_types(operation)
    writer = _Writer(reader)
    source = writer.type_of(value)
    if source.elements != result.elements:
        raise ProgramError(f"a bitcast from {source} to {result} changes the size of elements")
    if source.dtype != result.dtype:
        value = writer.op("bitcast_convert", value, dtype=result.dtype, shape=source.shape)
    before = _major_to_minor(operation, "source_layout", source.rank)
    after = _major_to_minor(operation, "result_layout", result.rank)
    value = writer.reshape(writer.transposed(value, before), [result.shape[d] for d in after])
    reader.bind(operation, [writer.transposed(value, [int(d) for d in np.argsort(after)])])


def _major_to_minor(operation: Any, name: str, rank: int) -> list[int]:
    """A layout, which names dimensions from minor to major; row-major where none is stated."""
    attributes = operation.attributes
    return list(ir.DenseIntElementsAttr(attributes[name]))[::-1] if name in attributes else list(range(rank))


def _all_to_all(reader: RegionReader, operation: Any, name: str) -> None:
    """Operand i goes to the i-th device of a group, and result i is what that one sends."""
    operands = reader.operands(operation)
    writer = _Writer(reader)
    whole = writer.concatenate(operands, 0)
    moved = writer.op(
        "all_to_all", whole, split_dimension=0, concat_dimension=0, split_count=len(operands),
        replica_groups=Matrix().decode(str(operation.attributes["replica_groups"])),
        result_types=(writer.type_of(whole),),
    )
    rows = writer.type_of(whole).shape[0] // len(operands)
    reader.bind(operation, [writer.part(moved, 0, i * rows, (i + 1) * rows) for i in range(len(operands))])


HANDLERS: dict[str, Handler] = {
    "mhlo.all_to_all": _all_to_all, "mhlo.bitcast": _bitcast, "mhlo.copy": _copy, "mhlo.fusion": _fusion,
    "stablehlo.get_tuple_element": _element, "stablehlo.tuple": _tuple,
}
