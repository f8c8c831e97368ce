"""Steps on windows: the simulator against slices of the whole array, and XLA on 8 CPU devices against the simulator."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from tests.emit.devices import plan_of, run_on_xla, stacked
from tests.emit.windows import (
    DTYPES,
    poisoned_shards,
    random_array,
    random_box,
    random_exchange,
    random_fill,
    shards_of,
    specified,
    step_between,
)
from tests.slowness import some

from eggshard.emit.stablehlo import at_grid_positions, module_text
from eggshard.errors import LoweringError, VerificationError
from eggshard.hlo.collectives import count_collectives
from eggshard.placement.slabs import Slab
from eggshard.placement.windows import covers
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.simulator import gather_from_devices, perform, run, scatter_to_devices
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Local, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange

LINE = Mesh({"x": 8})
PERMUTED = Mesh({"x": 4, "y": 2}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))
F32 = np.dtype(np.float32)


def on_xla(mesh, shards, *actions):
    """(result, compiled text) of actions on one shard, after the bytes counted in the text are checked."""
    plan = plan_of(mesh, [TensorType(shards.shape[1:], mlir_dtype(shards.dtype))], *actions)
    (got,), hlo = run_on_xla(plan, [shards])
    count = count_collectives(hlo, mesh.size)
    assert sum(count.by_kind.values()) == plan.messages
    assert count.by_kind == plan.collectives
    # XLA:CPU sends bfloat16 as float32.
    factor = 2 if shards.dtype == ml_dtypes.bfloat16 else 1
    assert count.wire_bytes == factor * plan.serial_bytes
    assert count.busiest_device_bytes == factor * plan.total_received.max()
    return got.reshape(mesh.size, *plan.types[plan.outputs[0]].shape), hlo


# From window to window.


@pytest.mark.parametrize("block", range(8))
def test_every_device_gets_its_window(block):
    steps = {Crop: 0, HaloExchange: 0}
    for seed in range(40 * block, 40 * (block + 1)):
        rng = np.random.default_rng(seed)
        if (case := random_exchange(rng)) is None:
            continue
        mesh, shape, source, target, action = case
        array = random_array(rng, shape, F32)
        (out,) = perform(mesh, action, (poisoned_shards(mesh, array, source),))
        want, needed = shards_of(mesh, array, target)
        np.testing.assert_array_equal(out[needed], want[needed], err_msg=f"{seed}: {source} -> {target}")
        assert out.shape[1:] == target.local_shape
        steps[type(action)] += 1
    assert min(steps.values()) >= 5


@pytest.mark.parametrize("seed", some(range(40), 8))
def test_exchange_on_xla(seed):
    rng = np.random.default_rng(1000 + seed)
    while (case := random_exchange(rng)) is None:
        pass
    mesh, shape, source, target, action = case
    array = random_array(rng, shape, DTYPES[seed % len(DTYPES)])
    shards, _ = shards_of(mesh, array, source)
    (want,) = perform(mesh, action, (shards,))
    got, _ = on_xla(mesh, shards, action)
    known = specified(mesh, [action], source, shape)
    np.testing.assert_array_equal(got[known], want[known])
    assert (~shards_of(mesh, array, target)[1] | known).all(), "the step leaves out what the target needs"


@pytest.mark.parametrize("wrapped", [None, (-2, 33)])
def test_a_halo_is_one_concatenation_of_two_permutes(wrapped):
    source, target = Dim(("x",), 4), Dim(("x",), 4, -2, 1, wrapped)
    action = step_between(LINE, 32, 0, source, target)
    plan = plan_of(LINE, [TensorType((4, 3), "f32")], action)
    text = module_text(plan, *stacked(plan, plan.inputs), *stacked(plan, plan.outputs))
    ops = [line.split('"')[1] for line in text.splitlines() if "= \"stablehlo." in line]
    assert sorted(ops) == ["stablehlo." + op for op in (
        "collective_permute", "collective_permute", "concatenate", "slice", "slice")]
    assert plan.serial_bytes == 3 * 12


def test_nan_passes_unchanged():
    rng = np.random.default_rng(0)
    array = np.where(rng.random((21, 2)) < 0.5, np.nan, rng.random((21, 2))).astype(F32)
    target = Dim(("x", "y"), 3, -4, 4)
    source = Placement((Dim(("x", "y"), 3), Dim((), 2)))
    action = step_between(PERMUTED, 21, 0, source.dims[0], target)
    got, _ = on_xla(PERMUTED, shards_of(PERMUTED, array, source)[0], action)
    want, needed = shards_of(PERMUTED, array, Placement((target, Dim((), 2))))
    np.testing.assert_array_equal(got[needed], want[needed])


def test_corners_come_with_the_second_dimension():
    mesh = Mesh({"x": 2, "y": 4}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))
    array = np.arange(6 * 19, dtype=F32).reshape(6, 19)
    source = place(mesh, array.shape, (("x",), ("y",)))
    wide = Placement((Dim(("x",), 3, -1, 1, (-1, 13)), Dim(("y",), source.dims[1].tile, -2, 1)))
    actions = [step_between(mesh, n, d, source.dims[d], wide.dims[d]) for d, n in enumerate(array.shape)]
    got, _ = on_xla(mesh, shards_of(mesh, array, source)[0], *actions)
    want, needed = shards_of(mesh, array, wide)
    np.testing.assert_array_equal(got[needed], want[needed])


def test_a_halo_within_a_loop():
    i1, i32, tile, wide = TensorType((), "i1"), TensorType((), "i32"), TensorType((4,), "f32"), TensorType((6,), "f32")
    limit = Local("constant", Attributes(value=Literal(np.array(3, np.int32))), (i32,))
    one = Local("constant", Attributes(value=Literal(np.array(1, np.int32))), (i32,))
    less = Local("compare", Attributes(comparison_direction="LT", compare_type="SIGNED"), (i1,))
    steps = (Step(limit, (), (2,)), Step(less, (1, 2), (3,)))
    condition = StepPlan(PERMUTED, (0, 1), steps, (3,), (tile, i32, i32, i1))
    source, target = Dim(("y", "x"), 4), Dim(("y", "x"), 4, -1, 1)
    steps = (
        Step(step_between(PERMUTED, 29, 0, source, target), (0,), (2,)),
        Step(EdgeFill(0, target, 29, "edge"), (2,), (3,)),
        Step(step_between(PERMUTED, 29, 0, target, target._replace(high=-1)), (3,), (4,)),
        Step(one, (), (5,)),
        Step(Local("add", Attributes(), (i32,)), (1, 5), (6,)),
    )
    body = StepPlan(PERMUTED, (0, 1), steps, (4, 6), (tile, i32, wide, wide, tile, i32, i32))
    zero = Local("constant", Attributes(value=Literal(np.array(0, np.int32))), (i32,))
    steps = (Step(zero, (), (1,)), Step(Loop(condition, body, 3), (0, 1), (2, 3)))
    plan = StepPlan(PERMUTED, (0,), steps, (2,), (tile, i32, tile, i32))
    array = np.arange(29, dtype=F32)
    shards = poisoned_shards(PERMUTED, array, Placement((source,)))
    (got,), hlo = run_on_xla(plan, [shards])
    (out,) = run(plan, [shards])
    want, inside = shards_of(PERMUTED, np.concatenate([[0, 0, 0], array[:-3]]), Placement((source,)))
    for result in (got.reshape(8, 4), out):
        np.testing.assert_array_equal(result[inside], want[inside])
    assert count_collectives(hlo, 8).by_kind == plan.collectives == {"collective-permute": 6}


def test_a_crop_leaves_poison_where_it_has_nothing():
    array = np.arange(16, dtype=F32)
    source, wide = Dim(("x",), 2), Dim(("x",), 2, -1, 1)
    shards = scatter_to_devices(LINE, array, Placement((source,)))
    (out,) = perform(LINE, Crop(0, ("x",), wide.size, (1,) * 8), (shards,))
    assert np.isnan(out[:, [0, 3]]).all() and (out[:, 1:3] == shards).all()
    narrow = Dim(("x",), 2, 1, 0)
    (out,) = perform(LINE, step_between(LINE, 16, 0, source, narrow), (shards,))
    np.testing.assert_array_equal(out, shards[:, 1:])


def test_a_round_to_oneself_is_no_message():
    action = HaloExchange(0, ("x",), 6, (1,) * 8, (Slab(tuple((i, i) for i in range(8)), 1, (3,) * 8, (0,) * 8),))
    shards = np.arange(32, dtype=F32).reshape(8, 4)
    got, hlo = on_xla(LINE, shards, action)
    assert "collective-permute" not in hlo
    np.testing.assert_array_equal(got[:, :5], np.concatenate([shards[:, 3:], shards], axis=1))


def test_slabs_outside_their_shards_are_refused():
    action = HaloExchange(0, ("x",), 5, (0,) * 8, (Slab(((0, 1),), 2, (3,) * 8, (3,) * 8),))
    with pytest.raises(LoweringError, match="outside its shards"):
        perform(LINE, action, (np.zeros((8, 4), F32),))


# Boxes.


@pytest.mark.parametrize("seed", range(60))
def test_box(seed):
    rng = np.random.default_rng(seed)
    mesh, shape, placement, action = random_box(rng)
    inside, outside = (rng.random((mesh.size, *placement.local_shape)).astype(F32) for _ in range(2))
    (out,) = perform(mesh, action, (inside, outside))
    within = np.ones(inside.shape, bool)
    for device in range(mesh.size):
        for index in itertools.product(*map(range, placement.local_shape)):
            for dim, window, start, stop in action.box:
                place_of = mesh.index(window.axes)[device] * window.tile + window.low + index[dim]
                within[device][index] &= start <= place_of < stop
    np.testing.assert_array_equal(out, np.where(within, inside, outside))
    scalar = rng.random(mesh.size).astype(F32)
    (out,) = perform(mesh, action, (inside, scalar))
    np.testing.assert_array_equal(out, np.where(within, inside, scalar.reshape(-1, *(1,) * len(shape))))


@pytest.mark.parametrize("seed", range(15))
def test_box_on_xla(seed):
    rng = np.random.default_rng(100 + seed)
    mesh, shape, placement, action = random_box(rng)
    dtype = DTYPES[seed % len(DTYPES)]
    shards = [random_array(rng, (mesh.size, *placement.local_shape), dtype) for _ in range(2)]
    plan = plan_of(mesh, [TensorType(placement.local_shape, mlir_dtype(np.dtype(dtype)))] * 2, action)
    (got,), _ = run_on_xla(plan, shards)
    (want,) = run(plan, shards)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_a_scalar_outside_the_box_on_xla():
    type_, scalar = TensorType((4, 3), "f32"), TensorType((), "f32")
    fill = Local("constant", Attributes(value=Literal(np.array(7, F32))), (scalar,))
    select = BoxSelect(((0, Dim(("x", "y"), 3, 0, 1), 2, 20),))
    steps = (Step(fill, (), (1,)), Step(select, (0, 1), (2,)))
    plan = StepPlan(PERMUTED, (0,), steps, (2,), (type_, scalar, type_))
    shards = [np.arange(96, dtype=F32).reshape(8, 4, 3)]
    (got,), _ = run_on_xla(plan, shards)
    (want,) = run(plan, shards)
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    assert (want == 7).any()


def test_comparisons_that_hold_everywhere_are_left_out():
    def count(start, stop):
        plan = plan_of(LINE, [TensorType((4,), "f32")] * 2, BoxSelect(((0, Dim(("x",), 4), start, stop),)))
        text = module_text(plan, *stacked(plan, plan.inputs), *stacked(plan, plan.outputs))
        return text.count("stablehlo.compare"), text.count("stablehlo.select")

    assert count(0, 32) == count(-1, 40) == count(7, 7) == (0, 0)
    assert count(1, 32) == count(0, 31) == (1, 1)
    assert count(1, 31) == (2, 2)  # a strip at either end
    assert count(2, 30) == (2, 1)  # strips would be all of the shard


def test_wrapped_windows_have_no_boxes_and_no_edges():
    wrapped = Dim(("x",), 4, -1, 1, (-1, 33))
    with pytest.raises(LoweringError, match="no range of the wrapped window"):
        BoxSelect(((0, wrapped, 0, 5),))
    with pytest.raises(LoweringError, match="wrapped"):
        EdgeFill(0, wrapped, 32, "edge")
    with pytest.raises(LoweringError, match="mode 'wrap'"):
        EdgeFill(0, Dim(("x",), 4, -1, 1), 32, "wrap")


# Edges.


@pytest.mark.parametrize("block", range(4))
def test_edges_are_what_numpy_pads(block):
    filled = 0
    for seed in range(30 * block, 30 * (block + 1)):
        rng = np.random.default_rng(seed)
        mesh, shape, placement, action, width = random_fill(rng)
        array = random_array(rng, shape, F32)
        shards = poisoned_shards(mesh, array, placement)
        (out,) = perform(mesh, action, (shards,))
        # The window of the padded array, whose index 0 is index -width of the array.
        padded = np.pad(array, [(width, width) if d == action.dim else (0, 0) for d in range(array.ndim)], action.mode)
        dims = list(placement.dims)
        window = action.window
        dims[action.dim] = window._replace(low=window.low + width, high=window.high + width)
        want, inside = shards_of(mesh, padded, Placement(tuple(dims)))
        known = ~np.isnan(out)
        assert (known <= inside).all()
        np.testing.assert_array_equal(out[known], want[known])
        # Unspecified is only what the shard has no elements for.
        for device in range(mesh.size):
            start = mesh.index(window.axes)[device] * window.tile + window.low
            local = np.moveaxis(known[device], action.dim, 0)
            for i in range(window.size):
                j, n, again = start + i, action.size, action.mode == "symmetric"
                source = j if 0 <= j < n else -j - again if j < 0 else 2 * (n - 1) - j + again
                source = np.clip(j, 0, n - 1) if action.mode == "edge" else source
                held = 0 <= source < action.size and 0 <= source - start < window.size
                assert local[i].all() == held and local[i].any() == held
        filled += int((known & np.isnan(shards)).any())
    assert filled >= 10


@pytest.mark.parametrize("seed", some(range(20), 8))
def test_edges_on_xla(seed):
    rng = np.random.default_rng(200 + seed)
    mesh, shape, placement, action, _ = random_fill(rng)
    array = random_array(rng, shape, DTYPES[seed % len(DTYPES)])
    shards, _ = shards_of(mesh, array, placement)
    (want,) = perform(mesh, action, (shards,))
    got, _ = on_xla(mesh, shards, action)
    known = specified(mesh, [action], placement, shape)
    np.testing.assert_array_equal(got[known], want[known])


def test_several_devices_reach_outside():
    window = Dim(("x",), 2, -3, 3)
    array = np.arange(1, 17, dtype=F32)
    for mode in ("edge", "reflect", "symmetric"):
        action = EdgeFill(0, window, 16, mode)
        shards = poisoned_shards(LINE, array, Placement((window,)))
        want = np.pad(array, 3, mode)
        got, _ = on_xla(LINE, np.nan_to_num(shards), action)
        (out,) = perform(LINE, action, (shards,))
        for device in (0, 1, 6, 7):
            np.testing.assert_array_equal(got[device], want[2 * device : 2 * device + 8])
            np.testing.assert_array_equal(out[device], want[2 * device : 2 * device + 8])


# Order of devices, arrays in and out.


@pytest.mark.parametrize("seed", range(20))
def test_devices_numbered_by_grid_position(seed):
    rng = np.random.default_rng(300 + seed)
    while (case := random_exchange(rng)) is None or case[0].device_ids is None:
        pass
    mesh, shape, source, target, action = case
    d = next((i for i, dim in enumerate(target.dims) if dim == target.dims[action.dim]), 0)
    after = [BoxSelect(((d, target.dims[d], 1, shape[d]),))] if not target.dims[d].wrapped else []
    if not target.dims[d].wrapped:
        after.append(EdgeFill(d, target.dims[d], shape[d], "edge"))
    steps, value = [Step(action, (0,), (1,))], 1
    local = TensorType(target.local_shape, "f32")
    for each in after:
        steps.append(Step(each, (value, 1) if isinstance(each, BoxSelect) else (value,), (value + 1,)))
        value += 1
    plan = StepPlan(mesh, (0,), tuple(steps), (value,), (TensorType(source.local_shape, "f32"), *[local] * value))
    shards = poisoned_shards(mesh, random_array(rng, shape, F32), source)
    order = list(mesh.device_ids)
    (want,) = run(plan, [shards])
    (got,) = run(at_grid_positions(plan), [shards[order]])
    np.testing.assert_array_equal(got, want[order])


@pytest.mark.parametrize("seed", range(40))
def test_windows_of_an_array_and_back(seed):
    rng = np.random.default_rng(seed)
    while (case := random_exchange(rng)) is None:
        pass
    mesh, shape, _, placement, _ = case
    array = random_array(rng, shape, F32)
    shards = scatter_to_devices(mesh, array, placement)
    np.testing.assert_array_equal(shards, poisoned_shards(mesh, array, placement))
    if all(covers(n, mesh.count(d.axes), d) for n, d in zip(shape, placement.dims, strict=True)):
        np.testing.assert_array_equal(gather_from_devices(mesh, shards, shape, placement), array)
    else:
        with pytest.raises(LoweringError, match="no device holds index"):
            gather_from_devices(mesh, shards, shape, placement)


def test_neighbours_that_disagree_are_found_out():
    placement = Placement((Dim(("x",), 2, -1, 1, (-1, 17)),))
    shards = scatter_to_devices(LINE, np.arange(16.0), placement)
    shards[7, 3] = 5  # index 16, which is 0
    with pytest.raises(VerificationError, match=r"disagree at index \(0,\): 0.0 and 5.0 \(seen from device 7\)"):
        gather_from_devices(LINE, shards, (16,), placement)


def test_partial_sums_in_windows():
    mesh = Mesh({"x": 4, "y": 2})
    placement = Placement((Dim(("x",), 2, -1, 0),), ("y",), "add")
    array = np.arange(1.0, 8.0)
    shards = scatter_to_devices(mesh, array, placement)
    np.testing.assert_array_equal(gather_from_devices(mesh, shards, (7,), placement), array)


def test_a_module_does_not_begin_or_end_with_windows():
    window = Placement((Dim(("x",), 4, -1, 1),))
    plan = plan_of(LINE, [TensorType((6,), "f32")], Crop(0, ("x",), 4, (-1,) * 8))
    even, type_ = place(LINE, (32,), (("x",),)), TensorType((32,), "f32")
    with pytest.raises(LoweringError, match="input 0 .* is a window"):
        module_text(plan, [type_], [window], [type_], [even])
