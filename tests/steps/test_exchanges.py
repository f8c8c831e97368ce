"""Exchanges in plans for many devices: stated along mesh axes, whatever number of devices lies along them."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import LoweringError
from eggshard.frontends.builder import ProgramBuilder
from eggshard.plan.retargeting import retargeted
from eggshard.program.mesh import Mesh
from eggshard.program.placement import place
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import perform, scatter_to_devices
from eggshard.steps.exchange import BoxExchange, exchange


def transposed(sizes: tuple[int, int, int]) -> es.Plan:
    b = ProgramBuilder(dict(zip("xyz", sizes, strict=True)))
    b.output(b.input((4096, 4096, 4096), "f32", (("x", "y"), "z", None)), ("z", ("x", "y"), None))
    return es.optimize(b.build(), cost_model="alpha-beta")


def exchange_of(plan: es.Plan) -> BoxExchange:
    (action,) = (step.action for step in plan.steps if isinstance(step.action, BoxExchange))
    return action


def test_a_plan_takes_no_more_room_for_more_devices() -> None:
    few, many = (transposed((n, n, n)) for n in (2, 16))
    assert [blocks.blocks for blocks in exchange_of(few).source] == [4, 2, 1]
    assert [blocks.blocks for blocks in exchange_of(many).source] == [256, 16, 1]
    texts = [plan.to_json(reasons=False) for plan in (few, many)]
    assert abs(len(texts[1]) - len(texts[0])) < 1000
    for plan, text in zip((few, many), texts, strict=True):
        again = es.Plan.from_json(text)
        assert again.device_program == plan.device_program
        assert again.to_stablehlo() == plan.to_stablehlo()


def test_what_is_promised_is_what_4096_devices_do() -> None:
    plan = transposed((16, 16, 16))
    action, operand = exchange_of(plan), TensorType((16, 256, 4096), "f32")
    sent = action.tables(plan.mesh).sent
    size = operand.with_shape(action.piece).bytes
    received = size * sum(np.bincount(pieces.receivers, minlength=4096) for pieces in sent)
    np.testing.assert_array_equal(received, action.received(plan.mesh, (operand,)))
    assert (len(sent), received.max()) == (action.messages, action.busiest(plan.mesh, (operand,)))
    for pieces in sent:
        assert len(set(pieces.senders.tolist())) == len(set(pieces.receivers.tolist())) == len(pieces.senders)


def test_on_another_number_of_devices() -> None:
    """Along axes that nothing crosses an exchange is done alike at more places; along others it is another one."""
    old, new = Mesh({"x": 4, "y": 2, "z": 2}), Mesh({"x": 4, "y": 2, "z": 3})
    shape, ends = (8, 8), ((("x",), ("y",)), (("y",), ("x",)))
    source, target = (place(old, shape, axes) for axes in ends)
    action = exchange(old, shape, source, target, ("x", "y"), 2, 2)
    whole = np.random.default_rng(0).standard_normal(shape)
    for mesh, made in ((old, action), (new, retargeted(action, old, new, ()))):
        (got,) = perform(mesh, made, (scatter_to_devices(mesh, whole, source),))
        np.testing.assert_array_equal(got, scatter_to_devices(mesh, whole, target))
    with pytest.raises(LoweringError, match="from place to place"):
        retargeted(action, old, Mesh({"x": 6, "y": 2, "z": 2}), ())
