"""The memory model of XLA on CPUs: bytes of temporaries of a compiled device program."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import LoweringError
from eggshard.memory.model import Liveness
from eggshard.memory.xla_cpu.buffers import lifetimes, temporaries
from eggshard.memory.xla_cpu.instructions import Block, instructions
from eggshard.memory.xla_cpu.packing import Lives
from eggshard.memory.xla_cpu.reading import graph_of
from eggshard.steps.steps import StepPlan


class XlaCpu:
    """Buffers as XLA's back end for CPUs assigns them, after its fusions and in its order.

    Of a program that XLA cannot run, the shards alive at once.
    """

    def temporaries(self, program: StepPlan) -> int:
        try:
            block = instructions(program)
        except LoweringError:
            return Liveness().temporaries(program)
        return temporaries(graph_of(block, _inside))


def _inside(block: Block, carried: Sequence[int] | None) -> tuple[Lives, set[int]]:
    """When a block needs memory besides its inputs and outputs, and which of its inputs it wants in another layout."""
    graph = graph_of(block, _inside, carried)
    return lifetimes(graph, carried), graph.relaid
