"""What a compiled device program takes of a device's memory, predicted before it is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eggshard.errors import LoweringError
from eggshard.memory.xla_cpu.buffers import lifetimes, temporaries
from eggshard.memory.xla_cpu.instructions import Block, instructions
from eggshard.memory.xla_cpu.packing import Lives
from eggshard.memory.xla_cpu.reading import graph_of
from eggshard.plan.record import PlanRecord
from eggshard.steps.peak_memory import peak_bytes
from eggshard.steps.steps import StepPlan


class Memory(NamedTuple):
    """Bytes per device: of the shards of inputs and outputs, and of what the program needs besides."""

    arguments: int
    outputs: int
    temporaries: int

    @property
    def peak(self) -> int:
        """All of it: what the program allocates."""
        return sum(self)


def memory_of(plan: PlanRecord) -> Memory:
    """The predicted memory of a plan's device program, kept with the plan."""
    return plan.once(_of_plan)


def _of_plan(plan: PlanRecord) -> Memory:
    return predicted(plan.device_program)


def predicted(program: StepPlan) -> Memory:
    """The memory of a device program as XLA compiles it for CPUs.

    An output that is an input, or another output, is one more array. Temporaries of a program that XLA cannot run are
    the shards alive at once, step by step.
    """
    arguments = sum(program.types[v].bytes for v in program.inputs)
    outputs = sum(program.types[v].bytes for v in program.outputs)
    try:
        block = instructions(program)
    except LoweringError:
        return Memory(arguments, outputs, max(0, peak_bytes(program) - arguments - outputs))
    return Memory(arguments, outputs, temporaries(graph_of(block, _inside)))


def _inside(block: Block, carried: Sequence[int] | None) -> tuple[Lives, set[int]]:
    """When a block needs memory besides its inputs and outputs, and which of its inputs it wants in another layout."""
    graph = graph_of(block, _inside, carried)
    return lifetimes(graph, carried), graph.relaid
