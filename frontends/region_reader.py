"""Walks the regions of an MLIR module and builds Regions: the part of the front end that meets every op.

Only this file and the handlers it calls touch MLIR objects; attributes are decoded by the op registry's codecs, once
for each distinct text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import EggshardError, ProgramError
from eggshard.frontends.normal_forms import finished
from eggshard.frontends.shardings import MeshTable
from eggshard.ops import registry
from eggshard.ops.base import OpDef
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.codec import Dense, decode_attributes
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TOKEN, TensorType, numpy_dtype

Handler = Callable[["RegionReader", Any, str], None]

_TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return", "mhlo.return", "chlo.return"})


class ModuleReader:
    """What all regions of a module share: functions, meshes, decoded attributes and types, stated shardings.

    Without a module, what can be said of single ops.
    """

    def __init__(self, module: Any = None):
        self.functions: dict[str, Any] = {}
        self.meshes = MeshTable()
        #: Every sharding met, with its tensor's type and a description of where it stands.
        self.stated: list[tuple[Sharding, TensorType, str]] = []
        self._types: dict[Any, TensorType] = {}
        self._attributes: dict[Any, tuple[str, Attributes]] = {}
        self._literals: dict[Any, Attributes] = {}
        self._locations: dict[Any, str] = {}
        self._definitions: dict[str, OpDef | None] = {}
        self._active: list[str] = []
        for op in () if module is None else module.body.operations:
            operation = op.operation
            if operation.name == "func.func":
                self.functions[_symbol(operation)] = operation
            elif operation.name == "sdy.mesh":
                self.meshes.add(_symbol(operation), str(operation.attributes["mesh"]))


    def region(self, arguments: Sequence[Any], parent: RegionReader | None = None,
               captures: Sequence[Any] = ()) -> RegionReader:
        """A reader of a block with these arguments, whose captured outer values become further inputs."""
        reader = RegionReader(self, parent)
        for value in (*arguments, *captures):
            reader.env[value] = reader.builder.input(self.type(value.type, "a block argument"))
        return reader

    def type(self, type_: Any, where: str) -> TensorType:
        """The tensor type; ProgramError naming ``where`` for dynamic shapes and other types."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = _tensor_type(type_, where)
        return found

    def definition(self, name: str) -> OpDef | None:
        """The registry's definition of an MLIR op, None if it has none under its own name."""
        if name not in self._definitions:
            self._definitions[name] = registry.spelled(name)
        return self._definitions[name]

    def attributes(self, definition: OpDef, operation: Any, operands: tuple[TensorType, ...],
                   results: tuple[TensorType, ...]) -> Attributes:
        """The op's attributes by the registry's codecs."""
        items = operation.attributes.items()
        key = (definition.name, tuple(items), operands, results)
        found = self._attributes.get(key)
        if found is None:
            codecs = definition.attributes
            texts = {name: str(attribute) for name, attribute in items if name in codecs}
            values = definition.from_mlir(decode_attributes(codecs, texts), operands, results)
            found = self._attributes[key] = (definition.name, Attributes(values))
        return found[1]

    def literal(self, attribute: Any) -> Attributes:
        """A constant's attributes; equal constants of a module share them."""
        found = self._literals.get(attribute)
        if found is None:
            found = self._literals[attribute] = Attributes(value=Literal(_array(attribute)))
        return found

    def location(self, operation: Any) -> str:
        """Where the author wrote the op."""
        location = operation.location
        key = location.attr
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = short_location(location)
        return found

    def place(self, operation: Any) -> str:
        """`` (location)`` for messages, or nothing."""
        return _at(self.location(operation))

    @contextmanager
    def calling(self, name: str) -> Iterator[Any]:
        """The body of a function while it is read in place; ProgramError for undefined and recursive ones."""
        function = self.functions.get(name)
        if function is None:
            raise ProgramError(f"call of @{name}, which the module does not define")
        block = only_block(function, name)
        if name in self._active:
            raise ProgramError(f"function @{name} calls itself; recursion is not supported")
        self._active.append(name)
        try:
            yield block
        finally:
            self._active.pop()


class RegionReader:
    """Reads the blocks that make up one Region, functions called in place included."""

    def __init__(self, module: ModuleReader, parent: RegionReader | None):
        self.module, self.parent = module, parent
        self.builder = RegionBuilder()
        self.env: dict[Any, int] = {}
        self.constants: dict[int, Attributes] = {}

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
        from eggshard.frontends.op_readers import HANDLERS, read_opaque

        name = operation.name
        handler = HANDLERS.get(name)
        try:
            if handler is not None:
                handler(self, operation, name)
            elif self.module.definition(name) is None:
                read_opaque(self, operation, name)
            else:
                self.read_op(operation, name)
        except EggshardError as error:
            if error.located:
                raise
            located = type(error)(f"{name}{_at(self.module.location(operation))}: {error}")
            located.located = True
            raise located from None

    def value(self, value: Any) -> int:
        """The id of an MLIR value; a constant from outside is repeated here, as regions capture nothing."""
        found = self.env.get(value)
        if found is not None:
            return found
        attributes = self._outer_constant(value)
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
        operands = self.operands(operation)
        results = self.result_types(operation)
        regions = self.regions(operation)
        attributes = self.module.attributes(definition, operation, self.types_of(operands), results)
        self.bind(operation, self.append(definition.name, operands, results, attributes, regions, operation))

    def regions(self, operation: Any) -> tuple[Region, ...]:
        """The op's regions, none of which may use outside values but constants."""
        return tuple(self.subregion(r.blocks[0]) for r in operation.regions)

    def subregion(self, block: Any, captures: Sequence[Any] = (), carried: bool = False) -> Region:
        """One block as a Region; captured values are inputs after its arguments, and outputs too if ``carried``."""
        reader = self.module.region(block.arguments, self, captures)
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


def _symbol(operation: Any) -> str:
    return str(ir.StringAttr(operation.attributes["sym_name"]).value)


def only_block(function: Any, name: str) -> Any:
    """A function's body; ProgramError for declarations and for control flow between blocks."""
    blocks = list(function.regions[0].blocks)
    if not blocks:
        raise ProgramError(f"function @{name} is only declared; give the module that defines it")
    if len(blocks) > 1:
        raise ProgramError(f"function @{name} branches between blocks; use stablehlo.while, case or if")
    return blocks[0]


def captured_values(operation: Any) -> list[Any]:
    """Values that an op's regions use and do not define, each once, in order of first use."""
    inside: set[Any] = set()
    used: dict[Any, None] = {}

    def visit(block: Any) -> None:
        inside.update(block.arguments)
        for op in block.operations:
            inner = op.operation
            for value in inner.operands:
                if value not in inside:
                    used[value] = None
            for region in inner.regions:
                for nested in region.blocks:
                    visit(nested)
            inside.update(inner.results)

    for region in operation.regions:
        for block in region.blocks:
            visit(block)
    return list(used)


def short_location(location: Any) -> str:
    """``jit(f)/dot_general at file.py:16`` of an MLIR location; empty if it is unknown."""
    return _short(str(location))


@lru_cache(maxsize=65536)
def _short(text: str) -> str:
    name = re.match(r'loc\((?:fused<?[^\[]*\[)?"([^"]*)"(?!:\d)', text)
    place = re.search(r'"([^"]+)":(\d+)(?::\d+)?', text)
    shown = name[1] if name else ""
    if place and place[1] != "-":
        shown += (" at " if shown else "") + f"{place[1].rpartition('/')[2]}:{place[2]}"
    return shown


def _at(location: str) -> str:
    return f" ({location})" if location else ""


def _tensor_type(type_: Any, where: str) -> TensorType:
    text = str(type_)
    if text in ("!stablehlo.token", "!mhlo.token"):
        return TensorType((), TOKEN)
    if not isinstance(type_, ir.RankedTensorType):
        raise ProgramError(f"{where} has type {text}; eggshard takes tensors of static shape and tokens")
    if not type_.has_static_shape:
        raise ProgramError(
            f"{where} has type {text}, a dynamic shape; eggshard needs static shapes: lower for concrete ones"
        )
    if type_.encoding is not None:
        raise ProgramError(f"{where} has type {text}; tensor encodings are not supported")
    dtype = str(type_.element_type)
    numpy_dtype(dtype)
    return TensorType(tuple(type_.shape), dtype)


def _array(attribute: Any) -> np.ndarray:
    """The array of an elements attribute without a copy where MLIR's buffer allows; a splat takes no memory."""
    if isinstance(attribute, str):
        return Dense().decode(attribute).array
    try:
        array = np.array(attribute, copy=False)
    except (ValueError, TypeError):
        return Dense().decode(str(attribute)).array
    if array.size and not any(array.strides):
        return np.broadcast_to(array.reshape(-1)[:1].reshape(()).copy(), array.shape)
    return array
