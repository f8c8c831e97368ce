"""Kernels as values, ops, blocks and regions: MLIR's own structure, with attributes as text.

The meaning of ops is elsewhere (`rules`). Tensor types are parsed, because layouts are part of them; all other types
and attributes are kept verbatim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from eggshard.errors import ProgramError


class TensorType(NamedTuple):
    """A tensor: its shape, its element type as text (``f16``, ``!tt.ptr<f16>``) and its encoding as text, aliases
    expanded; None before layouts are assigned."""

    shape: tuple[int, ...]
    element: str
    encoding: str | None

    def __str__(self) -> str:
        dims = "".join(f"{n}x" for n in self.shape)
        encoding = "" if self.encoding is None else f", {self.encoding}"
        return f"tensor<{dims}{self.element}{encoding}>"


#: A tensor's type, or the text of any other.
Type = TensorType | str


@dataclass(eq=False)
class Value:
    """A result of an op or an argument of a block; equal to nothing but itself. ``index``: which of its owner's."""

    type: Type
    owner: Operation | Block = field(repr=False)
    index: int
    location: str = ""

    @property
    def tensor(self) -> TensorType | None:
        """The value's type if it is a tensor."""
        return self.type if isinstance(self.type, TensorType) else None


@dataclass(eq=False)
class Block:
    """Arguments, and ops in order, the last one the terminator."""

    parent: Region | None = field(default=None, repr=False)
    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    @property
    def terminator(self) -> Operation:
        return self.operations[-1]

    @property
    def around(self) -> Block | None:
        """The block in which the op stands that this block belongs to."""
        op = self.parent.parent if self.parent is not None else None
        return op.parent if op is not None else None

    def add_argument(self, type: Type, location: str = "") -> Value:
        """One more argument."""
        self.arguments.append(Value(type, self, len(self.arguments), location))
        return self.arguments[-1]


@dataclass(eq=False)
class Region:
    parent: Operation | None = field(default=None, repr=False)
    blocks: list[Block] = field(default_factory=list)


@dataclass(eq=False)
class Operation:
    """``"name"(operands)[successors] <{properties}> ({regions}) {attributes} : types``; attribute values are text."""

    name: str
    operands: list[Value]
    results: list[Value] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list, repr=False)
    successors: list[str] = field(default_factory=list)
    parent: Block | None = field(default=None, repr=False)
    location: str = ""

    def attribute(self, name: str) -> str | None:
        """The text of a property or a discardable attribute; None without one of the name."""
        return self.properties.get(name, self.attributes.get(name))

    def integer(self, name: str) -> int | None:
        """An integer attribute's value (``1 : i32``)."""
        text = self.attribute(name)
        return None if text is None else int(text.split(":")[0])

    def integers(self, name: str) -> list[int]:
        """An array attribute's numbers (``array<i32: 1, 2>``); [] without one of the name."""
        text = self.attribute(name)
        if text is None or ":" not in text:
            return []
        return [int(part) for part in text[text.index(":") + 1:-1].split(",")]

    @property
    def described(self) -> str:
        """The op and its types, for messages."""
        operands = ", ".join(str(v.type) for v in self.operands)
        results = ", ".join(str(v.type) for v in self.results)
        where = f" at {self.location}" if self.location and not self.location.startswith("loc(#") else ""
        return f"{self.name} : ({operands}) -> ({results}){where}"

    def error(self, message: str) -> ProgramError:
        """An error whose message names the op."""
        error = ProgramError(f"{self.described}: {message}")
        error.located = True
        return error

    @property
    def body(self) -> Block:
        """The one block of the one region."""
        (region,) = self.regions
        (block,) = region.blocks
        return block

    @property
    def parent_op(self) -> Operation | None:
        """The op whose region this op stands in."""
        region = self.parent.parent if self.parent is not None else None
        return region.parent if region is not None else None

    def bare(self, operands: list[Value]) -> Operation:
        """A copy on other operands that stands nowhere, without results and regions."""
        return Operation(self.name, operands, [], dict(self.properties), dict(self.attributes), [],
                         list(self.successors), None, self.location)

    def add_result(self, type: Type, location: str = "") -> Value:
        """One more result."""
        self.results.append(Value(type, self, len(self.results), location))
        return self.results[-1]

    def add_blocks_like(self, other: Operation) -> list[tuple[Block, Block]]:
        """Empty regions and blocks as another op has them; in pairs of the other's and these."""
        pairs = []
        for region in other.regions:
            self.regions.append(Region(self))
            for block in region.blocks:
                pairs.append((block, Block(self.regions[-1])))
                self.regions[-1].blocks.append(pairs[-1][1])
        return pairs

    def walk(self) -> Iterator[Operation]:
        """This op and all ops in its regions, in the order of the text."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in block.operations:
                    yield from op.walk()


@dataclass(eq=False)
class Kernel:
    """A TritonGPU module: the ``builtin.module`` op, and aliases that its text keeps (locations)."""

    module: Operation
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def num_warps(self) -> int:
        return self._number("ttg.num-warps", 4)

    @property
    def threads_per_warp(self) -> int:
        return self._number("ttg.threads-per-warp", 32)

    @property
    def num_ctas(self) -> int:
        return self._number("ttg.num-ctas", 1)

    @property
    def target(self) -> str:
        """``cuda:80``, ``hip:gfx942``; empty where the module does not say."""
        return (self.module.attribute("ttg.target") or "").strip('"')

    @property
    def functions(self) -> list[Operation]:
        return [op for op in self.module.body.operations if op.name == "tt.func"]

    def walk(self) -> Iterator[Operation]:
        return self.module.walk()

    def _number(self, name: str, default: int) -> int:
        value = self.module.integer(name)
        return default if value is None else value


def users(root: Operation | Iterable[Operation]) -> dict[Value, list[tuple[Operation, int]]]:
    """Per value that is used inside ``root``: the ops that use it and as which operand."""
    found: dict[Value, list[tuple[Operation, int]]] = {}
    for op in root.walk() if isinstance(root, Operation) else root:
        for i, value in enumerate(op.operands):
            found.setdefault(value, []).append((op, i))
    return found
