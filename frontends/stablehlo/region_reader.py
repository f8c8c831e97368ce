"""The reader of MLIR regions into Regions: the part of the front end that visits every op.

The readers of single ops are passed in (`OpReaders`); only terminators are known here by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from jaxlib.mlir import ir

from eggshard.errors import EggshardError, ProgramError
from eggshard.frontends.normalization.normal_forms import finished
from eggshard.frontends.stablehlo.module_reader import ModuleReader
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType

Handler = Callable[["RegionReader", Any, str], None]

#: Levels of regions within regions that are read: what handles them later takes a part of Python's stack for each.
MOST_LEVELS = 64

_TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return", "mhlo.return", "chlo.return"})


class OpReaders(NamedTuple):
    """Readers of ops that are not just an op of the registry: those of ``named``, and all that it does not know."""

    named: Mapping[str, Handler]
    unknown: Handler


class RegionReader:
    """Reads the blocks that make up one Region, functions called in place included."""

    def __init__(self, module: ModuleReader, ops: OpReaders, parent: RegionReader | None = None):
        self.module, self.ops, self.parent = module, ops, parent
        self.level: int = 0 if parent is None else parent.level + 1
        if self.level > MOST_LEVELS:
            raise ProgramError(f"regions are nested more than {MOST_LEVELS} deep; put loops and branches side by side")
        self.builder = RegionBuilder()
        self.env: dict[Any, int] = {}
        self.constants: dict[int, Attributes] = {}

    def inside(self, arguments: Sequence[Any], captures: Sequence[Any] = ()) -> Self:
        """A reader of a block in here with these arguments, whose captured outer values become further inputs."""
        reader = type(self)(self.module, self.ops, self)
        reader.add_inputs((*arguments, *captures))
        return reader

    def add_inputs(self, values: Sequence[Any]) -> None:
        """Name the region's inputs."""
        for value in values:
            self.env[value] = self.builder.input(self.module.type(value.type, "a block argument"))

    def read(self, block: Any) -> list[int]:
        """Append the block's ops; the ids of what its terminator returns."""
        for op in block.operations:
            operation = op.operation
            if operation.name in _TERMINATORS:
                return [self.value(v) for v in operation.operands]
            self.read_one(operation)
        return []

    def read_one(self, operation: Any) -> None:
        """Append what one MLIR op means, and name its results; errors say where it stands."""
        name = operation.name
        handler = self.ops.named.get(name)
        try:
            if handler is not None:
                handler(self, operation, name)
            elif self.module.definition(name) is None:
                self.ops.unknown(self, operation, name)
            else:
                self.read_op(operation, name)
        except EggshardError as error:
            if error.located:
                raise
            located = type(error)(f"{name}{self.module.place(operation)}: {error}")
            located.located = True
            raise located from None

    def value(self, value: Any) -> int:
        """The id of an MLIR value; a constant from outside is repeated here, as regions capture nothing."""
        found = self.env.get(value)
        if found is not None:
            return found
        attributes = self._outer_constant(value)
        if isinstance(value.type, ir.TupleType):
            raise ProgramError("it takes a tuple; only copies and elements of tuples are supported")
        if attributes is None:
            raise ProgramError("its region uses a value from outside, which only while, case and if may here")
        type_ = self.module.type(value.type, "a constant")
        found = self.env[value] = self.add_constant(attributes, type_)
        return found

    def _outer_constant(self, value: Any) -> Attributes | None:
        scope = self.parent
        while scope is not None:
            if value in scope.env:
                return scope.constant(scope.env[value])
            scope = scope.parent
        return None

    def constant(self, value: int) -> Attributes | None:
        """The attributes of the constant that defines a value of this region, None if none does."""
        return self.constants.get(value)

    def add_constant(self, attributes: Attributes, type_: TensorType, operation: Any = None) -> int:
        """Append a constant."""
        (value,) = self.append("constant", (), (type_,), attributes, (), operation)
        self.constants[value] = attributes
        return value

    def operands(self, operation: Any) -> tuple[int, ...]:
        env = self.env
        return tuple(env[v] if v in env else self.value(v) for v in operation.operands)

    def result_types(self, operation: Any) -> tuple[TensorType, ...]:
        types = self.module._types
        return tuple(
            types.get(t) or self.module.type(t, "its result") for t in (r.type for r in operation.results)
        )

    def types_of(self, values: Sequence[int]) -> tuple[TensorType, ...]:
        return tuple(self.builder.types[v] for v in values)

    def bind(self, operation: Any, values: Sequence[int]) -> None:
        """Name the results of an MLIR op."""
        self.env.update(zip(operation.results, values, strict=True))

    def append(self, name: str, operands: tuple[int, ...], types: tuple[TensorType, ...], attributes: Attributes,
               regions: tuple[Region, ...] = (), operation: Any = None, part: int | None = None) -> tuple[int, ...]:
        """Append an op whose result types the module states; with ``operation`` its shardings and location.

        ``part``: the op stands for that one result of the MLIR op.
        """
        types_list = self.builder.types
        first = len(types_list)
        results = tuple(range(first, first + len(types)))
        types_list.extend(types)
        shardings: tuple[Sharding | None, ...] = ()
        location = ""
        if operation is not None:
            location = self.module.location(operation)
            if "sdy.sharding" in operation.attributes:
                shardings = self.per_value(str(operation.attributes["sdy.sharding"]), types, name, part)
        self.builder.ops.append(Op(name, operands, results, attributes, regions, shardings, location))
        return results

    def state(self, operation: Any, values: Sequence[int]) -> None:
        """Put the shardings and the location stated on an MLIR op on the ops that were appended for its results."""
        made = {op.results: i for i, op in enumerate(self.builder.ops)}
        for part, value in enumerate(values):
            index = made.get((value,))
            if index is None:
                continue
            op = self.builder.ops[index]
            shardings: tuple[Sharding | None, ...] = ()
            if "sdy.sharding" in operation.attributes:
                text = str(operation.attributes["sdy.sharding"])
                shardings = self.per_value(text, (self.builder.types[value],), op.name, part)
            location = self.module.location(operation)
            self.builder.ops[index] = replace(op, shardings=shardings or op.shardings, location=location)

    def per_value(self, text: str, types: tuple[TensorType, ...], name: str,
                  part: int | None = None) -> tuple[Sharding | None, ...]:
        """An op's stated shardings, one per result."""
        shardings = self.module.meshes.per_value(text)
        shardings = shardings if part is None else shardings[part : part + 1]
        if len(shardings) != len(types):
            return ()
        for sharding, type_ in zip(shardings, types, strict=True):
            self.module.stated.append((sharding, type_, f"a result of {name}"))
        stated = tuple(s if s.says_something else None for s in shardings)
        return stated if any(stated) else ()

    def read_op(self, operation: Any, name: str) -> None:
        """An op as the registry defines it."""
        definition = self.module.definition(name)
        if definition is None:
            raise ProgramError("the op is not in the registry")
        self.add(operation, definition.name, self.regions(operation))

    def add(
        self, operation: Any, name: str, regions: tuple[Region, ...] = (), attributes: Attributes | None = None,
        operands: tuple[int, ...] | None = None,
    ) -> None:
        """Append the op of this name for an MLIR op; with its own attributes and operands unless others are given."""
        operands = self.operands(operation) if operands is None else operands
        results = self.result_types(operation)
        if attributes is None:
            attributes = self.attributes(operation, name, operands)
        self.bind(operation, self.append(name, operands, results, attributes, regions, operation))

    def attributes(self, operation: Any, name: str, operands: tuple[int, ...]) -> Attributes:
        """The attributes of an MLIR op as those of the op of this name."""
        results = self.result_types(operation)
        return self.module.attributes(registry.get(name), operation, self.types_of(operands), results)

    def regions(self, operation: Any) -> tuple[Region, ...]:
        """The op's regions, none of which may use outside values but constants."""
        return tuple(self.subregion(r.blocks[0]) for r in operation.regions)

    def subregion(self, block: Any, captures: Sequence[Any] = (), carried: bool = False) -> Region:
        """One block as a Region; captured values are inputs after its arguments, and outputs too if ``carried``."""
        reader = self.inside(block.arguments, captures)
        outputs = reader.read(block)
        outputs = [*outputs, *(reader.env[v] for v in captures)] if carried else outputs
        return finished(reader.builder.build(outputs))

    def inline(self, block: Any, operands: Sequence[int], isolated: bool = True) -> list[int]:
        """Read a block here, its arguments being these values; its results' ids. Isolated: it sees nothing else."""
        outer, inner = self.env, dict(zip(block.arguments, operands, strict=True))
        self.env = inner if isolated else outer | inner
        try:
            return self.read(block)
        finally:
            self.env = outer
