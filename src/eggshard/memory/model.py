"""The memory model protocol: bytes that a device program takes of a device's memory."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from eggshard.steps.peak_memory import peak_bytes
from eggshard.steps.steps import StepPlan
from eggshard.tables import size


class Memory(NamedTuple):
    """Bytes per device: of the shards of inputs and outputs, and of what the program needs besides."""

    arguments: int
    outputs: int
    temporaries: int

    @property
    def peak(self) -> int:
        """All of it: what the program allocates."""
        return sum(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size(count)}" for name, count in self._asdict().items())
        return f"{size(self.peak)} per device: {parts}"


class MemoryModel(Protocol):
    """How a device program's memory is predicted; an output that is an input, or another output, is one more array."""

    def temporaries(self, program: StepPlan) -> int:
        """Bytes per device besides the shards of inputs and outputs."""
        ...


class Liveness:
    """Shards alive at once, in the order of the steps: no compiler's fusions, copies or order."""

    def temporaries(self, program: StepPlan) -> int:
        return max(0, peak_bytes(program) - sum(boundary(program)))


def boundary(program: StepPlan) -> tuple[int, int]:
    """Bytes per device of the shards of inputs, and of outputs."""
    return (sum(program.types[v].bytes for v in program.inputs), sum(program.types[v].bytes for v in program.outputs))
