"""What a compiled device program takes of a device's memory, predicted before it is compiled."""

from __future__ import annotations

from eggshard.memory.model import Memory, MemoryModel, boundary
from eggshard.memory.xla_cpu.model import XlaCpu
from eggshard.steps.steps import StepPlan

#: What plans are compiled by where nothing else is said.
DEFAULT: MemoryModel = XlaCpu()


def predicted(program: StepPlan, model: MemoryModel = DEFAULT) -> Memory:
    """The memory of a device program by a model, by default as XLA compiles it for CPUs."""
    return Memory(*boundary(program), model.temporaries(program))
