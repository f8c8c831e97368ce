"""Models of memory: what plain liveness says of a device program."""

from tests.engines.workspace.programs import branching, swapping_loop

from eggshard.memory.model import Liveness, boundary
from eggshard.memory.prediction import predicted
from eggshard.steps.peak_memory import peak_bytes


def test_liveness_counts_the_shards_alive_at_once() -> None:
    for program in (branching(), swapping_loop()):
        found = predicted(program, Liveness())
        assert found.peak == max(peak_bytes(program), sum(boundary(program)))
        assert (found.arguments, found.outputs) == boundary(program) == predicted(program)[:2]
