"""Steps on windows in a plan: their figures, their words, their prices, and the plan as JSON."""


import numpy as np
import pytest

import eggshard as es
from eggshard.api import Plan
from eggshard.costmodel import AlphaBeta, Messages, StepInfo, WireBytes
from eggshard.costmodel.pricing import Pricer, step_info
from eggshard.placement.slabs import Slab
from eggshard.placement.windows import slab_exchange
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, place
from eggshard.program.types import TensorType
from eggshard.report.tables import over, what
from eggshard.steps.peak_memory import peak_bytes
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.steps import Local, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, local_range

MESH = Mesh({"x": 4, "y": 2})
LOCAL = TensorType((4, 3), "f32")
HOME = Dim(("x",), 4)


def halo(low, high, wrapped=False, n=16):
    """A halo around the tiles of dimension 0."""
    target = Dim(("x",), 4, low, high, (low, n + high) if wrapped else None)
    found = slab_exchange(n, 4, HOME, target)
    return HaloExchange(0, ("x",), target.size, found.offsets, found.rounds)


def test_a_halo_exchange_receives_its_slabs():
    action = halo(-2, 1)
    assert action.result(MESH, (LOCAL,)) == (TensorType((7, 3), "f32"),)
    assert action.collectives == {"collective-permute": 2} and action.messages == 2 and action.axes == ("x",)
    received = action.received(MESH, (LOCAL,)).reshape(4, 2)
    np.testing.assert_array_equal(received, np.array([[1, 1], [3, 3], [3, 3], [2, 2]]) * 12)
    assert action.serial_bytes(MESH, (LOCAL,)) == 36


def test_what_devices_send_themselves_is_no_message():
    own, ring = (tuple((i, (i + k) % 4) for i in range(4)) for k in (0, 1))
    zeros = (0,) * 4
    rounds = (Slab(own, 2, zeros, zeros), Slab(ring, 1, zeros, zeros), Slab(((0, 0), (1, 2)), 3, zeros, zeros))
    action = HaloExchange(0, ("x",), 6, (2,) * 4, rounds)
    assert action.messages == 2 and action.serial_bytes(MESH, (LOCAL,)) == 48
    received = action.received(MESH, (LOCAL,)).reshape(4, 2)
    np.testing.assert_array_equal(received, np.array([[1, 1], [1, 1], [4, 4], [1, 1]]) * 12)
    alone = HaloExchange(0, ("x",), 6, (2,) * 4, rounds[:1])
    assert alone.messages == 0 and alone.collectives == {}
    assert not step_info(MESH, alone, (LOCAL,)).communicates


def test_prices():
    action = halo(-1, 1)
    info = step_info(MESH, action, (LOCAL,))
    assert (info.kind, info.axes, info.group, info.messages, info.wire_bytes) == ("halo-exchange", ("x",), 4, 2, 24)
    assert info.memory_bytes == (4 + 6) * 12 and info.hops == 2
    # As many permutes of pieces cost the same into a switch, and no less on a ring.
    for model in (AlphaBeta(), WireBytes(), Messages(), AlphaBeta.preset("tpu-v5e")):
        exchange = StepInfo(Exchange.kind, MESH, axes=("x",), group=4, wire_bytes=24, messages=2, memory_bytes=120)
        assert Pricer(model, MESH)(action, LOCAL) <= model.seconds(exchange)
    # What all devices cut alike is read in place.
    assert step_info(MESH, Crop(0, ("x",), 2, (-1,) * 4), (LOCAL,)).memory_bytes == 0
    crops = Crop(0, ("x",), 2, (-1, -1, -2, -2)), Crop(0, ("x",), 6, (1,) * 4)
    for local in (*crops, BoxSelect(((0, HOME, 1, 9),)), EdgeFill(0, HOME, 16, "edge")):
        operands = (LOCAL, LOCAL) if isinstance(local, BoxSelect) else (LOCAL,)
        info = step_info(MESH, local, operands)
        assert not info.communicates and info.wire_bytes == 0 and info.memory_bytes > 0


def test_slabs_travel_the_shorter_way_round_a_ring():
    mesh = Mesh({"x": 16})
    model = AlphaBeta("ring", launch=0.0, latency=1.0, bandwidth=1e30)
    near = slab_exchange(64, 16, HOME, Dim(("x",), 4, -1, 1, (-1, 65)))
    far = slab_exchange(64, 16, HOME, Dim(("x",), 4, -5, 0, (-5, 64)))
    seconds = [
        Pricer(model, mesh)(HaloExchange(0, ("x",), 6 + 3 * i, found.offsets, found.rounds), LOCAL)
        for i, found in enumerate((near, far))
    ]
    assert seconds == pytest.approx([2, 3])


def test_words():
    assert what(halo(-2, 1)) == "halo-exchange dim 0: 2 from below, 1 from above"
    assert what(halo(0, 3, True)) == "halo-exchange dim 0: 3 from above" and over(halo(0, 3)) == "x"
    assert what(Crop(1, ("x",), 5, (0,) * 4)) == "window dim 1 of 5"
    box = BoxSelect(((0, HOME, 1, 15), (2, Dim(("y",), 3, 0, 1), 0, 4)))
    assert what(box) == "select dim 0 [1:15], dim 2 [0:4]" and over(box) == "x,y"
    assert what(EdgeFill(0, HOME, 16, "reflect")) == "edge dim 0: reflect"
    assert over(EdgeFill(0, HOME, 16, "reflect")) == "x"


def test_local_ranges_are_clipped_to_the_shard():
    low, high = local_range(MESH, Dim(("x",), 4, -1, 1), 2, 6)
    assert low.reshape(4, 2)[:, 0].tolist() == [3, 0, 0, 0]
    assert high.reshape(4, 2)[:, 0].tolist() == [6, 3, 0, 0]


def window_plan():
    """x[i - 1] + x[i + 1], periodic, plus 1 where 2 <= i < 14; and the repeated edges of x, computed on windows."""
    b = es.ProgramBuilder(MESH)
    x = b.input((16, 3), "f32", ("x", None), name="x")
    after, before = (
        b.concatenate([b.slice(x, (s, 0), (16, 3)), b.slice(x, (0, 0), (s, 3))], 0) for s in (1, 15)
    )
    y = after + before
    b.output(y + b.concatenate([b.constant(v, "f32", (n, 3)) for v, n in ((0, 2), (1, 12), (0, 2))], 0), ("x", None))
    b.output(b.concatenate([b.slice(x, (0, 0), (1, 3)), b.slice(x, (0, 0), (15, 3))], 0), ("x", None))
    program = b.build()

    def cut(start):
        attributes = Attributes(start_indices=(start, 0), limit_indices=(start + 4, 3), strides=(1, 1))
        return Local("slice", attributes, (LOCAL,))

    add = Local("add", Attributes(), (LOCAL,))
    wide, low = TensorType((6, 3), "f32"), TensorType((5, 3), "f32")
    below = Dim(("x",), 4, -1, 0)
    one = Local("constant", Attributes(value=Literal(np.broadcast_to(np.float32(1), (4, 3)))), (LOCAL,))
    steps = (
        Step(halo(-1, 1, True), (0,), (1,)),
        Step(cut(0), (1,), (2,)),
        Step(cut(2), (1,), (3,)),
        Step(add, (2, 3), (4,)),
        Step(one, (), (5,)),
        Step(add, (4, 5), (6,)),
        Step(BoxSelect(((0, HOME, 2, 14),)), (6, 4), (7,)),
        Step(halo(-1, 0), (0,), (8,)),
        Step(EdgeFill(0, below, 16, "edge"), (8,), (9,)),
        Step(Crop(0, ("x",), 4, (0,) * 4), (9,), (10,)),
    )
    types = (LOCAL, wide, *[LOCAL] * 6, low, low, LOCAL)
    device_program = StepPlan(MESH, (0,), steps, (7, 10), types)
    placed = place(MESH, (16, 3), (("x",), ()))
    return Plan(program, device_program, (placed,), (placed, placed), AlphaBeta())


@pytest.fixture(scope="module")
def plan():
    return window_plan()


def test_the_plan_computes_its_program(plan):
    assert plan.verify(seed=1).differences == {"numpy": 0.0, "jax": 0.0}


def test_figures_of_the_plan(plan):
    assert plan.collectives == {"collective-permute": 3}
    assert plan.wire_bytes == plan.serial_bytes == 3 * 12
    assert plan.peak_bytes == plan.memory.peak and peak_bytes(plan.device_program) > 0
    assert "halo-exchange dim 0: 1 from below, 1 from above" in str(plan)


def test_json(plan):
    back = Plan.from_json(plan.to_json())
    assert back == plan and str(back) == str(plan)
    assert back.device_program.steps == plan.device_program.steps


def test_a_box_in_a_small_part_of_a_shard_costs_that_part():
    row, column = (0, HOME, 5, 6), (1, Dim(("y",), 3), 3, 4)
    for box, shape in (((row,), (1, 3)), ((column,), (4, 1)), ((row, column), (1, 1))):
        select = BoxSelect(box)
        assert select.slab(MESH, LOCAL, LOCAL).shape == shape
        assert step_info(MESH, select, (LOCAL, LOCAL)).memory_bytes == 3 * LOCAL.with_shape(shape).bytes
        assert select.slab(MESH, LOCAL, TensorType((), "f32")) is None
    for start, stop in ((1, 9), (5, 5), (20, 30)):  # over half of a shard, nothing, outside
        assert BoxSelect(((0, HOME, start, stop),)).slab(MESH, LOCAL, LOCAL) is None
