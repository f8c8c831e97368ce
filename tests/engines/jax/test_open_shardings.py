"""Arguments and results whose shardings are chosen: `eggshard.auto`, and `eggshard.jit` with `eggshard.AUTO`."""

from functools import partial

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.errors import CostModelError, MeshError, ShardingError

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
# Small searches: what is tested here is not how good a choice is.
OPTIONS = {"mesh": MESH, "cost_model": "tpu-v5e", "limits": es.Limits(proof=0.0), "rewrites": []}
RNG = np.random.default_rng(0)
PARAMS = {"w1": RNG.normal(size=(32, 64)).astype(np.float32), "w2": RNG.normal(size=(64, 32)).astype(np.float32)}
X, T = (RNG.normal(size=(128, 32)).astype(np.float32) for _ in range(2))


def step(params, x, t):
    def loss(params):
        return jnp.mean((jax.nn.relu(x @ params["w1"]) @ params["w2"] - t) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def specs(tree):
    return [s.spec for s in jax.tree.leaves(tree)]


def test_what_is_chosen_is_like_the_arguments_and_results():
    found = es.auto(step, PARAMS, X, T, **OPTIONS)
    assert jax.tree.structure(found.in_shardings) == jax.tree.structure((PARAMS, X, T))
    assert specs(found.in_shardings[0]) == specs(found.out_shardings[0])
    assert [leaf.carried for leaf in found.leaves if leaf.name.startswith("result")] == [
        "args[0]['w1']", "args[0]['w2']", ""]
    assert "fed back as" in str(found) and found.plan.search.fallback == ""
    # What was chosen may be stated, and gives the same plan.
    stated = es.jit(step, in_shardings=found.in_shardings, out_shardings=found.out_shardings, **{
        k: v for k, v in OPTIONS.items() if k != "mesh"})
    assert stated.plan(PARAMS, X, T).cost.total == pytest.approx(found.plan.cost.total)


def test_steps_of_a_training_loop():
    planned, own = es.jit(step, in_shardings=es.AUTO, **OPTIONS), jax.jit(step)
    params, ours = PARAMS, PARAMS
    for _ in range(3):
        ours, value = planned(ours, X, T)
        params, want = own(params, X, T)
        np.testing.assert_allclose(value, want, rtol=1e-4)
    for name, p in params.items():
        np.testing.assert_allclose(np.asarray(ours[name]), p, rtol=1e-4, atol=1e-5)
        assert ours[name].sharding == planned.chosen(ours, X, T).results[sorted(params).index(name)]


def test_some_leaves_and_entries_are_stated():
    given = ({"w1": es.AUTO, "w2": P("y")}, P("x", es.AUTO), None)
    found = es.auto(step, PARAMS, X, T, in_shardings=given, **OPTIONS)
    w1, w2, x, t = specs(found.in_shardings)
    assert w2 == P("y") and x[0] == "x" and t == P()
    assert specs(found.out_shardings)[1] == P("y")
    fixed = es.auto(jnp.sin, X, in_shardings=NamedSharding(MESH, P("x")), out_shardings=es.AUTO, **OPTIONS)
    assert specs(fixed.in_shardings) == [P("x")]


def test_trees_may_have_places_without_leaves():
    def added(tree, x):
        return {**tree, "w": tree["w"] + x}, x

    given = {"w": X, "activation": None}
    found = es.auto(added, given, X, in_shardings=(es.AUTO, None), **OPTIONS)
    assert found.in_shardings[0]["activation"] is None and specs(found.in_shardings[1]) == [P()]
    stated = es.auto(added, given, X, in_shardings=({"w": P("x"), "activation": None}, es.AUTO), **OPTIONS)
    assert stated.in_shardings[0]["w"].spec == P("x")


def test_what_is_fed_back_may_be_told():
    def newton(a, x):
        return x - 0.1 * (a @ x)

    a, x = jax.ShapeDtypeStruct((64, 64), np.float32), jax.ShapeDtypeStruct((64, 64), np.float32)
    found = es.auto(newton, a, x, carry={1: 0}, **OPTIONS)
    assert specs(found.in_shardings[1]) == specs(found.out_shardings)
    assert [leaf.carried for leaf in found.leaves] == ["", "", "args[1]"]
    donated = es.auto(newton, a, x, donate_argnums=1, **OPTIONS)
    assert [leaf.carried for leaf in donated.leaves] == ["", "", "args[1]"]
    for wrong in ({2: 0}, {0: 1}):
        with pytest.raises(ShardingError, match="carry="):
            es.auto(newton, a, x, carry=wrong, **OPTIONS)
    with pytest.raises(ShardingError, match="not the structure and types"):
        es.auto(lambda x: (x, x[0]), x, carry={0: 1}, **OPTIONS)


def test_keys_scalars_static_and_unused_arguments():
    def noisy(x, key, unused, scale, *, power):
        return x + scale * jax.random.normal(key, x.shape) ** power, scale + 1

    auto = partial(es.auto, noisy, X, jax.random.key(0), T, np.float32(2), **OPTIONS)
    with pytest.raises(TypeError, match="power"):
        auto()
    function = es.jit(noisy, in_shardings=es.AUTO, static_argnames="power", **OPTIONS)
    got, scale = function(X, jax.random.key(0), T, np.float32(2), power=2)
    want, _ = noisy(X, jax.random.key(0), T, np.float32(2), power=2)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)
    assert scale == 3 and got.sharding.mesh.size == 8


def test_scalars_of_python_and_what_cannot_be_planned():
    function = es.jit(lambda x, a: x * a + jnp.float16(1), in_shardings=es.AUTO, **OPTIONS)
    half = X.astype(np.float16)
    assert function(half, 2.0).dtype == np.float16 and function(half, 3).dtype == np.float16

    def printed(x):
        jax.debug.print("{}", x[0, 0], ordered=True)
        return x + 1

    printing = es.jit(printed, in_shardings=es.AUTO, **OPTIONS)
    with pytest.warns(es.EggshardWarning, match="runs as jax.jit would run it"):
        np.testing.assert_allclose(np.asarray(printing(X)), X + 1)


def test_loops_are_planned_where_they_are_cheapest():
    def layers(ws, x):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0]

    ws, x = RNG.normal(size=(4, 32, 32)).astype(np.float32), RNG.normal(size=(256, 32)).astype(np.float32)
    function = es.jit(layers, in_shardings=es.AUTO, **OPTIONS)
    np.testing.assert_allclose(np.asarray(function(ws, x)), np.asarray(layers(ws, x)), rtol=1e-4, atol=1e-4)
    assert function.plan(ws, x).device_program.messages == 0


def test_a_mesh_is_needed():
    options = {k: v for k, v in OPTIONS.items() if k != "mesh"}
    with pytest.raises(MeshError, match="give mesh="):
        es.auto(step, PARAMS, X, T, **options)
    with jax.set_mesh(MESH):
        assert es.auto(jnp.sin, X, **options).plan.mesh.size == 8
    with pytest.raises(ShardingError, match="say how shardings are chosen"):
        es.jit(step, mesh=MESH)
    with pytest.raises(ShardingError, match="in_shardings is no prefix"):
        es.auto(step, PARAMS, X, T, in_shardings=(es.AUTO, es.AUTO), **OPTIONS)


def layer(w, x):
    return jnp.tanh(x @ w)


def test_the_mesh_is_chosen_of_devices_that_are_not_here():
    options = OPTIONS | {"mesh": es.AUTO}
    model = options.pop("cost_model")
    found = es.auto(layer, PARAMS["w1"], X, devices=16, topology=model, **options)
    mesh = found.in_shardings[1].mesh
    assert isinstance(mesh, AbstractMesh) and mesh.size == 16 and dict(mesh.shape) == found.plan.mesh.axes
    assert found.meshes[0].mesh == found.plan.mesh and len(found.meshes) == 7
    assert "fastest links" in str(found) and "1 others" in str(found)
    with pytest.raises(MeshError, match="has no devices to run on"):
        es.jit(layer, in_shardings=es.AUTO, devices=2, cost_model=model, **options)(PARAMS["w1"], X)
    with pytest.raises(CostModelError, match="give one"):
        es.auto(layer, PARAMS["w1"], X, devices=16, topology=model, cost_model="tpu-v4", **options)
    given = es.auto(layer, PARAMS["w1"], X, cost_model=model, **options | {"mesh": mesh})
    assert given.plan.cost.total == pytest.approx(found.plan.cost.total)


def test_the_mesh_is_chosen_of_the_devices_at_hand():
    options = OPTIONS | {"mesh": es.AUTO}
    planned = es.jit(layer, in_shardings=es.AUTO, **options)
    got = planned(PARAMS["w1"], X)
    np.testing.assert_allclose(np.asarray(got), layer(PARAMS["w1"], X), rtol=1e-4, atol=1e-5)
    mesh = planned.chosen(PARAMS["w1"], X).mesh
    assert mesh.size == len(jax.devices()) and got.sharding.mesh == mesh
    few = es.auto(jnp.sin, X, in_shardings=(P(),), devices=jax.devices()[2:4], **options)
    assert [d.id for d in few.in_shardings[0].mesh.devices.flat] == [2, 3] and specs(few.in_shardings) == [P()]
    with pytest.raises(ShardingError, match="names axes of a mesh, which is to be chosen"):
        es.auto(jnp.sin, X, in_shardings=(P("x"),), **options)
    with pytest.raises(MeshError, match="give mesh=eggshard.AUTO"):
        es.auto(jnp.sin, X, devices=4, **OPTIONS)
