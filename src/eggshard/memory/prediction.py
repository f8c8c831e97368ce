"""Prediction of the device memory that a device program will take once compiled."""

from __future__ import annotations

from eggshard.memory.model import Memory, MemoryModel, boundary
from eggshard.memory.xla_cpu.model import XlaCpu
from eggshard.plan.record import PlanRecord
from eggshard.steps.steps import StepPlan

#: What plans are compiled by where nothing else is said.
DEFAULT: MemoryModel = XlaCpu()


def memory_of(plan: PlanRecord) -> Memory:
    """The predicted memory of a plan's device program, kept with the plan."""
    return plan.once(_of_plan)


def _of_plan(plan: PlanRecord) -> Memory:
    return predicted(plan.device_program)


def predicted(program: StepPlan, model: MemoryModel = DEFAULT) -> Memory:
    """The memory of a device program by a model, by default as XLA compiles it for CPUs."""
    return Memory(*boundary(program), model.temporaries(program))
