"""Exchanges of several values at once: which are joined, what that costs, and that nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.emit.devices import run_on_xla
from tests.slowness import some

import eggshard as es
from eggshard.api import Plan
from eggshard.costmodel import AlphaBeta, Messages, WireBytes
from eggshard.costmodel.pricing import Pricer, step_info
from eggshard.hlo.collectives import count_collectives
from eggshard.placement.windows import slab_exchange
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType
from eggshard.report.tables import over, what
from eggshard.simulate.simulator import run
from eggshard.spmd.joining import joined
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import AllReduce, Local
from eggshard.steps.window_steps import HaloExchange, JointExchange

MESH = Mesh({"x": 4, "y": 2})
LOCAL = TensorType((4, 3), "f32")
FREE_MESSAGES = AlphaBeta(launch=0.0, latency=0.0)


class MemoryOnly:
    """A message costs a little less than the copies of small slabs."""

    def seconds(self, step):
        return 1e-9 * step.memory_bytes + 1e-8 * step.messages


# Whole programs.


def padded(u, offset, axis):
    n = u.shape[axis]
    wide = jnp.pad(u, [(1, 1) if a == axis else (0, 0) for a in range(u.ndim)])
    return lax.slice_in_dim(wide, 1 + offset, 1 + offset + n, axis=axis)


def rolled(u, offset, axis):
    return jnp.roll(u, -offset, axis)


def shallow_water(shifted, axes):
    """One step of velocities u, v and height h, each with neighbours along all the axes."""

    def step(u, v, h):
        def slope(f, axis):
            return 0.5 * (shifted(f, 1, axis) - shifted(f, -1, axis))

        along = list(zip((u, v), axes, strict=False))
        new_u, new_v = (f - 0.01 * sum(c * slope(f, a) for c, a in along) for f in (u, v))
        new_h = h - 0.01 * sum(c * slope(h, a) + h * slope(c, a) for c, a in along)
        return new_u - 0.1 * slope(h, 0), new_v - 0.1 * slope(h, axes[-1]), new_h

    return step


def lowered(function, mesh, *arrays, n=512):
    """A function of square fields, lowered: the arrays' element types, and where all fields lie."""
    devices = jax.make_mesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    placed = NamedSharding(devices, P(*mesh, *[None] * (2 - len(mesh))))
    fields = [jax.ShapeDtypeStruct((n, n), dtype, sharding=placed) for dtype in arrays]
    return jax.jit(function, out_shardings=(placed,) * len(jax.eval_shape(function, *fields))).lower(*fields)


def check_on_devices(plan):
    """The plan computes its program, and what XLA issues and sends is what the plan says."""
    assert set(plan.verify(seed=1).differences) == {"numpy", "jax"}
    rng, steps = np.random.default_rng(0), plan.device_program
    shards = [rng.random((plan.mesh.size, *steps.types[v].shape)).astype(np.float32) for v in steps.inputs]
    _, hlo = run_on_xla(steps, shards)
    count = count_collectives(hlo, plan.mesh.size)
    assert count.by_kind == plan.collectives
    assert (count.wire_bytes, count.busiest_device_bytes) == (plan.serial_bytes, plan.wire_bytes)


@pytest.mark.parametrize("shifted", [padded, rolled])
@pytest.mark.parametrize("mesh", some([{"x": 8}, {"x": 4, "y": 2}], 1), ids=str)
def test_three_fields_of_a_step_share_their_messages(shifted, mesh):
    axes = (0,) if len(mesh) == 1 else (0, 1)
    text = lowered(shallow_water(shifted, axes), mesh, *[np.float32] * 3)
    plan = es.optimize(text, cost_model=WireBytes())
    # Two ways along x; of the two devices along y each sends its only neighbour both sides' slabs, or one of them.
    assert plan.collectives == {"collective-permute": 2 if len(mesh) == 1 else 3}
    slabs = 2 * 512 if len(mesh) == 1 else 2 * 256 + (2 if shifted is rolled else 1) * 128
    assert plan.wire_bytes == pytest.approx(3 * 4 * slabs, rel=0.02)
    assert 0 <= plan.bound <= plan.cost.total and 0 <= plan.search_gap < 1
    assert plan.certificate.endswith("each conversion paid whole")
    check_on_devices(plan)


def test_what_the_model_prices_as_dear_together_stays_apart():
    text = lowered(shallow_water(rolled, (0,)), {"x": 8}, *[np.float32] * 3)
    plan = es.optimize(text, cost_model=FREE_MESSAGES)
    assert plan.collectives == {"collective-permute": 6}
    check_on_devices(plan)
    plan = es.optimize(text, cost_model=AlphaBeta(bandwidth=1e10))
    assert plan.collectives == {"collective-permute": 2}
    assert plan.cost.communication == pytest.approx(2 * 7.2e-6 + plan.wire_bytes / 1e10)
    back = Plan.from_json(plan.to_json())
    assert back == plan and back.cost == plan.cost


def test_fields_of_different_types_travel_alone():
    def both(u, v):
        return rolled(u, 1, 0), rolled(v, 1, 0)

    same, mixed = (
        es.optimize(lowered(both, {"x": 8}, np.float32, dtype), cost_model=WireBytes())
        for dtype in (np.float32, np.int32)
    )
    assert same.collectives == {"collective-permute": 1} and mixed.collectives == {"collective-permute": 2}
    assert same.wire_bytes == mixed.wire_bytes
    assert mixed.verify().differences == {"numpy": 0.0, "jax": 0.0}


@pytest.mark.parametrize(("repeat", "messages", "model"), some([
    ("unrolled", 2, WireBytes()), ("loop", 4, AlphaBeta()),
], 1, rows=True))
def test_steps_one_after_the_other(repeat, messages, model):
    """Wider windows for several steps, as one field would have, and all fields at once."""
    step = shallow_water(rolled, (0,))

    def steps(u, v, h):
        if repeat == "loop":
            return lax.fori_loop(0, 6, lambda _, fields: step(*fields), (u, v, h))
        for _ in range(2):
            u, v, h = step(u, v, h)
        return u, v, h

    plan = es.optimize(lowered(steps, {"x": 8}, *[np.float32] * 3), cost_model=model)
    assert all(len(action.exchanges) == 3 for action in exchanges(plan.device_program))
    assert plan.collectives == {"collective-permute": messages}
    assert plan.verify().differences.keys() == {"numpy", "jax"}


# Device programs by hand.


def halo(low, high, axes=("x",), dim=0, wrapped=True, n=16):
    """A halo around the tiles of a dimension."""
    count = MESH.count(axes)
    source = Dim(axes, n // count)
    target = source._replace(low=low, high=high, wrapped=(low, n + high) if wrapped else None)
    found = slab_exchange(n, count, source, target)
    return HaloExchange(dim, axes, target.size, found.offsets, found.rounds)


def local(body, name, *values):
    """An op on shards, its result of the first operand's type."""
    return body.emit(Local(name, Attributes(), (body.types[values[0]],)), values)[0]


def middle(body, value, first=0):
    """Four rows of a wider shard."""
    shape = body.types[value].shape
    attributes = Attributes(start_indices=(first, 0), limit_indices=(first + 4, shape[1]), strides=(1, 1))
    return body.emit(Local("slice", attributes, (LOCAL,)), (value,))[0]


def exchanges(plan):
    """The exchanges of a device program, those inside loops and branches too."""
    for step in plan.steps:
        match step.action:
            case Loop(condition=condition, body=body):
                yield from (*exchanges(condition), *exchanges(body))
            case Branch(branches=branches):
                for branch in branches:
                    yield from exchanges(branch)
            case HaloExchange() | JointExchange():
                yield step.action


def check(plan, model=None, seed=0):
    """The device program with exchanges joined; it computes the same, and costs no more."""
    price = Pricer(model or AlphaBeta(), MESH)
    out = joined(plan, price)
    rng = np.random.default_rng(seed)
    shards = [rng.integers(0, 9, (MESH.size, *plan.types[v].shape)).astype(np.float32) for v in plan.inputs]
    for got, want in zip(run(out, shards), run(plan, shards), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(out.total_received, plan.total_received)
    assert out.serial_bytes == plan.serial_bytes
    assert out is plan or (price.program(out) < price.program(plan) and out.messages < plan.messages)
    assert joined(out, price) is out
    return out


def test_exchanges_wait_for_each_other():
    """Each value's halo is used before the next value is there."""
    body = Assembler(MESH)
    fields = [body.input(LOCAL) for _ in range(3)]
    for _ in range(2):
        sums = []
        for field in fields:
            (wide,) = body.emit(halo(-1, 1), (field,), ("widened",), "field")
            sums.append(local(body, "add", middle(body, wide), middle(body, wide, 2)))
        fields = [local(body, "multiply", a, b) for a, b in zip(sums, (*sums[1:], sums[0]), strict=True)]
    plan = body.build(fields)
    out = check(plan)
    assert plan.messages == 12 and out.messages == 4
    first, second = (step for step in out.steps if isinstance(step.action, JointExchange))
    assert len(first.action.parts) == len(second.action.parts) == 3
    assert first.why == ("widened",) and first.label == "field"
    assert check(plan, WireBytes()).messages == check(plan, Messages()).messages == 4
    assert check(plan, FREE_MESSAGES) is plan and check(plan, MemoryOnly()) is plan


def test_dependent_exchanges_stay_apart():
    body = Assembler(MESH)
    u = body.input(LOCAL)
    (wide,) = body.emit(halo(-1, 1), (u,))
    (wider,) = body.emit(halo(-1, 1), (middle(body, wide),))
    plan = body.build([wider])
    assert check(plan) is plan


def test_corners_come_dimension_after_dimension():
    """Every field goes first along x, then along y; one that only goes along y waits for the others."""
    body = Assembler(MESH)
    fields = [body.input(TensorType((4, 8), "f32")) for _ in range(3)]
    outputs = []
    for i, field in enumerate(fields):
        wide = body.emit(halo(-1, 1), (field,))[0] if i else field
        outputs += body.emit(halo(-1, 1, ("y",), 1), (wide,))
    plan = body.build(outputs)
    out = check(plan)
    assert [(len(a.exchanges), a.axes) for a in exchanges(out)] == [(2, ("x",)), (3, ("y",))]
    assert (plan.messages, out.messages) == (7, 3)


def test_one_value_may_lead_two_ways():
    """Slabs from below and from above go with an exchange of both, whichever comes first."""
    body = Assembler(MESH)
    values = [body.input(LOCAL) for _ in range(3)]
    windows = [(-1, 0), (0, 1), (-2, 1)]
    plan = body.build([body.emit(halo(*w), (v,))[0] for w, v in zip(windows, values, strict=True)])
    out = check(plan)
    (action,) = exchanges(out)
    assert (plan.messages, out.messages) == (4, 2)
    assert what(action) == "halo-exchange dim 0: 1 from below; dim 0: 1 from above; dim 0: 2 from below, 1 from above"
    assert over(action) == "x"


def test_slabs_between_other_pairs_travel_alone():
    body = Assembler(MESH)
    values = [body.input(LOCAL) for _ in range(2)]
    actions = halo(-1, 0), halo(-1, 0, wrapped=False)
    plan = body.build([body.emit(a, (v,))[0] for a, v in zip(actions, values, strict=True)])
    assert check(plan) is plan


def test_figures_of_a_joint_exchange():
    types = (LOCAL, TensorType((4, 5), "f32"))
    parts = halo(-1, 1), halo(-2, 0)
    action = JointExchange(parts)
    assert action.messages == 2 and action.collectives == {"collective-permute": 2} and action.hops == 2
    alone = [part.received(MESH, (t,)) for part, t in zip(parts, types, strict=True)]
    np.testing.assert_array_equal(action.received(MESH, types), sum(alone))
    assert action.serial_bytes(MESH, types) == 4 * (2 * 3 + 2 * 5)
    info = step_info(MESH, action, types)
    assert (info.kind, info.messages, info.wire_bytes) == ("halo-exchange", 2, 64)
    packed = 4 * (3 + 2 * 5)  # from below; the slab from above is alone
    assert info.memory_bytes == 4 * (12 + 18 + 20 + 30) + 4 * packed
    assert step_info(MESH, parts[0], types[:1]).memory_bytes == 4 * (12 + 18)
    assert what(JointExchange((parts[0],) * 2)) == "halo-exchange dim 0: 1 from below, 1 from above (2 values)"


def test_effects_keep_their_order():
    """What the second exchange needs is computed before the first one's result is used, but not its effects."""
    body = Assembler(MESH)
    u, v = (body.input(LOCAL) for _ in range(2))

    first = middle(body, body.emit(halo(-1, 1), (u,))[0])
    local(body, "rng", first)
    before = local(body, "negate", v)
    second = middle(body, body.emit(halo(-1, 1), (before,))[0])
    third = middle(body, body.emit(halo(-1, 1), (local(body, "rng", second),))[0])
    plan = body.build([first, third])
    out = joined(plan, Pricer(AlphaBeta(), MESH))
    assert (plan.messages, out.messages) == (6, 4)
    names = [getattr(step.action, "name", "exchange") for step in out.steps]
    assert names == ["negate", "exchange", "slice", "rng", "slice", "rng", "exchange", "slice"]
    assert [s.operands for s in out.steps if s.action.has_effects] == [out.steps[2].results, out.steps[4].results]


def inner():
    """A device program that widens each value and adds up what it holds."""
    body = Assembler(MESH)
    fields = [body.input(LOCAL) for _ in range(2)]
    return body, [middle(body, body.emit(halo(-1, 1), (f,))[0], 2) for f in fields]


def test_inside_loops_and_branches():
    body, fields = inner()
    counter = body.input(TensorType((), "i1"))
    step = body.build([*fields, local(body, "not", counter)])
    ahead = Assembler(MESH)
    carried = [ahead.input(t) for t in (LOCAL, LOCAL, TensorType((), "i1"))]
    condition = ahead.build([carried[2]])
    branch, results = inner()
    branches = (branch.build(results), branch.build([0, 1]))
    whole = Assembler(MESH)
    u, v, flag = (whole.input(t) for t in (LOCAL, LOCAL, TensorType((), "i1")))
    u, v, _ = whole.emit(Loop(condition, step, 1), (u, v, flag))
    plan = whole.build(whole.emit(Branch(branches, True), (flag, u, v)))
    out = joined(plan, Pricer(AlphaBeta(), MESH))
    assert (plan.messages, out.messages) == (8, 4)
    assert out.total_received.tolist() == plan.total_received.tolist()
    rng = np.random.default_rng(0)
    shards = [rng.random((8, 4, 3)).astype(np.float32) for _ in range(2)] + [np.ones(8, bool)]
    for a, b in zip(run(out, shards), run(plan, shards), strict=True):
        np.testing.assert_array_equal(a, b)
    assert joined(out, Pricer(AlphaBeta(), MESH)) is out
    assert joined(plan, Pricer(FREE_MESSAGES, MESH)) is plan


@pytest.mark.parametrize("seed", range(40))
def test_random_device_programs(seed):
    rng = np.random.default_rng(seed)
    body = Assembler(MESH)
    values = [body.input(LOCAL) for _ in range(rng.integers(1, 4))]
    for _ in range(rng.integers(4, 25)):
        value = values[rng.integers(len(values))]
        match rng.integers(4):
            case 0:
                values.append(local(body, "add", value, values[rng.integers(len(values))]))
            case 1:
                values += body.emit(AllReduce(("y",), "add"), (value,))
            case _:
                axes = [("x",), ("x",), ("x", "y"), ("y", "x")][rng.integers(4)]
                low, high = [(-1, 0), (0, 1), (-1, 1), (-2, 1)][rng.integers(4)]
                n = 4 * MESH.count(axes)
                (wide,) = body.emit(halo(low, high, axes, wrapped=bool(rng.random() < 0.8), n=n), (value,))
                values.append(middle(body, wide, int(rng.integers(0, high - low + 1))))
    outputs = [int(v) for v in rng.choice(values, 3)]
    plan = body.build(outputs)
    for model in (AlphaBeta(), WireBytes(), AlphaBeta.preset("tpu-v5e"), FREE_MESSAGES):
        check(plan, model, seed)
