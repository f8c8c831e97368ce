"""Repeated gathers and recomputation, as XLA keeps them: predicted bytes are those counted in the compiled program."""

import numpy as np
import pytest
from tests.emit.devices import run_on_xla

jax = pytest.importorskip("jax")

from jax import numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import WireBytes  # noqa: E402
from eggshard.hlo.collectives import count_collectives  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.steps.assemble import Assembler  # noqa: E402
from eggshard.steps.steps import AllGather, Local, Step, StepPlan  # noqa: E402

MESH = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
LIMITS = es.Limits(seconds=10)
WEIGHT = 64 * 64 * 4 * 7 // 8  # wire bytes of one gather of a weight


def struct(shape, *spec):
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


W, X = struct((64, 64), "x"), struct((1024, 64), "x")


def counted(plan, *args):
    """Wire bytes of the compiled plan, which must be those predicted, and of XLA's own program."""
    found = plan.compare_with_xla()
    assert found.plan.wire_bytes == plan.serial_bytes, (found.plan.collectives, plan.collectives)
    return plan.serial_bytes, found.xla.wire_bytes


def twice(w, a, b):
    return a @ w, jnp.tanh(b) @ w


def equal_values(w, a, b):
    return a @ (w * 2), b @ (w + w)


def barrier(w, a, b):
    y = a @ w
    w, y = jax.lax.optimization_barrier((w, y))
    return y, b @ w


def dead(w, a, b):
    jnp.exp(w).sum()
    return a @ w, b * 2


def loop(w, a, b):
    return jax.lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ w), a), b


def loop_and_outside(w, a, b):
    return jax.lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ w), a), b @ w


def recomputed_in_loop(w, a, b):
    return jax.lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ jnp.exp(w)), a), b


def nested_loops(w, a, b):
    def inner(i, y):
        return jax.lax.fori_loop(0, 3, lambda j, z: jnp.tanh(z @ w) + i, y)

    return jax.lax.fori_loop(0, 4, inner, a), b


def manual_loop(w, a, b):
    def local(w, y):
        return jax.lax.fori_loop(0, 5, lambda i, z: jnp.tanh(z @ jax.lax.all_gather(w, "x", tiled=True)), y)

    return jax.shard_map(local, mesh=MESH, in_specs=(P("x"), P("x")), out_specs=P("x"))(w, a), b


# How often the plan gathers the weight, and how often XLA's program for the same source does.
PROGRAMS = {
    twice: (1, 1),
    equal_values: (1, 2),
    barrier: (1, 2),
    dead: (1, 1),
    loop: (1, 1),
    loop_and_outside: (1, 2),
    recomputed_in_loop: (1, 1),
    nested_loops: (1, 1),
    manual_loop: (1, 1),
}


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_gathered_once(function):
    plan = es.optimize(jax.jit(function).lower(W, X, X), cost_model=WireBytes(), limits=LIMITS)
    ours, theirs = PROGRAMS[function]
    assert counted(plan) == (ours * WEIGHT, theirs * WEIGHT)
    plan.verify(engines=("numpy",))


@pytest.mark.parametrize("how", ["plain", "checkpoint", "checkpoint allowing merging", "scanned checkpoint"])
def test_forward_and_backward(how):
    def layer(x, w):
        return jnp.tanh(x @ w)

    if "checkpoint" in how:
        layer = jax.checkpoint(layer, prevent_cse="allowing" not in how)

    def loss(ws, x):
        if how.startswith("scanned"):
            x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)
        else:
            for i in range(3):
                x = layer(x, ws[i])
        return (x**2).sum()

    ws = struct((3, 64, 64), None, "x")
    lowered = jax.jit(jax.grad(loss), out_shardings=ws.sharding).lower(ws, X)
    ours, theirs = counted(es.optimize(lowered, cost_model=WireBytes(), limits=LIMITS))
    # Gathers of three weights, once, also where loops keep the passes apart: both take them whole. The gradients are
    # reduced into place, which for XLA are all-reduces, of twice the bytes.
    again = 6 if how in ("checkpoint", "scanned checkpoint") else 3
    assert (ours, theirs) == (6 * WEIGHT, (again + 6) * WEIGHT)


@pytest.mark.parametrize("trips, kinds", [(2, {"all-to-all": 1, "reduce-scatter": 2}), (50, {"all-gather": 1})])
def test_what_a_loop_repeats_is_weighed_by_its_trips(trips, kinds):
    def step(w, x):
        return jax.lax.fori_loop(0, trips, lambda i, y: jnp.tanh(y @ w), x)

    plan = es.optimize(jax.jit(step).lower(W, struct((16, 64), "x")), cost_model=WireBytes(), limits=LIMITS)
    assert plan.collectives == kinds
    ours, theirs = counted(plan)
    assert ours <= theirs == WEIGHT


# What the compiler itself keeps of steps, and what an assembler does: gathers of one value over the same groups. XLA
# merges equal instructions, but every collective of a plan has a channel of its own, and these tell them apart.
LINE = Mesh({"x": 8})
SHARD, FULL = TensorType((2, 4), "f32"), TensorType((16, 4), "f32")
GATHER = AllGather(((0, ("x",)),))


def program(*steps, outputs):
    """Steps on one input: (action, operand numbers); value numbers follow the order of steps."""
    types, made = [SHARD], []
    for action, operands in steps:
        results = action.result(LINE, tuple(types[v] for v in operands))
        made.append(Step(action, operands, tuple(range(len(types), len(types) + len(results)))))
        types += results
    return StepPlan(LINE, (0,), tuple(made), outputs, tuple(types))


def local(name, *types, **attributes):
    return Local(name, Attributes(attributes), types)


KEPT = {
    "same value": (program((GATHER, (0,)), (GATHER, (0,)), (local("add", FULL), (1, 2)), outputs=(3,)), 2, 1),
    "equal values": (
        program(
            (local("tanh", SHARD), (0,)), (local("tanh", SHARD), (0,)), (GATHER, (1,)), (GATHER, (2,)),
            (local("multiply", FULL), (3, 4)), outputs=(5,),
        ),
        2, 1,
    ),
    "behind a barrier": (
        program(
            (GATHER, (0,)), (local("optimization_barrier", SHARD, FULL), (0, 1)), (GATHER, (2,)),
            (local("multiply", FULL), (3, 4)), outputs=(5,),
        ),
        2, 2,
    ),
    "unused": (program((GATHER, (0,)), (local("tanh", SHARD), (0,)), outputs=(2,)), 0, 0),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_the_compiler_keeps(case):
    steps, compiled, assembled = KEPT[case]
    assembler = Assembler(LINE)
    kept = assembler.build(assembler.emit(steps, (assembler.input(SHARD),)))
    results = []
    for plan, gathers in ((steps, compiled), (kept, assembled)):
        result, hlo = run_on_xla(plan, [np.full((8, 2, 4), 0.5, np.float32)])
        assert count_collectives(hlo).by_kind == ({"all-gather": gathers} if gathers else {})
        results.append(result[0])
    np.testing.assert_array_equal(*results)
    assert kept.collectives == ({"all-gather": assembled} if assembled else {})
