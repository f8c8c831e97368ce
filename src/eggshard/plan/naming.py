"""Names of a plan's values for people: one numbering, which is that of the table that `print(plan)` shows.

An input has its own name, where the program states one; of a long one its number and the end are shown. What a step
makes is ``%n``, n its number in the device program. Values of the program are named by the op that makes them, and by
where its author wrote it.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from eggshard.program.program import Program
from eggshard.steps.steps import StepPlan

#: Characters to which longer names of inputs are cut.
LONGEST = 20


class Planned(Protocol):
    """A program and the device program planned for it (`plan.record`)."""

    @property
    def program(self) -> Program: ...

    @property
    def device_program(self) -> StepPlan: ...


def value_names(plan: Planned, program: StepPlan | None = None) -> list[str]:
    """Per value of the device program, or of one within it, its name. Inputs that share a name are numbered; no two
    values of one program have one name."""
    names = [f"%{v}" for v in range(len((program or plan.device_program).types))]
    if program is not None and program is not plan.device_program:
        return names
    times = Counter(plan.program.input_names)
    for v, name in zip(plan.device_program.inputs, plan.program.input_names, strict=False):
        if name and times[name] == 1:
            number = f"%{v}..."
            names[v] = name if len(name) <= LONGEST else number + name[len(number) - LONGEST :]
    return names


def class_names(plan: Planned) -> dict[int, str]:
    """Per class of the selection (`Held.cls`) the name of the first value that holds it."""
    names = value_names(plan)
    found: dict[int, str] = {}
    for name, tensor in zip(names, plan.device_program.held, strict=False):
        if tensor is not None and tensor.cls >= 0:
            found.setdefault(tensor.cls, name)
    return found


class ProgramNames:
    """What the values of a program are called."""

    def __init__(self, program: Program):
        region, names = program.region, program.input_names
        self._of = {v: f"input {names[i] if i < len(names) else i}" for i, v in enumerate(region.inputs)}
        for i, op in enumerate(region.ops):
            for k, v in enumerate(op.results):
                result = f"result {k} of " if len(op.results) > 1 else ""
                self._of[v] = f"{result}op {i} of the program ({op.described})"

    def of(self, value: int) -> str:
        """Return the name of a value of the program's region; -1 stands for a tensor that the rewrites introduced."""
        return self._of.get(value, "a tensor that the algebra made")


def output_names(plan: Planned) -> list[str]:
    """Per output its name in the program; its number where it has none."""
    names = plan.program.output_names
    return [names[i] if i < len(names) and names[i] else str(i) for i in range(len(plan.device_program.outputs))]
