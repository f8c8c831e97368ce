"""Programs: straight-line regions of ops over numbered values, with the shardings that their author stated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eggshard.errors import printable
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.tables import Shown


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
class Program(Shown):
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

    def __post_init__(self) -> None:
        """Spell out control characters in names, which are shown on terminals."""
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "input_names", tuple(map(printable, self.input_names)))
        object.__setattr__(self, "output_names", tuple(map(printable, self.output_names)))

    def __str__(self) -> str:
        def lines(
            kind: str, names: Iterable[str], types: Iterable[TensorType], at: Iterable[Sharding | None],
        ) -> list[str]:
            return [f"  {kind} {name}: {type_}" + (f" at {sharding}" if sharding else "")
                    for name, type_, sharding in zip(names, types, at, strict=True)]

        ops = len(self.region.ops)
        inputs = lines("input", self.input_names, self.input_types, self.input_shardings)
        outputs = lines("output", self.output_names, self.output_types, self.output_shardings)
        return "\n".join([f"program {self.name} on {dict(self.mesh.axes)}: {ops} ops", *inputs, *outputs])

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self.region.types[i] for i in self.region.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self.region.types[i] for i in self.region.outputs)
