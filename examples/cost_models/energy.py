"""Energy as a cost model, and time and energy weighed against each other.

The constants are round figures of the right order for an accelerator with HBM in a 7 nm process; put your machine's in
their place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import program

from eggshard.costmodel import AlphaBeta, Combinable, StepColumns, StepInfo

PICO = 1e-12


@dataclass(frozen=True)
class Energy(Combinable):
    """Joules of a device: per flop, per byte of memory and per byte received; deriving from Combinable gives operators.

    ``seconds_many`` is optional: with it the planner prices many steps in one call.
    """

    flop: float = 0.5 * PICO
    memory_byte: float = 40 * PICO
    wire_byte: float = 80 * PICO

    def seconds(self, step: StepInfo) -> float:
        return self.flop * step.flops + self.memory_byte * step.memory_bytes + self.wire_byte * step.wire_bytes

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        return self.flop * steps.flops + self.memory_byte * steps.memory_bytes + self.wire_byte * steps.wire_bytes


def main() -> None:
    time, energy = AlphaBeta.preset("a100-node"), Energy()
    program.compare(energy, "by energy")
    watts = 400.0  # what a joule is worth in seconds: a device of 400 W takes one joule in 2.5 ms
    program.compare(0.7 * time + 0.3 / watts * energy, "by 0.7 time and 0.3 energy")
    print("joules of an all-gather of 1 MiB over four devices, and its weighed price:")
    usual = program.es.plan_reshard((512, 512), "f32", {"x": 4}, ("x", None), (None, None))
    print([f"{m.seconds(s):.3g}" for m in (energy, 0.7 * time + 0.3 / watts * energy) for s in priced(usual)])


def priced(plan: program.es.Plan) -> list[StepInfo]:
    """The steps of a plan as a cost model sees them."""
    from eggshard.costmodel.pricing import step_info

    device = plan.device_program
    return [step_info(plan.mesh, s.action, tuple(device.types[v] for v in s.operands)) for s in device.steps]


if __name__ == "__main__":
    main()
