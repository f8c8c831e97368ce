"""What is taken out of loops, and that loops compute the same without it."""

import numpy as np
import pytest

from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.spmd.hoisting import hoisted, price_of_iterations
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import AllGather, AllReduce, Local, Slice, Step, StepPlan

LINE = Mesh({"x": 4})
COUNT, FLAG = TensorType((), "i32"), TensorType((), "i1")
SHARD, FULL = TensorType((2, 3), "f32"), TensorType((8, 3), "f32")
GATHER, SUM = AllGather(((0, ("x",)),)), AllReduce(("x",), "add")


def local(name, *types, **attributes):
    return Local(name, Attributes(attributes), types)


def constant(value, type_):
    return local("constant", type_, value=Literal(np.asarray(value)))


def program(inputs, *steps, outputs):
    types, made = list(inputs), []
    for action, operands in steps:
        results = action.result(LINE, tuple(types[v] for v in operands))
        made.append(Step(action, operands, tuple(range(len(types), len(types) + len(results)))))
        types += results
    return StepPlan(LINE, tuple(range(len(inputs))), tuple(made), outputs, tuple(types))


def looped(carried, body, trips, *more, outputs=None):
    """A loop over a counter and the carried values, after which ``more`` follows."""
    less = local("compare", FLAG, comparison_direction="LT", compare_type="SIGNED")
    condition = program(carried, (constant(np.int32(trips), COUNT), ()), (less, (0, len(carried))),
                        outputs=(len(carried) + 1,))
    n = len(carried)
    loop = (Loop(condition, body, trips), tuple(range(n)))
    return program(carried, loop, *more, outputs=outputs or tuple(range(n, 2 * n)))


def counting(carried, *steps, outputs):
    """A body that counts up; its steps' values begin after the carried ones, the count and one."""
    return program(carried, (constant(np.int32(1), COUNT), ()), (local("add", COUNT), (0, len(carried))), *steps,
                   outputs=(len(carried) + 1, *outputs))


CARRIED = (COUNT, SHARD, FULL)
# 3: one, 4: count + 1, 5: gathered, 6: its tanh, 7: added to the carried value
BODY = counting(CARRIED, (GATHER, (1,)), (local("tanh", FULL), (5,)), (local("add", FULL), (2, 6)), outputs=(1, 7))


def same(plan, trips):
    """The same with loops relieved, whose results are checked on the simulator."""
    rng = np.random.default_rng(0)
    shards = [np.zeros((4,), np.int32) if plan.types[v] == COUNT
              else rng.normal(size=(4, *plan.types[v].shape)).astype(np.float32) for v in plan.inputs]
    relieved = hoisted(plan)
    for got, want in zip(run(relieved, shards), run(plan, shards), strict=True):
        np.testing.assert_array_equal(got, want)
    return relieved


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_gather_and_what_is_computed_of_it(trips):
    plan = looped(CARRIED, BODY, trips)
    relieved = same(plan, trips)
    assert [getattr(s.action, "name", s.action.kind) for s in relieved.steps] == ["all-gather", "tanh", "while"]
    assert relieved.collectives == {"all-gather": 1} and plan.messages == trips


def test_a_gather_that_is_made_outside_too():
    plan = looped(CARRIED, BODY, 3, (GATHER, (1,)), (local("add", FULL), (5, 6)), outputs=(7,))
    assert plan.messages == 4 and same(plan, 3).messages == 1


def test_what_varies_stays():
    # The shard is replaced in every iteration.
    body = counting(CARRIED, (local("tanh", SHARD), (1,)), (GATHER, (5,)), outputs=(5, 6))
    plan = looped(CARRIED, body, 3)
    assert hoisted(plan) is not plan and same(plan, 3).messages == 3


def test_what_would_be_carried_larger_stays():
    bias = TensorType((3,), "f32")
    broadcast = local("broadcast_in_dim", FULL, broadcast_dimensions=(1,), shape=FULL.shape)
    carried = (COUNT, bias, FULL)
    body = counting(carried, (broadcast, (1,)), (local("add", FULL), (2, 5)), outputs=(1, 6))
    (step,) = same(looped(carried, body, 3), 3).steps
    assert step.action.body == body
    # But where a collective needs it, both go; what is inside keeps one of its own.
    body = counting(carried, (broadcast, (1,)), (SUM, (5,)), (local("add", FULL), (5, 6)), (local("add", FULL), (2, 7)),
                    outputs=(1, 8))
    relieved = same(looped(carried, body, 3), 3)
    assert relieved.messages == 1 and relieved.steps[-1].action.body.messages == 0


def test_a_cut_of_a_broadcast_stays():
    """It is larger than what was broadcast; a cut of what is carried is not, and goes."""
    bias, part = TensorType((3,), "f32"), TensorType((2, 3), "f32")
    broadcast = local("broadcast_in_dim", FULL, broadcast_dimensions=(1,), shape=FULL.shape)
    cut = Slice(((0, ("x",)),))
    body = counting((COUNT, bias, part), (broadcast, (1,)), (cut, (5,)), (local("add", part), (2, 6)), outputs=(1, 7))
    (step,) = same(looped((COUNT, bias, part), body, 3), 3).steps
    assert step.action.body == body
    body = counting((COUNT, FULL, part), (cut, (1,)), (local("add", part), (2, 5)), outputs=(1, 6))
    assert len(same(looped((COUNT, FULL, part), body, 3), 3).steps) == 2


def test_nested_loops():
    outer = counting(CARRIED, (constant(np.int32(0), COUNT), ()),
                     (looped(CARRIED, BODY, 2).steps[0].action, (5, 1, 2)), outputs=(7, 8))
    plan = looped(CARRIED, outer, 3)
    assert plan.messages == 6
    inside = hoisted(outer)
    relieved = same(looped(CARRIED, inside, 3), 3)
    assert inside.messages == 1 and relieved.messages == 1


def test_conditions_communicate_once():
    carried = (COUNT, SHARD, FULL)
    less = local("compare", FLAG, comparison_direction="LT", compare_type="SIGNED")
    greater = local("compare", TensorType(SHARD.shape, "i1"), comparison_direction="EQ", compare_type="FLOAT")
    condition = program(
        carried, (constant(np.int32(2), COUNT), ()), (less, (0, 3)), (SUM, (1,)), (greater, (5, 5)), outputs=(4,)
    )
    body = counting(carried, outputs=(1, 2))
    relieved = same(program(carried, (Loop(condition, body, 2), (0, 1, 2)), outputs=(3, 4, 5)), 2)
    assert relieved.messages == 1
    inside = relieved.steps[-1].action
    # The bound of the count stays inside, where back ends look for it.
    assert "constant" in [getattr(s.action, "name", "") for s in inside.condition.steps]


def test_price_of_iterations():
    def price(plan):
        return float(plan.messages)

    assert [price_of_iterations(BODY, trips, price) for trips in (1, 2, 50)] == [1, 1, 1]
    varies = counting(CARRIED, (local("tanh", SHARD), (1,)), (GATHER, (5,)), outputs=(5, 6))
    assert price_of_iterations(varies, 50, price) == 50
