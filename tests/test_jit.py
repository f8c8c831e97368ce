"""`eggshard.jit` against `jax.jit`: calls, gradients, nesting, state, and what it refuses."""

import warnings
from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax import numpy as jnp  # noqa: E402
from jax.sharding import (  # noqa: E402
    AxisType,
    NamedSharding,
    PartitionSpec as P,  # noqa: E402
)

import eggshard as es  # noqa: E402
from eggshard.errors import EggshardWarning  # noqa: E402

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
# Small searches: what is tested here is not how good a plan is.
jit = partial(es.jit, rewrites=[], limits=es.Limits(seconds=10, strategies=8, placements=3))


def on(*spec, mesh=MESH):
    return NamedSharding(mesh, P(*spec))


def put(array, *spec, mesh=MESH):
    return jax.device_put(np.asarray(array), on(*spec, mesh=mesh))


RNG = np.random.default_rng(0)
W = put(RNG.normal(size=(8, 8)).astype(np.float32) / 3, "x", "y")
X = put(RNG.normal(size=(16, 8)).astype(np.float32), ("x", "y"))
KEY = jax.random.key(0)
PARAMS = {"w": W, "b": np.zeros(8, np.float32), "step": np.int32(3)}


def loss(params, x, key, *, layers=2, aux=False):
    h = x
    for _ in range(layers):
        h = jnp.tanh(h @ params["w"] + params["b"])
    value = (h**2).sum() + 0 * jax.random.key_data(key).astype(jnp.float32).sum()
    return (value, {"step": params["step"] + 1, "h": h}) if aux else value


def statically(wrap):
    return wrap(loss, static_argnames=("layers", "aux"))


def assert_same(got, want, tolerance=1e-4):
    got, want = jax.block_until_ready((got, want))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if g.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=tolerance, atol=tolerance)


@pytest.fixture
def plans(monkeypatch):
    """Counts the plans made."""
    made = []
    optimize = es.optimize

    def counted(*args, **kwargs):
        made.append(optimize(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("eggshard.planning.optimize", counted)
    return made


def test_calls_and_static_arguments(plans):
    planned, plain = statically(jit), statically(jax.jit)
    assert_same(planned(PARAMS, X, KEY), plain(PARAMS, X, KEY))
    assert_same(planned(PARAMS, X, KEY, layers=1, aux=True), plain(PARAMS, X, KEY, layers=1, aux=True))
    assert len(plans) == 2
    planned(PARAMS, X, KEY).block_until_ready()
    planned(PARAMS, X, key=KEY).block_until_ready()
    assert len(plans) == 2
    planned(PARAMS, put(X, "x"), KEY).block_until_ready()
    assert len(plans) == 3


def test_as_a_decorator_and_as_a_method():
    @jit(static_argnums=(1,))
    def power(x, n):
        """A docstring."""
        return x**n

    class Model:
        @jit
        def apply(self, x):
            return 2 * x

    assert power.__name__ == "power" and power.__doc__ == "A docstring."
    assert_same(power(X, 3), X**3)
    jax.tree_util.register_static(Model)
    assert_same(Model().apply(X), 2 * X)


def test_plan_and_lower():
    planned = statically(jit)
    plan = planned.plan(PARAMS, X, KEY)
    assert plan.mesh == es.Mesh({"x": 4, "y": 2}) and plan.collectives
    assert_same(plan.to_jax()(PARAMS, X, KEY), loss(PARAMS, X, KEY))
    compiled = planned.lower(PARAMS, X, KEY).compile()
    assert_same(compiled(PARAMS, X, KEY), loss(PARAMS, X, KEY))
    types = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (PARAMS, X, KEY))
    assert planned.plan(*types).mesh.size == 1
    assert planned.eval_shape(*types).shape == ()
    planned.clear_cache()
    assert_same(planned(PARAMS, X, KEY), loss(PARAMS, X, KEY))


def test_stated_shardings():
    planned = jit(lambda w, x: x @ w, in_shardings=(on("x", "y"), on("x")), out_shardings=on(None, "x"))
    got = planned(np.asarray(W), np.asarray(X))
    assert_same(got, X @ W)
    assert got.sharding == on(None, "x")
    with pytest.raises(ValueError, match="does not match the sharding"):
        planned(put(W, "y"), np.asarray(X))


def test_only_the_body_knows_the_mesh():
    planned = jit(lambda x: jax.lax.with_sharding_constraint(x + 1, on("y", "x")))
    got = planned(np.asarray(X))
    assert_same(got, X + 1)
    assert got.sharding == on("y", "x")


def test_one_device():
    assert_same(statically(jit)(jax.tree.map(np.asarray, PARAMS), np.asarray(X), KEY), loss(PARAMS, X, KEY))


def test_without_jit():
    with jax.disable_jit():
        assert_same(statically(jit)(PARAMS, X, KEY), loss(PARAMS, X, KEY))


def test_gradients_are_planned_and_lie_as_their_arguments(plans):
    planned, plain = statically(jit), statically(jax.jit)

    def gradient(f):
        return jax.value_and_grad(lambda w, x: f({**PARAMS, "w": w}, x, KEY, aux=True), has_aux=True)(W, X)

    got = gradient(planned)
    assert_same(got, gradient(plain))
    assert got[1].sharding == W.sharding
    assert len(plans) == 2
    # X is data: the backward program has no gradient of it.
    assert all(p.program.output_types[-1].shape != X.shape for p in plans[1:])
    assert_same(gradient(planned), gradient(plain))
    assert len(plans) == 2


def test_gradients_of_everything_with_integers_and_keys():
    def gradient(f):
        return jax.grad(lambda p, x: f(p, x, KEY), argnums=(0, 1), allow_int=True)(PARAMS, X)

    assert_same(gradient(statically(jit)), gradient(statically(jax.jit)))


def test_second_derivatives():
    def curvature(f):
        return jax.grad(lambda w: (jax.grad(lambda v: f(v, X))(w) ** 2).sum())(W)

    assert_same(curvature(jit(lambda w, x: jnp.tanh(x @ w).sum())), curvature(lambda w, x: jnp.tanh(x @ w).sum()), 1e-3)


def test_gradients_with_stated_shardings():
    def f(w, x):
        return jnp.tanh(x @ w).sum()

    planned = jit(f, in_shardings=(on("x", "y"), on(("x", "y"))), out_shardings=on())
    assert_same(jax.grad(planned)(np.asarray(W), np.asarray(X)), jax.grad(f)(W, X))


def test_inside_another_eggshard_jit_it_is_planned_as_one(plans):
    inner = statically(jit)

    def step(w, x):
        return jax.value_and_grad(lambda v: inner({**PARAMS, "w": v}, x, KEY))(w)

    got = jit(step)(W, X)
    assert len(plans) == 1
    assert_same(got, jax.value_and_grad(lambda v: loss({**PARAMS, "w": v}, X, KEY))(W))
    # Vectorising it there is vectorising a part of the outer program.
    stack = jnp.stack([W, W])
    assert_same(jit(jax.vmap(lambda w: step(w, X)[0]))(stack), jnp.stack([got[0], got[0]]))


def test_a_planned_function_inside_is_planned_again_as_a_part(plans):
    planned = jit(lambda x: x @ x.T, in_shardings=(on("x"),))

    def outer(x):
        return planned(x) * 2

    traced_before = jax.jit(outer)
    assert_same(traced_before(X), 2 * X @ X.T)
    assert_same(jit(traced_before)(X), 2 * X @ X.T)
    to_jax = es.optimize(jax.jit(lambda x: x @ x.T).lower(X), rewrites=[]).to_jax()
    assert_same(jit(lambda x: to_jax(x) + 1)(X), X @ X.T + 1)
    assert not any(op.name == "manual_computation" for p in plans for op in p.program.region.ops)


def test_inside_jax_jit(plans):
    stated = jit(lambda w, x: jnp.tanh(x @ w).sum(), in_shardings=(on("x", "y"), on("x")))
    got = jax.jit(jax.value_and_grad(lambda w, x: 2 * stated(w, x)))(W, X)
    assert_same(got, jax.value_and_grad(lambda w, x: 2 * jnp.tanh(x @ w).sum())(W, X))
    assert plans
    count = len(plans)
    unknown = jit(lambda w, x: jnp.tanh(x @ w).sum())
    assert_same(jax.jit(jax.grad(unknown))(W, X), jax.grad(lambda w: jnp.tanh(X @ w).sum())(W))
    assert len(plans) == count


def test_explicit_meshes():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    w, x = put(W, None, "y", mesh=mesh), put(X, "x", mesh=mesh)
    planned = jit(lambda w, x: jnp.tanh(x @ w))
    got = planned(w, x)
    assert got.sharding == on("x", "y", mesh=mesh) and jax.typeof(got).sharding.spec == P("x", "y")
    assert_same(jax.jit(lambda w, x: 2 * planned(w, x))(w, x), 2 * np.tanh(np.asarray(X) @ np.asarray(W)))
    with jax.set_mesh(mesh):
        assert_same(jax.grad(lambda w: planned(w, x).sum())(w), jax.grad(lambda w: jnp.tanh(x @ w).sum())(w))


def test_donated_state_keeps_its_place(plans):
    @partial(jit, donate_argnums=0)
    def step(state, x):
        return {"w": state["w"] + x.T @ x, "n": state["n"] + 1}, x.sum()

    state = {"w": put(np.zeros((8, 8), np.float32), "x", "y"), "n": np.int32(0)}
    for _ in range(3):
        before = state
        state, total = jax.block_until_ready(step(state, X))
        assert before["w"].is_deleted() and state["w"].sharding == on("x", "y")
    assert_same(state, {"w": 3 * X.T @ X, "n": jnp.int32(3)})
    assert len(plans) <= 2


def test_what_cannot_be_planned_runs_as_under_jax_jit():
    other = jax.make_mesh((8,), ("z",), axis_types=(AxisType.Auto,))

    def f(x):  # on two meshes
        x = jax.lax.with_sharding_constraint(x + 1, NamedSharding(MESH, P("x")))
        return jax.lax.with_sharding_constraint(x, NamedSharding(other, P("z")))

    with pytest.warns(EggshardWarning, match="cannot be planned"):
        assert_same(jit(f)(X), X + 1)
    with pytest.warns(EggshardWarning, match="cannot be planned"):
        assert_same(jax.grad(lambda x: jit(f)(x).sum())(X), jnp.ones_like(X))


def test_vmap_and_forward_mode_with_static_arguments():
    planned, plain = statically(jit), statically(jax.jit)
    for transformed in (lambda f: jax.vmap(f)(np.stack([W, W])), lambda f: jax.jvp(f, (W,), (W,))):
        got, want = (transformed(lambda w, f=f: f({**PARAMS, "w": w}, X, KEY)) for f in (planned, plain))
        jax.tree.map(assert_same, got, want)


def test_static_arguments_that_do_not_hash():
    planned = statically(jit)
    with pytest.raises(ValueError, match="[Nn]on-hashable"):
        planned(PARAMS, X, KEY, layers=[2])


@pytest.mark.slow
def test_a_training_loop():
    optax = pytest.importorskip("optax")
    optimizer = optax.adam(1e-2)

    def apply(params, x):
        @jax.checkpoint
        def layer(h, w):
            return jnp.tanh(h @ w), None

        return jax.lax.scan(layer, x, params["layers"])[0] @ params["out"]

    def train_step(state, batch):
        params, opt, key = state
        key, noise = jax.random.split(key)
        x = batch["x"] + 1e-3 * jax.random.normal(noise, batch["x"].shape)
        value, grads = jax.value_and_grad(lambda p: ((apply(p, x) - batch["y"]) ** 2).mean())(params)
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt, key), value

    def initial():
        rng = np.random.default_rng(1)
        params = {
            "layers": put(rng.normal(size=(3, 8, 8)).astype(np.float32) / 3, None, None, "y"),
            "out": put(rng.normal(size=(8, 4)).astype(np.float32), "y"),
        }
        return params, optimizer.init(params), jax.random.key(1)

    rng = np.random.default_rng(2)
    batch = {"x": put(rng.normal(size=(16, 8)).astype(np.float32), "x"), "y": put(np.ones((16, 4), np.float32), "x")}
    losses = {}
    for name, step in (
        ("planned", jit(train_step, donate_argnums=0)),
        ("plain", jax.jit(train_step, donate_argnums=0)),
    ):
        state = initial()
        losses[name] = []
        for _ in range(4):
            state, value = jax.block_until_ready(step(state, batch))
            losses[name].append(float(value))
    np.testing.assert_allclose(losses["planned"], losses["plain"], rtol=1e-4)
    assert losses["planned"][-1] < losses["planned"][0]


def test_warnings_are_rare():
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        result = statically(jit)(PARAMS, X, KEY).block_until_ready()
    assert np.isfinite(np.asarray(result)).all()
