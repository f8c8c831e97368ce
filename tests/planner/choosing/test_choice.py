"""The choice of open shardings: against every other one, in loops and branches, of equal layers, and where it fails."""

import itertools
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.errors import FallbackWarning, MeshError, ShardingError
from eggshard.frontends import load
from eggshard.planner.choosing import choice as choosing
from eggshard.planner.choosing.choice import AS_WRITTEN, CAPPED, Choice, Chooser, chooser_of
from eggshard.planner.request import requested
from eggshard.planning import optimized
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.program.sharding import AUTO, Sharding
from eggshard.spmd.boundaries import even_placements

LINE, SQUARE = Mesh({"x": 4}), Mesh({"x": 2, "y": 2})
LIMITS = es.Limits(proof=0.0)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def program_of(function, *arguments, mesh=LINE) -> Program:
    """The program of a function whose arguments lie anywhere."""
    program = replace(load(jax.jit(function).lower(*arguments)), mesh=mesh)
    return replace(program, input_shardings=tuple(Sharding.fully_open(t.rank) for t in program.input_types))


def chosen(program: Program, carried=None, model="tpu-v5e"):
    """The choice, and the plan of the program where it is stated."""
    request = requested(program, model, limits=LIMITS)
    found = Chooser(request, carried or {}).cheapest
    return found, optimized(program, cost_model=model, limits=LIMITS, loaded=found.stated(program))


def least(program: Program, carried=None, model="tpu-v5e") -> float:
    """What the program's cheapest plan costs where its inputs are stated in any way."""
    costs = []
    for way in itertools.product(*(even_placements(program.mesh, t) for t in program.input_types)):
        inputs = tuple(Sharding.from_placement(p, program.mesh) for p in way)
        outputs = [None] * len(program.output_types)
        for o, i in (carried or {}).items():
            outputs[o] = inputs[i]
        stated = replace(program, input_shardings=inputs, output_shardings=tuple(outputs))
        costs.append(es.optimize(stated, cost_model=model, limits=LIMITS).cost.total)
    return min(costs)


def descent(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


def rolled(u):
    for _ in range(2):
        u = u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u)
    return u


def looped(w, x):
    return lax.fori_loop(0, 4, lambda _, h: jnp.tanh(h @ w), x)


def means(x, c):
    def body(_, c):
        near = jax.nn.softmax(x @ c.T)
        return (near.T @ x) / near.sum(0)[:, None]

    return lax.fori_loop(0, 3, body, c)


PROGRAMS = {
    "product": (lambda x, w: x @ w, (f32(512, 256), f32(256, 1024)), {}, LINE),
    "stencil": (rolled, (f32(512, 512),), {0: 0}, SQUARE),
    "loop": (looped, (f32(256, 256), f32(512, 256)), {}, LINE),
    "iterations in rows": (lambda u: lax.fori_loop(0, 8, lambda _, v: rolled(v), u), (f32(512, 512),), {0: 0}, LINE),
    "descent": (descent, (f32(256, 512), f32(128, 256)), {0: 0}, LINE),
    "sums in a loop": (means, (f32(4096, 16), f32(8, 16)), {0: 1}, LINE),
    "reduction": (lambda x: x / x.sum(0), (f32(1024, 256),), {}, SQUARE),
}


@pytest.mark.parametrize("name", some([*PROGRAMS], 2))
def test_no_other_choice_is_cheaper(name):
    function, arguments, carried, mesh = PROGRAMS[name]
    program = program_of(function, *arguments, mesh=mesh)
    found, plan = chosen(program, carried)
    best = least(program, carried)
    assert plan.cost.total <= best * 1.01
    assert 0 < found.bound <= best * (1 + 1e-6)
    assert plan.prove().equal


def test_all_reduces_pay_latencies():
    """The search prices them as if they shared the latency of one, which a single one does not."""
    def shares(x, w):
        h = x @ w
        return h / h.sum(-1, keepdims=True)

    program = program_of(shares, f32(64, 32), f32(32, 512))
    assert chosen(program)[1].cost.total == pytest.approx(least(program))


def test_what_is_fed_back_lies_where_it_is_taken():
    program = program_of(descent, f32(256, 512), f32(128, 256))
    found, plan = chosen(program, {0: 0})
    assert found.outputs[0] == found.inputs[0] and plan.output_placements[0] == plan.input_placements[0]


def test_a_loop_carries_its_values_where_that_is_cheapest():
    """Nothing is stated, so propagation says nothing of the loop."""
    found, plan = chosen(program_of(looped, f32(256, 256), f32(4096, 256)))
    assert found.inputs[1].dims[0].axes == ("x",) and plan.device_program.messages == 0


def test_what_a_loop_carries_may_be_stated():
    program = program_of(looped, f32(256, 256), f32(512, 256))
    stated = replace(program, input_shardings=(Sharding.fully_open(2), Sharding.of(("x",), 2, LINE)))
    found, _ = chosen(stated, {0: 1})
    assert found.inputs[1].dims[0].axes == ("x",) and found.outputs[0] == found.inputs[1]


@pytest.mark.parametrize("function", [
    lambda p, x: lax.cond(p, lambda v: v @ v.T, lambda v: v + 1.0, x),
    lambda p, x: lax.fori_loop(0, 3, lambda _, v: lax.cond(p, lambda u: u - u.mean(0), jnp.sin, v), x),
    lambda p, x: lax.while_loop(lambda v: v.sum() < 1e6, lambda v: jnp.where(p, v * 2.0, v) + 1.0, x),
])
def test_branches_and_loops_inside_others(function):
    program = program_of(function, jax.ShapeDtypeStruct((), np.bool_), f32(64, 64))
    _, plan = chosen(program)
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    (got,) = plan.run(np.bool_(True), x)
    np.testing.assert_allclose(got, function(True, x), rtol=1e-4, atol=1e-4)


def test_equal_layers_lie_alike():
    def deep(x, *ws):
        for w in ws:
            x = jnp.tanh(x @ w) + jnp.exp(-x) * jnp.cos(x)
        return x

    count = 90
    program = program_of(deep, f32(256, 64), *[f32(64, 64)] * count)
    assert len(program.region.ops) > choosing.MANY_OPS
    found, plan = chosen(program)
    assert len(found.inputs) == count + 1 and len(set(found.inputs[3:-2])) == 1
    assert not plan.search.fallback
    whole = Chooser(requested(program, "tpu-v5e", limits=LIMITS), {}).within(plan.memory.peak)
    assert whole.inputs == found.inputs


def test_open_dimensions_alone_are_chosen():
    program = program_of(lambda x, w: x @ w, f32(512, 256), f32(256, 512), mesh=SQUARE)
    inputs = Sharding.of(("y", AUTO), 2, SQUARE), Sharding.of((None, "x"), 2, SQUARE)
    found, _ = chosen(replace(program, input_shardings=inputs))
    first, second = found.inputs
    assert first.dims[0].axes == ("y",) and [d.axes for d in second.dims] == [(), ("x",)]


def test_uneven_dimensions_are_not_cut():
    found, _ = chosen(program_of(lambda x: jnp.sin(x), f32(7, 9)))
    assert not found.inputs[0].used_axes


def test_shardings_for_a_program():
    program = program_of(lambda x, w: x @ w, f32(512, 256), f32(256, 512))
    text = replace(program, mesh=Mesh({}), input_shardings=(None, None))
    plan = es.optimize(text, shardings=AUTO, mesh={"x": 4}, cost_model="tpu-v5e")
    assert plan.device_program.messages == 0 and any(p.used_axes for p in plan.input_placements)
    request = requested(program, "tpu-v5e")
    with pytest.raises(ShardingError, match="1 shardings for 2 inputs"):
        chooser_of(request, [AUTO], None, {})
    with pytest.raises(MeshError, match="states a mesh"):
        chooser_of(request, AUTO, {"y": 8}, {})
    with pytest.raises(ShardingError, match="cannot become input 1"):
        chooser_of(request, AUTO, None, {1: 0})


def test_a_choice_that_fails_replicates(monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(choosing, "_choices", fail)
    with pytest.warns(FallbackWarning, match="RuntimeError: broken"):
        found = Chooser(requested(program_of(jnp.sin, f32(8, 8)), "tpu-v5e"), {}).cheapest
    assert isinstance(found, Choice) and not found.inputs[0].used_axes


def test_a_scan_that_is_stated_costs_what_its_choice_promises():
    """Local search alone, from where propagation has the weights, ends at a plan that costs half as much again."""
    def step(w, x):
        def layers(w):
            return jnp.mean(lax.scan(lambda h, w: (jnp.maximum(h @ w, 0), None), x, w)[0] ** 2)

        return w - 0.1 * jax.grad(layers)(w)

    program = program_of(step, f32(4, 1024, 1024), f32(1024, 1024), mesh=Mesh({"x": 4, "y": 2}))
    found, plan = chosen(program, {0: 0}, model="h100-node")
    assert plan.cost.total <= 1.01 * found.cost


def test_loops_where_placements_are_too_many():
    """Of a body within, a problem then keeps fewer choices than the body's own has."""
    def swept(u, v):
        return lax.fori_loop(0, 3, lambda _, u: rolled(u), u), lax.map(lambda c: jnp.maximum(c, jnp.roll(c, 1, 0)), v)

    program = program_of(swept, f32(64, 64), f32(4, 16, 16), mesh=Mesh({"x": 2, "y": 2, "z": 2}))
    request = requested(program, "wire-bytes", limits=replace(LIMITS, placements=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = Chooser(request, {}).cheapest
    assert CAPPED.format(4) in found.left_out and 0 <= found.bound <= found.cost


def test_code_per_device_is_chosen_for_as_the_global_ops_that_it_is():
    """As it is written, its bound was above plans of the global ops, which exchange nothing."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])

    @jax.jit
    def shifted(u):
        def local(v):
            left = lax.ppermute(v[:, -1:], "x", [(i, (i + 1) % 4) for i in range(4)])
            return v - jnp.concatenate([left, v[:, :-1]], 1)

        return jax.shard_map(local, mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))(u)

    program = load(shifted.lower(f32(64, 64)))
    program = replace(program, input_shardings=(Sharding.fully_open(2),), output_shardings=(None,), text=None)
    found, plan = chosen(program)
    assert plan.device_program.messages == 0
    assert found.bound <= plan.cost.total and AS_WRITTEN in found.left_out
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    np.testing.assert_array_equal(plan.run(x)[0], x - np.roll(x, 1, 1))
