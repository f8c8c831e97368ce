"""State shared by all regions of an MLIR module: functions, meshes, decoded attributes, types, literals, locations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import ProgramError, printable
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.stablehlo.shardings import MeshTable
from eggshard.ops import registry
from eggshard.ops.base import OpDef
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.codec import Dense, decode_attributes
from eggshard.program.replica_groups import by_mesh_axes, listed_groups
from eggshard.program.sharding import Sharding
from eggshard.program.types import TOKEN, TensorType, numpy_dtype


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

    def type(self, type_: Any, where: str) -> TensorType:
        """The tensor type; ProgramError naming ``where`` for dynamic shapes and other types."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = _tensor_type(type_, where)
        return found

    def definition(self, name: str) -> OpDef | None:
        """The registry's definition of an MLIR op, None if it has none under its own name."""
        if name not in self._definitions:
            short = name.removeprefix("stablehlo.")
            known = registry.known(short) and registry.get(short).spelling == name
            self._definitions[name] = registry.get(short) if known else None
        return self._definitions[name]

    def attributes(self, definition: OpDef, operation: Any, operands: tuple[TensorType, ...],
                   results: tuple[TensorType, ...]) -> Attributes:
        """The op's attributes by the registry's codecs."""
        items = attributes_of(operation).items()
        key = (definition.name, tuple(items), operands, results)
        found = self._attributes.get(key)
        if found is None:
            codecs = definition.attributes
            texts = {name: str(attribute) for name, attribute in items if name in codecs}
            if by_mesh_axes(texts.get("replica_groups", "")):
                texts["replica_groups"] = listed_groups(texts["replica_groups"], self.meshes.named)
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
        location = self.location(operation)
        return f" ({location})" if location else ""

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
    return printable(shown)


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
    dtype = numpy_dtype(str(ir.ShapedType(attribute.type).element_type))
    if dtype.isbuiltin != 1:
        # MLIR has no buffers of types that NumPy itself does not know; jaxlib 0.8 aborts when asked for one.
        return Dense().decode(str(attribute)).array
    try:
        array = np.array(attribute, copy=False)
    except (ValueError, TypeError):
        return Dense().decode(str(attribute)).array
    if array.size and not any(array.strides):
        return np.broadcast_to(array.reshape(-1)[:1].reshape(()).copy(), array.shape)
    return array
