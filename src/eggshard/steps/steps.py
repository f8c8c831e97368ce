"""The vocabulary of physical steps, which every device executes in shard-local shapes.

Cost models price these steps; the StableHLO emitter and the NumPy simulator are the two readings of them. Each
action states its result shape and the bytes that each device receives; nothing else in the house restates them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from eggshard.ops import registry
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.held import Held, Origin
from eggshard.steps.moves import Copies, Moves, copied, copied_along, moved_axes, scaled

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Action:
    """What a step does on every device. ``kind`` is its name in tables and cost models."""

    kind: ClassVar[str] = ""

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """Local result types from local operand types."""
        raise NotImplementedError

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        """Bytes that each logical device receives, ``[devices]``; ring formulas for group collectives."""
        return np.zeros(mesh.size)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Bytes that the device receives which receives most."""
        return float(self.received(mesh, operands).max())

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Bytes that the busiest device of each of its collectives receives, added up."""
        return self.busiest(mesh, operands) if self.messages else 0.0

    def touched(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Bytes of memory that it reads and writes."""
        return sum(t.bytes for t in (*operands, *self.result(mesh, operands))) + self.staged(mesh, operands)

    def staged(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        """Bytes that it reads and writes besides its operands and results, in buffers of its own."""
        return 0.0

    def copied(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> Copies:
        """What it copies besides, so that what is sent or received is one piece of memory."""
        return Copies()

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes over which it communicates (empty: it does not)."""
        return ()

    @property
    def messages(self) -> int:
        """The number of collectives issued."""
        return 0

    @property
    def flops(self) -> float:
        """Floating-point operations per device, loops counted by their trip counts."""
        return 0.0

    @property
    def hops(self) -> int:
        """Devices that its data passes one after the other on a ring along its axes; 0 where that is not known."""
        return 0

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives of each kind it issues."""
        return {self.kind: self.messages} if self.messages else {}

    @property
    def has_effects(self) -> bool:
        """Whether it must run, in order, even if nothing uses its results."""
        return False


@dataclass(frozen=True, slots=True)
class Local(Action):
    """One op of the registry on shards: no communication.

    ``sized``: axes along which a tensor is sharded whose global size may stand in its attributes.
    """

    name: str
    attributes: Attributes
    result_types: tuple[TensorType, ...]
    regions: tuple[Region, ...] = ()
    flops: float = 0.0
    sized: tuple[str, ...] = ()
    kind: ClassVar[str] = "local"

    @property
    def has_effects(self) -> bool:
        return not registry.is_pure(self.name, self.regions)

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return self.result_types

    def touched(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return registry.get(self.name).touched(operands, self.result_types)


@dataclass(frozen=True, slots=True)
class Resize(Action):
    """Cut or zero-pad the high end of every dimension to ``shape``; the padding is unspecified data."""

    shape: tuple[int, ...]
    kind: ClassVar[str] = "resize"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0].with_shape(self.shape),)


@dataclass(frozen=True, slots=True)
class Slice(Action):
    """Keep this device's part: dimension d becomes 1/count of its size, at this device's position along the axes."""

    moves: Moves
    kind: ClassVar[str] = "slice"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (scaled(mesh, operands[0], (), self.moves),)


@dataclass(frozen=True, slots=True)
class GroupCollective(Action):
    """One collective in which every device receives as much as every other."""

    @property
    def messages(self) -> int:
        return 1

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        return np.full(mesh.size, self.busiest(mesh, operands))


@dataclass(frozen=True, slots=True)
class AllGather(GroupCollective):
    """Concatenate the group's shards: each move's dimension grows by its axes' count, group order major over tile."""

    moves: Moves
    kind: ClassVar[str] = "all-gather"

    @property
    def axes(self) -> tuple[str, ...]:
        return moved_axes(self.moves)

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (scaled(mesh, operands[0], self.moves, ()),)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(operands[0].bytes * (mesh.count(self.axes) - 1))

    def copied(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> Copies:
        return copied_along(mesh, self.moves, operands[0], self.result(mesh, operands)[0])


@dataclass(frozen=True, slots=True)
class AllToAll(GroupCollective):
    """Move axes from some dimensions to others in one collective over their product.

    ``sources`` dimensions grow (their minor-most axes leave), ``targets`` dimensions shrink (the axes arrive as
    minor-most). Both list the same axes; groups are ordered by ``targets``. No dimension is in both.
    """

    sources: Moves
    targets: Moves
    kind: ClassVar[str] = "all-to-all"

    @property
    def axes(self) -> tuple[str, ...]:
        return moved_axes(self.targets)

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (scaled(mesh, operands[0], self.sources, self.targets),)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        n = mesh.count(self.axes)
        return float(operands[0].bytes * (n - 1) / n)

    def copied(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> Copies:
        return copied(mesh, operands[0], self.targets) + copied(mesh, self.result(mesh, operands)[0], self.sources)


@dataclass(frozen=True, slots=True)
class CollectivePermute(Action):
    """Every device sends its whole shard to one device; ``pairs`` of logical ids (source, target) cover all targets."""

    pairs: Pairs
    over: tuple[str, ...] = ()
    kind: ClassVar[str] = "collective-permute"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    @property
    def messages(self) -> int:
        return 1

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0],)

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        return received_by_pairs(mesh, self.pairs, operands[0].bytes)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(operands[0].bytes * any(source != target for source, target in self.pairs))


@dataclass(frozen=True, slots=True)
class AllReduce(GroupCollective):
    """Combine the group's partial values; every device gets the result."""

    over: tuple[str, ...]
    monoid: str
    kind: ClassVar[str] = "all-reduce"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        n = mesh.count(self.axes)

        def block(type_: TensorType) -> float:
            if monoids.reduced_by_collectives(self.monoid, type_.dtype):
                return type_.bytes / n
            return float(type_.with_shape((-(-type_.elements // n),)).bytes)

        return sum(2 * (n - 1) * block(t) for t in operands)


@dataclass(frozen=True, slots=True)
class ReduceScatter(GroupCollective):
    """Combine the group's partial values; each device gets its part, as `Slice` by ``moves`` would cut it."""

    moves: Moves
    monoid: str
    kind: ClassVar[str] = "reduce-scatter"

    @property
    def axes(self) -> tuple[str, ...]:
        return moved_axes(self.moves)

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (scaled(mesh, operands[0], (), self.moves),)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        n = mesh.count(self.axes)
        return float(operands[0].bytes * (n - 1) / n)

    def copied(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> Copies:
        return copied_along(mesh, self.moves, self.result(mesh, operands)[0], operands[0])


@dataclass(frozen=True, slots=True)
class KeepFirst(Action):
    """Replicated to partial: the first device along ``over`` keeps the value, the others hold the monoid's identity."""

    over: tuple[str, ...]
    monoid: str
    kind: ClassVar[str] = "keep-first"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands


@dataclass(frozen=True, slots=True)
class Mask(Action):
    """Overwrite what lies past the tensor's end along one dimension with the monoid's identity.

    The device at position p along ``shard_axes`` holds indices from p * (local size); those >= ``size`` are masked.
    """

    dim: int
    shard_axes: tuple[str, ...]
    size: int
    monoid: str
    kind: ClassVar[str] = "mask"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands


@dataclass(frozen=True, slots=True)
class Step:
    """One action on numbered plan values, and which rules and choices led to it.

    ``origins`` are what it was chosen for, the innermost first: a step of a manual computation was chosen in its body,
    which was chosen for the whole. They are for people, and no part of what the step does.
    """

    action: Action
    operands: tuple[int, ...]
    results: tuple[int, ...]
    why: tuple[str, ...] = ()
    label: str = ""
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class StepPlan:
    """Steps in order over numbered values of local types: the whole device program.

    ``inputs`` are values ``0..n-1``. ``types[v]`` is the shard-local type of value v, the same on all devices.
    ``held[v]`` says which tensor that is, where it is known; it is for people, and no part of what the program does.
    """

    mesh: Mesh
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    types: tuple[TensorType, ...]
    held: tuple[Held | None, ...] = field(default=(), compare=False, repr=False)

    def received(self, step: Step) -> np.ndarray:
        """Bytes that each device receives in a step."""
        return step.action.received(self.mesh, tuple(self.types[v] for v in step.operands))

    @property
    def serial_bytes(self) -> float:
        """The busiest device of each collective, added up, loops counted by their trip counts."""
        return sum(s.action.serial_bytes(self.mesh, tuple(self.types[v] for v in s.operands)) for s in self.steps)

    @property
    def total_received(self) -> np.ndarray:
        """Bytes that each device receives in all steps, loops counted by their trip counts."""
        return sum((self.received(s) for s in self.steps), np.zeros(self.mesh.size))

    @property
    def flops(self) -> float:
        """Floating-point operations per device, loops counted by their trip counts."""
        return sum((step.action.flops for step in self.steps), 0.0)

    @property
    def messages(self) -> int:
        """Collectives issued, loops counted by their trip counts."""
        return sum(s.action.messages for s in self.steps)

    @property
    def has_effects(self) -> bool:
        """Whether some step has effects."""
        return any(s.action.has_effects for s in self.steps)

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives of each kind are issued; pieces of an exchange are permutes."""
        out: Counter[str] = Counter()
        for step in self.steps:
            out.update(step.action.collectives)
        return dict(sorted(out.items()))


def received_by_pairs(mesh: Mesh, pairs: Pairs, size: int) -> np.ndarray:
    """``[devices]``: bytes that these pairs send to others, ``size`` each."""
    sender, receiver = np.array(pairs, int).reshape(-1, 2).T
    return size * np.bincount(receiver[sender != receiver], minlength=mesh.size).astype(float)
