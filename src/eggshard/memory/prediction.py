"""Prediction of the device memory that a device program will take once compiled."""

from __future__ import annotations

from eggshard.memory.model import Memory, MemoryModel, boundary
from eggshard.memory.xla_cpu.model import XlaCpu
from eggshard.plan.record import PlanRecord
from eggshard.steps.nested import nested
from eggshard.steps.steps import StepPlan

#: How often all values of a program have to fit for no prediction to be made: compilers copy some.
_SPARE = 4

#: What plans are compiled by where nothing else is said.
DEFAULT: MemoryModel = XlaCpu()


def memory_of(plan: PlanRecord) -> Memory:
    """The predicted memory of a plan's device program, kept with the plan."""
    return plan.once(_of_plan)


def fits(plan: PlanRecord, limit: int) -> bool:
    """Whether a plan's predicted memory is within a limit, in bytes per device.

    Where all its values at once would fit several times over, nothing has to be predicted.
    """
    return _SPARE * _all_values(plan.device_program) <= limit or memory_of(plan).peak <= limit


def _all_values(program: StepPlan) -> int:
    """Bytes of all values of a device program and of those in it, none of them in the place of another."""
    inner = (there.program for step in program.steps for there in nested(step.action))
    return sum(type_.bytes for type_ in program.types) + sum(map(_all_values, inner))


def _of_plan(plan: PlanRecord) -> Memory:
    return predicted(plan.device_program)


def predicted(program: StepPlan, model: MemoryModel = DEFAULT) -> Memory:
    """The memory of a device program by a model, by default as XLA compiles it for CPUs."""
    return Memory(*boundary(program), model.temporaries(program))
