"""A builder of regions, op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eggshard.errors import ProgramError
from eggshard.ops import base as registry
from eggshard.ops.op_writer import OpWriter
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType


class RegionBuilder(OpWriter[int]):
    """Builds a region op by op; result types come from the registry's shape rules."""

    def __init__(self, input_types: Sequence[TensorType] = ()):
        self.types: list[TensorType] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []
        for t in input_types:
            self.input(t)

    def input(self, type_: TensorType) -> int:
        """A further input; ProgramError once ops were added (inputs are the first values)."""
        if self.ops:
            raise ProgramError("inputs of a region come before its ops")
        self.inputs.append(len(self.types))
        self.types.append(type_)
        return self.inputs[-1]

    def add(
        self,
        name: str,
        operands: Sequence[int] = (),
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Region] = (),
        shardings: Sequence[Sharding | None] = (),
        location: str = "",
    ) -> tuple[int, ...]:
        """Append an op and return the ids of its results. ProgramError if the op refuses its operands."""
        attrs = attributes if isinstance(attributes, Attributes) else Attributes(attributes)
        definition = registry.get(name)
        try:
            types = definition.infer(attrs, tuple(self.types[i] for i in operands), tuple(regions))
            if isinstance(types, TensorType):
                raise ProgramError("the op's `infer` answers a tensor type; it answers a tuple, one of each result")
        except ProgramError as error:
            shown = ", ".join(str(self.types[i]) for i in operands)
            raise ProgramError(f"{name}({shown}) {attrs}{' at ' + location if location else ''}: {error}") from None
        results = tuple(range(len(self.types), len(self.types) + len(types)))
        self.types.extend(types)
        self.ops.append(Op(name, tuple(operands), results, attrs, tuple(regions), tuple(shardings), location))
        return results

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        return self.add(name, operands, attributes, regions)

    def type_of(self, value: int) -> TensorType:
        return self.types[value]

    def copy(self, op: Op, types: Sequence[TensorType], values: dict[int, int]) -> None:
        """Append an op of another region, of whose values these are ``types``; ``values``, what they are here, grow."""
        results = tuple(range(len(self.types), len(self.types) + len(op.results)))
        self.types.extend([types[v] for v in op.results])
        values.update(zip(op.results, results, strict=True))
        self.ops.append(replace(op, operands=tuple([values[v] for v in op.operands]), results=results))

    def build(self, outputs: Sequence[int]) -> Region:
        """The finished region."""
        return Region(tuple(self.inputs), tuple(self.ops), tuple(outputs), tuple(self.types))
