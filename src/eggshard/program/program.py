"""Programs: straight-line regions of ops over numbered values, with the shardings that their author stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

if TYPE_CHECKING:
    from eggshard.placement.sharding import Sharding


class Literal:
    """A constant array that hashes and compares by its bytes (so NaN equals NaN, and -0 is not 0).

    A splat keeps one element: ``array`` has the full shape by broadcasting, and takes no memory for it.
    """

    __slots__ = ("array", "splat", "_key")

    def __init__(self, array: np.ndarray):
        array = np.asarray(array)
        flat = array.reshape(-1)
        item = flat[:1].tobytes()
        if array.size and all(s == 0 for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
            self.splat = True
        else:
            self.splat = bool(array.size) and np.ascontiguousarray(flat).tobytes() == item * array.size
        self.array = np.broadcast_to(flat[:1].reshape(()), array.shape) if self.splat else np.array(array)
        content = item if self.splat else self.array.tobytes()
        self._key = (self.array.shape, self.array.dtype.str, str(self.array.dtype), self.splat, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        value = repr(self.array.reshape(-1)[0].item()) if self.splat else f"{self.array.size} elements"
        return f"Literal({value}, shape={self.array.shape}, dtype={self.array.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.splat:
            return (_splat_literal, (self.array.reshape(-1)[:1].copy(), self.array.shape))
        return (Literal, (self.array,))


def _splat_literal(element: np.ndarray, shape: tuple[int, ...]) -> Literal:
    return Literal(np.broadcast_to(element.reshape(()), shape))


class Attributes(Mapping[str, Any]):
    """An immutable, hashable mapping from attribute names to hashable values."""

    __slots__ = ("_items", "_hash")

    def __init__(self, items: Mapping[str, Any] | None = None, **more: Any):
        self._items = {**(items or {}), **more}
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(sorted(self._items.items(), key=lambda kv: kv[0])))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self._items == other._items

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{k}={v!r}" for k, v in sorted(self._items.items())) + "}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Attributes, (self._items,))

    def updated(self, **changes: Any) -> Attributes:
        """These attributes with some replaced or added."""
        return Attributes({**self._items, **changes})


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: values in, values out. What it means stands in the op registry under ``name``.

    ``shardings`` has one entry per result (None: nothing stated), from the program's text or from propagation.
    ``location`` is where the author wrote it, for messages.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: Attributes = Attributes()
    regions: tuple[Region, ...] = ()
    shardings: tuple[Sharding | None, ...] = ()
    location: str = ""

    @property
    def described(self) -> str:
        """The op's name, and where its author wrote it."""
        return f"{self.name}, {self.location}" if self.location else self.name


@dataclass(frozen=True)
class Region:
    """Ops in order over values numbered from 0; values ``0..len(inputs)-1`` are the inputs.

    Regions capture nothing: what a body needs from outside is an operand of its op.
    """

    inputs: tuple[int, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    types: tuple[TensorType, ...]

    def __hash__(self) -> int:
        return hash((self.inputs, self.ops, self.outputs, self.types))


@dataclass(frozen=True)
class Program:
    """A tensor program with global meaning, and the shardings stated for its inputs, outputs and ops.

    Shapes in ``region`` are global. ``input_shardings`` and ``output_shardings`` have one entry per value, None where
    nothing was stated (an input then comes replicated, an output is placed as is cheapest).
    """

    mesh: Mesh
    region: Region
    input_shardings: tuple[Sharding | None, ...]
    output_shardings: tuple[Sharding | None, ...]
    name: str = "main"
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    text: str | None = field(default=None, compare=False, repr=False)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self.region.types[i] for i in self.region.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self.region.types[i] for i in self.region.outputs)


class RegionBuilder:
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
        from eggshard.program.ops import registry

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

    def build(self, outputs: Sequence[int]) -> Region:
        """The finished region."""
        return Region(tuple(self.inputs), tuple(self.ops), tuple(outputs), tuple(self.types))
