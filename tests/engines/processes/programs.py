"""Device programs for processes: of two devices, since every process takes its time to start."""

from __future__ import annotations

import numpy as np

from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import AllReduce, CollectivePermute, Local, Step, StepPlan

PAIR = Mesh({"x": 2})
SCALAR, FLAG, ROW = TensorType((), "i32"), TensorType((), "i1"), TensorType((6,), "f32")
ROWS = [np.arange(12, dtype=np.float32).reshape(2, 6)]
SHIFT = CollectivePermute(((0, 1), (1, 0)), ("x",))


def constant(value, result):
    return Step(Local("constant", Attributes(value=Literal(np.array(value, np.int32))), (SCALAR,)), (), (result,))


def shifting(times):
    """Sends each row to the other device so many times, adding its own."""
    compare = Step(Local("compare", Attributes(comparison_direction="LT"), (FLAG,)), (0, 2), (3,))
    condition = StepPlan(PAIR, (0, 1), (constant(times, 2), compare), (3,), (SCALAR, ROW, SCALAR, FLAG))
    body = StepPlan(
        PAIR, (0, 1),
        (constant(1, 2), Step(Local("add", Attributes(), (SCALAR,)), (0, 2), (3,)), Step(SHIFT, (1,), (4,)),
         Step(Local("add", Attributes(), (ROW,)), (1, 4), (5,))),
        (3, 5), (SCALAR, ROW, SCALAR, SCALAR, ROW, ROW),
    )
    loop = Step(Loop(condition, body), (1, 0), (2, 3))
    return StepPlan(PAIR, (0,), (constant(0, 1), loop), (3, 0), (ROW, SCALAR, SCALAR, ROW))


def choosing():
    """By the first input: the row as it is, or the largest of both devices' rows."""
    same = StepPlan(PAIR, (0,), (), (0,), (ROW,))
    largest = StepPlan(PAIR, (0,), (Step(AllReduce(("x",), "max"), (0,), (1,)),), (1,), (ROW, ROW))
    return StepPlan(PAIR, (0, 1), (Step(Branch((same, largest), False), (0, 1), (2,)),), (2,), (SCALAR, ROW, ROW))


ENDLESS = 2_000_000_000


def alive(pid):
    """Whether a process runs; one that has ended and waits to be asked for its status does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
