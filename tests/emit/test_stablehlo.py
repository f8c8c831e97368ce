"""Every step compiled by XLA on 8 CPU devices against the device simulator, bit for bit, with its bytes counted."""

import ml_dtypes
import numpy as np
import pytest
from tests.emit.devices import compile_text, plan_of, run_on_xla, stacked

from eggshard.emit.stablehlo import at_grid_positions, module_text
from eggshard.errors import LoweringError
from eggshard.hlo.collectives import count_collectives
from eggshard.planning import plan_reshard
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.simulator import run
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import exchange
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
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

jax = pytest.importorskip("jax")
mlir = pytest.importorskip("jax.interpreters.mlir")

CUBE = Mesh({"x": 2, "y": 2, "z": 2})
GRID = Mesh({"x": 4, "y": 2})
SIX = Mesh({"x": 2, "y": 3})
PERMUTED = Mesh({"x": 4, "y": 2}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))
HALVES = Mesh([("x:(1)2", 2), ("x:(2)4", 4)])


def check(plan, dtype="float32", seed=0, bytes_kept=True):
    rng = np.random.default_rng(seed)
    shards = []
    for v in plan.inputs:
        shape = (plan.mesh.size, *plan.types[v].shape)
        # Small integers: their sums are exact in every order.
        values = rng.integers(0, 2 if dtype == "bool" else 5, shape)
        shards.append(values.astype(dtype))
    want = run(plan, shards)
    got, hlo = run_on_xla(plan, shards)
    for g, w in zip(got, want, strict=True):
        # The simulator poisons unspecified data (the padding of a resize) with NaN.
        specified = w == w
        np.testing.assert_array_equal(g[specified], w[specified])
    if bytes_kept:
        promised = sum(plan.received(step).max() for step in plan.steps)
        assert count_collectives(hlo, plan.mesh.size).wire_bytes == promised


def local(*shape, dtype="float32"):
    return [TensorType(shape, mlir_dtype(dtype))]


ACTIONS = {
    "slice": (CUBE, (8, 4, 2), Slice(((0, ("z", "x")), (2, ("y",))))),
    "slice all": (GRID, (16, 3), Slice(((0, ("y", "x")),))),
    "gather one": (CUBE, (2, 3), AllGather(((1, ("z", "x")),))),
    "gather two": (CUBE, (2, 3, 2), AllGather(((2, ("z",)), (0, ("x", "y"))))),
    "gather six": (SIX, (2, 3), AllGather(((0, ("y",)), (1, ("x",))))),
    "all-to-all plain": (GRID, (8, 2), AllToAll(((1, ("x",)),), ((0, ("x",)),))),
    "all-to-all order": (CUBE, (8, 2), AllToAll(((1, ("x", "y")),), ((0, ("y", "x")),))),
    "all-to-all merge": (GRID, (4, 16, 2), AllToAll(((0, ("y",)), (2, ("x",))), ((1, ("x", "y")),))),
    "all-to-all split": (CUBE, (3, 4, 6), AllToAll(((0, ("z", "x", "y")),), ((2, ("y",)), (1, ("x", "z"))))),
    "all-to-all six": (SIX, (6, 4, 2), AllToAll(((2, ("y", "x")),), ((1, ("x",)), (0, ("y",))))),
    "permute": (GRID, (3, 2), CollectivePermute(tuple((i, (i * 3 + 1) % 8) for i in range(8)))),
    "permute some": (CUBE, (3, 2), CollectivePermute(((0, 0), (1, 2), (3, 1), (2, 3), *[(i, i) for i in range(4, 8)]))),
    "all-reduce": (CUBE, (3, 2), AllReduce(("x", "z"), "add")),
    "all-reduce max": (SIX, (3, 2), AllReduce(("y",), "max")),
    "reduce-scatter": (GRID, (3, 8), ReduceScatter(((1, ("y", "x")),), "add")),
    "reduce-scatter two": (CUBE, (4, 3, 8), ReduceScatter(((2, ("y", "z")), (0, ("x",))), "min")),
    "keep first": (CUBE, (3, 2), KeepFirst(("y", "x"), "add")),
    "keep first max": (GRID, (3, 2), KeepFirst(("y",), "max")),
    "resize": (GRID, (3, 5, 2), Resize((6, 2, 2))),
    "mask": (GRID, (2, 3), Mask(1, ("y", "x"), 17, "add")),
    "mask empty shards": (SIX, (2, 3), Mask(0, ("y",), 3, "min")),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_action(name):
    mesh, shape, action = ACTIONS[name]
    check(plan_of(mesh, local(*shape), action))


def halves_permute(mesh):
    """Each device sends its halves to two others, one half stays on some devices, and some receive only one."""
    n = mesh.size
    starts = tuple((2 * (i % 2), 0) for i in range(n))
    opposite = tuple((2 - s[0], 0) for s in starts)
    ring = tuple((i, (i + 1) % n) for i in range(n))
    some = tuple((i, (i + 3) % n) for i in range(0, n, 2))
    kept = tuple((i, i) for i in range(n) if (i - 3) % n % 2)
    return Exchange((2, 3), (4, 3), (Round(ring, starts, opposite), Round(some, opposite, starts)),
                    (Round(kept, opposite, starts),))


@pytest.mark.parametrize("mesh", [CUBE, SIX, PERMUTED], ids=["cube", "six", "permuted"])
def test_exchange(mesh):
    check(plan_of(mesh, local(4, 3), halves_permute(mesh)))


@pytest.mark.parametrize("mesh", [GRID, PERMUTED], ids=["grid", "permuted"])
@pytest.mark.parametrize(
    ("shape", "ends", "cells", "rounds"),
    [
        ((16, 8), ((("x",), ("y",)), (("y",), ("x",))), 2, 2),
        ((16, 8), ((("y",), ("x",)), ((), ("x",))), 1, 1),
        ((15, 8), ((("x",), ("y",)), (("y",), ("x",))), 2, 2),
    ],
    ids=["transposed", "gathered", "uneven"],
)
def test_exchange_of_boxes(mesh, shape, ends, cells, rounds):
    source, target = (place(mesh, shape, axes) for axes in ends)
    action = exchange(mesh, shape, source, target, ("x", "y"), cells, rounds)
    check(plan_of(mesh, local(*source.local_shape), action))
    check(plan_of(mesh, local(*source.local_shape), action.listed(mesh)))


def test_long_tables_are_written_once():
    mesh = Mesh({"x": 64, "y": 2})
    gather = AllGather(((0, ("x",)),))
    plan = plan_of(mesh, local(4, 3), gather, Slice(((0, ("x",)),)), gather)
    text = module_text(plan, *stacked(plan, plan.inputs), *stacked(plan, plan.outputs))
    assert text.count('dense<"0x') == 2  # the groups, and where each device's slice begins
    assert text.count("replica_groups = #table0") == 2
    with mlir.make_ir_context():
        assert str(mlir.ir.Module.parse(text)).count("stablehlo.all_gather") == 2


def test_whole_shard_exchange():
    ring = tuple((i, (i + 1) % 8) for i in range(8))
    zeros = ((0, 0),) * 8
    check(plan_of(GRID, local(4, 3), Exchange((4, 3), (4, 3), (Round(ring, zeros, zeros),))))


@pytest.mark.parametrize(
    "action",
    [
        Slice(((0, ("y", "x")),)),
        AllGather(((1, ("y",)), (0, ("x",)))),
        AllToAll(((1, ("x", "y")),), ((0, ("y", "x")),)),
        CollectivePermute(tuple((i, (i + 3) % 8) for i in range(8))),
        ReduceScatter(((0, ("x", "y")),), "add"),
        KeepFirst(("x",), "add"),
        Mask(0, ("y", "x"), 50, "add"),
    ],
    ids=lambda a: a.kind,
)
def test_permuted_device_order(action):
    plan = plan_of(PERMUTED, local(8, 2), action)
    check(plan)
    # Numbered by grid position, the same program gives the same blocks in grid order.
    rng = np.random.default_rng(1)
    shards = [rng.integers(0, 5, (8, 8, 2)).astype("float32")]
    order = list(PERMUTED.device_ids)
    (want,) = run(plan, shards)
    (got,) = run(at_grid_positions(plan), [s[order] for s in shards])
    np.testing.assert_array_equal(got, want[order])


def test_sub_axes():
    move = AllToAll(((1, ("x:(2)4",)),), ((0, ("x:(2)4",)),))
    check(plan_of(HALVES, local(8, 2), move, AllGather(((0, ("x:(1)2",)),))))


def random_moves(rng, axes, dims):
    """Some of the axes in random order, dealt out to some of the dimensions."""
    axes = list(rng.permutation(axes))
    groups = {}
    for axis in axes:
        groups.setdefault(int(rng.choice(dims)), []).append(str(axis))
    return tuple((dim, tuple(group)) for dim, group in groups.items())


@pytest.mark.parametrize("seed", range(10))
def test_random_moves(seed):
    rng = np.random.default_rng(seed)
    mesh = [CUBE, GRID, SIX, PERMUTED, Mesh({"a": 2, "b": 2, "c": 2}, rng.permutation(8))][seed % 5]
    axes = list(rng.choice(list(mesh.axes), rng.integers(1, len(mesh.axes) + 1), replace=False))
    shape = tuple(int(n) * mesh.count(axes) for n in rng.integers(1, 3, 4))
    targets = random_moves(rng, axes, [0, 2])
    sources = random_moves(rng, axes, [1, 3])
    scatter = ReduceScatter(random_moves(rng, axes, [1, 3]), "add")
    check(plan_of(mesh, local(*shape), AllToAll(sources, targets), scatter, AllGather(random_moves(rng, axes, [1, 2]))))


def test_steps_in_a_row():
    actions = (
        Mask(0, ("x",), 30, "add"),
        Slice(((1, ("y",)),)),
        AllToAll(((1, ("y",)),), ((0, ("y",)),)),
        CollectivePermute(tuple((i, i ^ 1) for i in range(8))),
        Resize((6, 4)),
        AllReduce(("y",), "add"),
        ReduceScatter(((1, ("x",)),), "add"),
    )
    check(plan_of(GRID, local(8, 4), *actions))


def test_equal_collectives_of_independent_values():
    gather = AllGather(((0, ("x",)),))
    types = local(2, 3) * 2 + local(8, 3) * 2
    plan = StepPlan(GRID, (0, 1), (Step(gather, (0,), (2,)), Step(gather, (1,), (3,))), (2, 3), tuple(types))
    check(plan)


def shift_plan(mesh, rotation):
    """Shift x by some devices, scale it by this device's position, and add 1 to a counter that all devices share."""
    f32, i32 = TensorType((4, 3), "f32"), TensorType((1,), "i32")
    pairs = tuple((i, (i + rotation) % mesh.size) for i in range(mesh.size))
    steps = (
        Step(CollectivePermute(pairs), (0,), (2,)),
        Step(KeepFirst(("x",), "add"), (2,), (3,)),
        Step(Local("add", Attributes(), (f32,)), (2, 3), (4,)),
        Step(Local("add", Attributes(), (i32,)), (1, 1), (5,)),
    )
    return StepPlan(mesh, (0, 1), steps, (4, 5), (f32, i32, f32, f32, f32, i32))


@pytest.mark.parametrize("mesh", [GRID, PERMUTED], ids=["plain", "permuted"])
def test_control_flow(mesh):
    i32, i1 = TensorType((1,), "i32"), TensorType((), "i1")
    ones = Local("constant", Attributes(value=Literal(np.full((1,), 20, np.int32))), (i32,))
    less = Local("compare", Attributes(comparison_direction="LT", compare_type="SIGNED"), (TensorType((1,), "i1"),))
    scalar = Local("reshape", Attributes(shape=()), (i1,))
    condition = StepPlan(
        mesh,
        (0, 1),
        (Step(ones, (), (2,)), Step(less, (1, 2), (3,)), Step(scalar, (3,), (4,))),
        (4,),
        (TensorType((4, 3), "f32"), i32, i32, TensorType((1,), "i1"), i1),
    )
    body = shift_plan(mesh, 3)
    steps = (
        *condition.steps,
        Step(Loop(condition, body, 3), (0, 1), (5, 6)),
        Step(Branch((shift_plan(mesh, 1), shift_plan(mesh, 2)), True), (4, 5, 6), (7, 8)),
        Step(Slice(((0, ("y",)),)), (7,), (9,)),
    )
    types = (*condition.types, *body.types[:2], *body.types[:2], TensorType((2, 3), "f32"))
    plan = StepPlan(mesh, (0, 1), steps, (9, 8), types)
    rng = np.random.default_rng(0)
    for start in (3, 20):
        shards = [rng.integers(0, 5, (8, 4, 3)).astype("float32"), np.full((8, 1), start, np.int32)]
        want = run(plan, shards)
        got, _ = run_on_xla(plan, shards)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)
    order = list(mesh.device_ids or range(8))
    moved = run(at_grid_positions(plan), [s[order] for s in shards])
    for g, w in zip(moved, want, strict=True):
        np.testing.assert_array_equal(g, w[order])


def test_all_reduce_of_several_values():
    check(plan_of(GRID, local(2, 3) + local(5, 1), AllReduce(("x",), "add")))


@pytest.mark.parametrize(
    ("dtype", "monoid"),
    [
        ("bool", "and"),
        ("bool", "or"),
        ("bool", "xor"),
        ("int32", "or"),
        ("uint8", "and"),
        ("int32", "mul"),
        ("uint8", "max"),
        ("int64", "min"),
        ("float16", "add"),
        ("complex64", "add"),
        ("float64", "max"),
    ],
)
def test_reductions(dtype, monoid):
    jax.config.update("jax_enable_x64", True)
    try:
        check(plan_of(SIX, local(5, 3, dtype=dtype), AllReduce(("y",), monoid)), dtype)
        check(plan_of(SIX, local(6, 3, dtype=dtype), ReduceScatter(((0, ("x", "y")),), monoid)), dtype)
        check(plan_of(SIX, local(4, 3, dtype=dtype), KeepFirst(("y",), monoid)), dtype)
    finally:
        jax.config.update("jax_enable_x64", False)


def test_bfloat16_sum():
    # XLA:CPU widens it to float32, on the wire too.
    dtype = ml_dtypes.bfloat16
    check(plan_of(GRID, local(4, dtype=dtype), AllReduce(("x",), "add")), dtype, bytes_kept=False)


def test_bitwise_sum_of_a_size_that_does_not_split():
    check(plan_of(SIX, local(5, dtype="int32"), AllReduce(("y",), "xor")), "int32", bytes_kept=False)


def test_one_device():
    mesh = Mesh({"x": 1})
    plan = plan_of(mesh, local(4, 3), Slice(((0, ("x",)),)), Mask(0, ("x",), 3, "add"), KeepFirst(("x",), "add"))
    text = module_text(plan, *stacked(plan, plan.inputs), *stacked(plan, plan.outputs))
    assert "manual_computation" not in text and "num_partitions = 1 " in text
    executable = compile_text(text, 1)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    ((got,),) = executable.execute_sharded([jax.device_put(x)]).disassemble_into_single_device_arrays()
    np.testing.assert_array_equal(got, run(plan, [x[None]])[0][0])


def test_no_sharding_at_all():
    plan = plan_of(GRID, local(4, 3), Resize((2, 3)))
    whole = [Placement((Dim((), 4), Dim((), 3)))], [Placement((Dim((), 2), Dim((), 3)))]
    text = module_text(plan, local(4, 3), whole[0], local(2, 3), whole[1])
    assert not count_collectives(compile_text(text, 8).hlo_modules()[0].to_string(), 8).wire_bytes


def test_uneven_and_partial_boundaries_are_refused():
    plan = plan_of(GRID, local(2), Resize((2,)))
    even = place(GRID, (8,), (("x",),))
    uneven = Placement((Dim(("x",), 2),))
    partial = even._replace(partial=("y",), monoid="add")
    with pytest.raises(LoweringError, match="input 0 .* uneven"):
        module_text(plan, [TensorType((7,), "f32")], [uneven], [TensorType((8,), "f32")], [even])
    with pytest.raises(LoweringError, match="output 0 .* partial sum"):
        module_text(plan, [TensorType((8,), "f32")], [even], [TensorType((8,), "f32")], [partial])


@pytest.mark.parametrize("order", ["authored first", "reshard first"])
def test_starts_out_of_bounds_between_slices(order):
    # XLA merges the two dynamic slices into one and adds up starts that it has not clamped.
    x, start, scalar = TensorType((4, 8), "i32"), TensorType((1,), "i32"), TensorType((), "i32")
    reshape = Local("reshape", Attributes(shape=()), (scalar,))
    if order == "authored first":
        middle, last = x.with_shape((4, 6)), x.with_shape((4, 3))
        authored = Step(Local("dynamic_slice", Attributes(slice_sizes=(4, 6)), (middle,)), (0, 2, 2), (3,))
        steps = [authored, Step(Slice(((1, ("y",)),)), (3,), (4,))]
    else:
        middle, last = x.with_shape((4, 4)), x.with_shape((4, 2))
        authored = Step(Local("dynamic_slice", Attributes(slice_sizes=(4, 2)), (last,)), (3, 2, 2), (4,))
        steps = [Step(Slice(((1, ("y",)),)), (0,), (3,)), authored]
    types = (x, start, scalar, middle, last)
    check(StepPlan(GRID, (0, 1), (Step(reshape, (1,), (2,)), *steps), (4,), types), "int32")


@pytest.mark.parametrize("seed", range(3))
def test_one_gathered_window_out_of_bounds_before_a_slice(seed):
    numbers = Attributes(
        offset_dims=(0, 1), collapsed_slice_dims=(), operand_batching_dims=(), start_indices_batching_dims=(),
        start_index_map=(1,), index_vector_dim=0,
    )  # fmt: skip
    x, index, window = (TensorType(shape, "i32") for shape in ((8, 6), (1,), (8, 4)))
    attributes = Attributes(dimension_numbers=numbers, slice_sizes=(8, 4), indices_are_sorted=False)
    gather = Step(Local("gather", attributes, (window,)), (0, 1), (2,))
    cut = Step(Slice(((1, ("y",)),)), (2,), (3,))
    check(StepPlan(GRID, (0, 1), (gather, cut), (3,), (x, index, window, x.with_shape((8, 2)))), "int32", seed)


def test_axes_of_one_device_leave_no_trace() -> None:
    """They stood beside the axes of an all-to-all on one side and not on the other."""
    mesh = {"x": 2, "y": 1, "z": 4}
    plan = plan_reshard((8, 16, 64), "f32", mesh, ("z", ("x", "y"), None), ("z", None, "x"))
    assert plan.collectives == {"all-to-all": 1}
    plan.verify()
    assert "all_to_all" in plan.to_stablehlo()
