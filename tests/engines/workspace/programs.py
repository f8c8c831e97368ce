"""Device programs with loops, branches and communication, small enough to be read."""

import numpy as np

from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import AllGather, AllReduce, CollectivePermute, Local, Slice, Step, StepPlan

LINE = Mesh({"x": 4})
SCALAR, FLAG, ROW, WIDE = TensorType((), "i32"), TensorType((), "i1"), TensorType((6,), "f32"), TensorType((24,), "f32")


def constant(value, type_, result):
    array = np.full(type_.shape, value, np.int32 if type_.dtype == "i32" else np.float32)
    return Step(Local("constant", Attributes(value=Literal(array)), (type_,)), (), (result,))


def add(left, right, result, type_=ROW):
    return Step(Local("add", Attributes(), (type_,)), (left, right), (result,))


def below(limit):
    """Condition over (counter, a, b, c): counter < limit."""
    steps = (
        constant(limit, SCALAR, 4),
        Step(Local("compare", Attributes(comparison_direction="LT"), (FLAG,)), (0, 4), (5,)),
    )
    return StepPlan(LINE, (0, 1, 2, 3), steps, (5,), (SCALAR, ROW, ROW, ROW, SCALAR, FLAG))


def swapping_loop():
    """Carries (counter, a, b, c) to (counter + 1, b, a, c + shifted b), three times.

    Its first output is its last too, the second is an input.
    """
    body = StepPlan(
        LINE, (0, 1, 2, 3),
        (
            constant(1, SCALAR, 4), add(0, 4, 5, SCALAR),
            Step(CollectivePermute(tuple((i, (i + 1) % 4) for i in range(4)), ("x",)), (2,), (6,)),
            add(3, 6, 7),
        ),
        (5, 2, 1, 7), (SCALAR, ROW, ROW, ROW, SCALAR, SCALAR, ROW, ROW),
    )
    steps = (constant(0, SCALAR, 2), Step(Loop(below(3), body, 3), (2, 0, 1, 1), (3, 4, 5, 6)), add(4, 6, 7))
    return StepPlan(LINE, (0, 1), steps, (7, 0, 5, 7), (ROW, ROW, SCALAR, SCALAR, ROW, ROW, ROW, ROW))


def branching():
    """By the first input: gather, sum and slice the row again; or hand it back as it is."""
    gathering = StepPlan(
        LINE, (0,),
        (
            Step(AllGather(((0, ("x",)),)), (0,), (1,)), Step(AllReduce(("x",), "add"), (1,), (2,)),
            Step(Slice(((0, ("x",)),)), (2,), (3,)),
        ),
        (3,), (ROW, WIDE, WIDE, ROW),
    )
    same = StepPlan(LINE, (0,), (), (0,), (ROW,))
    steps = (Step(Branch((gathering, same), False), (0, 1), (2,)), add(1, 2, 3))
    return StepPlan(LINE, (0, 1), steps, (3,), (SCALAR, ROW, ROW, ROW))
