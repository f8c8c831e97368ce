"""The device simulator: every action against its definition, element by element, and the checks it makes."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from eggshard.errors import LoweringError, VerificationError
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, held, place, replicated
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.simulate.device_arrays import poison
from eggshard.simulate.simulator import gather_from_devices, perform, run, scatter_to_devices
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
    Step,
    StepPlan,
)

GRID = Mesh({"x": 2, "y": 3}, device_ids=(4, 1, 0, 5, 2, 3))
CUBE = Mesh({"x": 2, "y": 2, "z": 2})


def values(mesh, *shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(0, 100, (mesh.size, *shape)).astype(dtype)


def plan(mesh, types, steps, outputs):
    count = min(v for s in steps for v in s.results)
    return StepPlan(mesh, tuple(range(count)), tuple(steps), tuple(outputs), tuple(types))


def test_slice_keeps_the_part_at_the_devices_position():
    array = values(GRID, 6, 4)
    (out,) = perform(GRID, Slice(((0, ("y",)), (1, ("x",)))), (array,))
    for d in range(6):
        x, y = GRID.coordinates["x"][d], GRID.coordinates["y"][d]
        np.testing.assert_array_equal(out[d], array[d, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2])
    with pytest.raises(LoweringError, match="does not split into 3"):
        perform(GRID, Slice(((1, ("y",)),)), (array,))


def test_all_gather_concatenates_in_group_order():
    array = values(GRID, 2, 1)
    (out,) = perform(GRID, AllGather(((0, ("y", "x")),)), (array,))
    for d, group in ((d, g) for g in GRID.groups(("y", "x")) for d in g):
        np.testing.assert_array_equal(out[d], np.concatenate(array[group]))
    (out,) = perform(GRID, AllGather(((0, ("y",)), (1, ("x",)))), (array,))
    for d in range(6):
        np.testing.assert_array_equal(out[d], np.block([[array[GRID.grid[x, y]] for x in range(2)] for y in range(3)]))


def test_all_to_all_sends_each_device_its_part():
    array = values(CUBE, 2, 8, 3)
    action = AllToAll(((0, ("z", "x")), (2, ("y",))), ((1, ("x", "y", "z")),))
    (out,) = perform(CUBE, action, (array,))
    assert out.shape[1:] == action.result(CUBE, (TensorType((2, 8, 3), "f32"),))[0].shape
    for target, source in itertools.product(range(8), range(8)):
        x, y, z = (CUBE.coordinates[a][source] for a in "xyz")
        part = CUBE.index(("x", "y", "z"))[target]
        row = 2 * (2 * z + x)
        got = out[target, row : row + 2, :, 3 * y : 3 * y + 3]
        np.testing.assert_array_equal(got, array[source, :, part : part + 1, :])


def test_permute_gives_zeros_to_devices_without_a_sender():
    array = values(GRID, 2) + 1
    (out,) = perform(GRID, CollectivePermute(((0, 1), (1, 0), (3, 3))), (array,))
    zero = np.zeros_like(array[0])
    np.testing.assert_array_equal(out, np.stack([array[1], array[0], zero, array[3], zero, zero]))
    with pytest.raises(LoweringError, match="twice"):
        perform(GRID, CollectivePermute(((0, 1), (0, 2))), (array,))


def test_exchange_puts_pieces_where_they_belong():
    mesh = Mesh({"x": 2})
    array = values(mesh, 4)
    swap = Round(((0, 1), (1, 0)), ((2,), (0,)), ((1,), (0,)))
    keep = Round(((0, 0),), ((0,), (0,)), ((2,), (0,)))
    (out,) = perform(mesh, Exchange((1,), (3,), (swap,), (keep,), ("x",)), (array,))
    np.testing.assert_array_equal(out[0], [np.nan, array[1, 0], array[0, 0]])
    np.testing.assert_array_equal(out[1], [array[0, 2], np.nan, np.nan])


@pytest.mark.parametrize(
    ("monoid", "dtype"), [(m, t) for t in ("f32", "i32", "ui8", "i1") for m in monoids.of_dtype(t)]
)
def test_reductions_combine_the_group(monoid, dtype):
    array = (values(GRID, 4) % (2 if dtype == "i1" else 3)).astype(numpy_dtype(dtype))
    combine = monoids.monoid(monoid).ufunc
    (out,) = perform(GRID, AllReduce(("y",), monoid), (array,))
    (scattered,) = perform(CUBE, ReduceScatter(((0, ("z", "x")),), monoid), (array[[0, 1, 2, 3, 4, 5, 0, 1]],))
    for group in GRID.groups(("y",)):
        for d in group:
            np.testing.assert_array_equal(out[d], combine.reduce(array[group]).astype(array.dtype))
    eight = array[[0, 1, 2, 3, 4, 5, 0, 1]]
    for group in CUBE.groups(("z", "x")):
        whole = combine.reduce(eight[group]).astype(array.dtype)
        for i, d in enumerate(group):
            np.testing.assert_array_equal(scattered[d], whole[i : i + 1])


def test_bfloat16_sums_are_rounded_once():
    mesh = Mesh({"x": 4})
    array = np.array([[256.0], [1.0], [1.0], [1.0]]).astype(ml_dtypes.bfloat16)
    (out,) = perform(mesh, AllReduce(("x",), "add"), (array,))
    # In bfloat16 256 + 1 is 256 again, thrice; 259 rounds to 260.
    assert out.dtype == ml_dtypes.bfloat16 and (out == 260).all()


@pytest.mark.parametrize(
    ("monoid", "dtype"), [(m, t) for t in ("f32", "bf16", "i8", "i1") for m in monoids.of_dtype(t)]
)
def test_keep_first_is_undone_by_the_reduction(monoid, dtype):
    array = np.broadcast_to((np.arange(4) % 2).astype(numpy_dtype(dtype)), (6, 4))
    (partial_sums,) = perform(GRID, KeepFirst(("x", "y"), monoid), (array,))
    (back,) = perform(GRID, AllReduce(("x", "y"), monoid), (partial_sums,))
    np.testing.assert_array_equal(back, array)
    assert not (partial_sums == array).all()


def test_mask_overwrites_what_lies_past_the_end():
    placement = place(GRID, (10, 7), (("y",), ("x",)))
    array = np.arange(1, 71, dtype=np.int32).reshape(10, 7)
    shards = scatter_to_devices(GRID, array, placement)
    for dim, size in enumerate(array.shape):
        (shards,) = perform(GRID, Mask(dim, placement.dims[dim].axes, size, "mul"), (shards,))
    boxes = held(GRID, (10, 7), placement)
    for d in range(6):
        inside = tuple(slice(0, high - low) for low, high in boxes[d])
        outside = np.ones(shards[d].shape, bool)
        outside[inside] = False
        assert (shards[d][outside] == 1).all()
        np.testing.assert_array_equal(shards[d][inside], array[tuple(slice(low, high) for low, high in boxes[d])])


def test_resize_pads_with_poison():
    (out,) = perform(GRID, Resize((3, 1)), (values(GRID, 2, 2),))
    assert out.shape == (6, 3, 1) and np.isnan(out[:, 2]).all() and not np.isnan(out[:, :2]).any()


def test_poison_of_every_type():
    for dtype in ("f64", "bf16", "f8E4M3FN", "complex<f32>"):
        assert poison(numpy_dtype(dtype)) != poison(numpy_dtype(dtype))
    assert poison(numpy_dtype("i32")) == 0x55555555 and poison(numpy_dtype("ui8")) == 0xAB
    assert poison(numpy_dtype("i1")) and poison(numpy_dtype("i4")) == 5


def test_local_ops_run_once_where_all_devices_hold_the_same():
    type_ = TensorType((4,), "f32")
    step = Step(Local("add", Attributes(), (type_,)), (0, 1), (2,))
    whole = np.arange(4, dtype=np.float32)
    same = scatter_to_devices(GRID, whole, replicated((4,)))
    (out,) = run(plan(GRID, [type_] * 3, [step], [2]), [same, same])
    assert out.shape == (6, 4) and out.strides[0] == 0 and (out[5] == 2 * whole).all()
    different = values(GRID, 4)
    (out,) = run(plan(GRID, [type_] * 3, [step], [2]), [same, different])
    np.testing.assert_array_equal(out, different + whole)


@pytest.mark.parametrize("axes", [((), ()), (("y",), ("x",)), (("x", "y"), ()), ((), ("y", "x"))])
def test_scatter_and_gather_are_inverse(axes):
    array = np.arange(70, dtype=np.float64).reshape(10, 7)
    placement = place(GRID, (10, 7), axes)
    shards = scatter_to_devices(GRID, array, placement)
    boxes = held(GRID, (10, 7), placement)
    for d in range(6):
        want = array[tuple(slice(low, high) for low, high in boxes[d])]
        np.testing.assert_array_equal(shards[d][tuple(slice(0, n) for n in want.shape)], want)
        assert np.isnan(shards[d]).sum() == shards[d].size - want.size
    np.testing.assert_array_equal(gather_from_devices(GRID, shards, (10, 7), placement), array)


def test_gather_combines_partial_sums():
    placement = place(CUBE, (4,), (("z",),), ("x", "y"), "max")
    array = -np.arange(1, 5, dtype=np.int16)
    shards = scatter_to_devices(CUBE, array, placement)
    assert (shards == np.iinfo(np.int16).min).sum() == 12
    np.testing.assert_array_equal(gather_from_devices(CUBE, shards, (4,), placement), array)


def test_gather_refuses_replicas_that_disagree():
    placement = place(CUBE, (4,), (("z",),))
    shards = scatter_to_devices(CUBE, np.array([1.0, np.nan, 0.0, 4.0]), placement).copy()
    np.testing.assert_array_equal(gather_from_devices(CUBE, shards, (4,), placement), [1.0, np.nan, 0.0, 4.0])
    shards[1, 0] = -0.0
    with pytest.raises(VerificationError, match=r"disagree at index \(2,\)"):
        gather_from_devices(CUBE, shards, (4,), placement)
    with pytest.raises(LoweringError, match="a device"):
        gather_from_devices(CUBE, shards[:, :1], (4,), placement)


def test_loops_and_branches_agree_on_all_devices_where_they_communicate():
    scalar, flag = TensorType((), "i32"), TensorType((), "i1")
    double = Step(Local("add", Attributes(), (scalar,)), (0, 0), (1,))
    body = StepPlan(CUBE, (0,), (double,), (1,), (scalar, scalar))
    below = StepPlan(
        CUBE, (0,),
        (
            Step(AllReduce(("x", "y", "z"), "max"), (0,), (1,)),
            Step(Local("constant", Attributes(value=_literal(100)), (scalar,)), (), (2,)),
            Step(Local("compare", Attributes(comparison_direction="LT"), (flag,)), (1, 2), (3,)),
        ),
        (3,), (scalar, scalar, scalar, flag),
    )
    start = np.arange(1, 9, dtype=np.int32)
    (out,) = perform(CUBE, Loop(below, body), (start,))
    np.testing.assert_array_equal(out, start * 16)
    alone = StepPlan(CUBE, (0,), (below.steps[1], Step(below.steps[2].action, (0, 2), (3,))), (3,), below.types)
    (out,) = perform(CUBE, Loop(alone, body), (start * 10,))
    np.testing.assert_array_equal(out, [160, 160, 120, 160, 100, 120, 140, 160])
    combined = Step(AllReduce(("x", "y", "z"), "max"), (1,), (2,))
    talking = StepPlan(CUBE, (0,), (double, combined), (2,), (scalar, scalar, scalar))
    with pytest.raises(VerificationError, match="differs between devices"):
        perform(CUBE, Loop(alone, talking), (start * 20,))
    same = StepPlan(CUBE, (0,), (), (0,), (scalar,))
    for selector, predicate, doubled in [(0, False, True), (1, False, False), (9, False, False), (-1, False, False)]:
        (out,) = perform(CUBE, Branch((body, same), predicate), (np.full(8, selector, np.int32), start))
        np.testing.assert_array_equal(out, start * (2 if doubled else 1))
    for truth in (True, False):
        (out,) = perform(CUBE, Branch((body, same), True), (np.full(8, truth), start))
        np.testing.assert_array_equal(out, start * (2 if truth else 1))
    selector = np.arange(8, dtype=np.int32) % 2
    (out,) = perform(CUBE, Branch((body, same), False), (selector, start))
    np.testing.assert_array_equal(out, np.where(selector, start, start * 2))
    with pytest.raises(VerificationError, match="differs between devices"):
        perform(CUBE, Branch((talking, same), False), (selector, start))


def _literal(value):
    from eggshard.program.attributes import Literal

    return Literal(np.array(value, np.int32))


def test_run_checks_inputs_results_and_actions():
    type_ = TensorType((2,), "f32")
    cut = plan(GRID, [type_, type_], [Step(Resize((1,)), (0,), (1,))], [1])
    with pytest.raises(LoweringError, match="1 inputs, but 0"):
        run(cut, [])
    with pytest.raises(LoweringError, match="input 0 is f32"):
        run(cut, [values(GRID, 3)])
    with pytest.raises(LoweringError, match="result 1 of step 0"):
        run(cut, [values(GRID, 2)])
    with pytest.raises(LoweringError, match="simulation of Action"):
        perform(GRID, Action(), ())


def test_run_returns_values_in_order_and_inputs_too():
    type_ = TensorType((2,), "f32")
    steps = [Step(AllReduce(("x",), "add"), (0,), (1,)), Step(AllReduce(("y",), "add"), (1,), (2,))]
    array = values(GRID, 2)
    first, again, total = run(plan(GRID, [type_] * 3, steps, [0, 0, 2]), [array])
    assert first is again is array
    np.testing.assert_array_equal(total[3], array.sum(0))
    placement = Placement(replicated((2,)).dims, ("x", "y"), "add")
    np.testing.assert_array_equal(gather_from_devices(GRID, array, (2,), placement), array.sum(0))
