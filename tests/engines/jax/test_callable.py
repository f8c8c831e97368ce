"""Plans as JAX functions: signatures, devices, meshes, and the transformations that they refuse."""

import re
import subprocess
import sys
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
from eggshard.engines.jax.callable import run_on_devices, run_unsharded, to_jax  # noqa: E402
from eggshard.errors import EggshardError, LoweringError  # noqa: E402
from eggshard.hlo.collectives import count_collectives  # noqa: E402


def make_mesh(shape=(4, 2), names=("x", "y"), kind=AxisType.Auto, order=None):
    devices = np.array(jax.devices()[: int(np.prod(shape))])
    return jax.sharding.Mesh(devices[order or slice(None)].reshape(shape), names, axis_types=(kind,) * len(shape))


MESH = make_mesh()
PLAN = partial(es.optimize, rewrites=[])


def put(array, *spec, mesh=MESH):
    return jax.device_put(np.asarray(array), NamedSharding(mesh, P(*spec)))


def matmul(x, w):
    return jnp.tanh(x @ w)


X = np.arange(128, dtype=np.float32).reshape(16, 8) / 128
W = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
WANT = np.tanh(X @ W)


@pytest.fixture(scope="module")
def planned():
    out = NamedSharding(MESH, P("y", "x"))
    lowered = jax.jit(matmul, out_shardings=out).lower(put(X, ("x", "y")), put(W, None, "y"))
    return to_jax(PLAN(lowered))


def test_arguments_on_the_planned_mesh(planned):
    got = planned(put(X, ("x", "y")), put(W, None, "y"))
    np.testing.assert_allclose(got, WANT, rtol=1e-5)
    assert got.sharding == NamedSharding(MESH, P("y", "x"))


def test_arguments_are_moved_to_where_they_were_planned(planned):
    np.testing.assert_allclose(planned(put(X, "y"), put(W, "x", "y")), WANT, rtol=1e-5)


def test_host_arrays(planned):
    got = planned(X, jnp.asarray(W))
    np.testing.assert_allclose(got, WANT, rtol=1e-5)
    assert got.sharding == NamedSharding(MESH, P("y", "x"))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_mesh_of_other_names_and_device_order(planned, kind):
    mesh = make_mesh(names=("a", "b"), kind=kind, order=[3, 1, 0, 2, 7, 6, 4, 5])
    got = planned(put(X, ("a", "b"), mesh=mesh), put(W, None, "b", mesh=mesh))
    np.testing.assert_allclose(got, WANT, rtol=1e-5)
    assert [d.id for d in got.sharding.mesh.devices.flat] == [3, 1, 0, 2, 7, 6, 4, 5]


def test_explicit_mesh_keeps_its_types(planned):
    mesh = make_mesh(kind=AxisType.Explicit)
    got = planned(put(X, ("x", "y"), mesh=mesh), put(W, None, "y", mesh=mesh))
    assert got.sharding == NamedSharding(mesh, P("y", "x"))
    doubled = jax.jit(lambda x, w: planned(x, w) * 2)(put(X, ("x", "y"), mesh=mesh), put(W, None, "y", mesh=mesh))
    np.testing.assert_allclose(doubled, 2 * WANT, rtol=1e-5)
    assert doubled.sharding == NamedSharding(mesh, P("y", "x"))


def test_mesh_in_effect(planned):
    mesh = make_mesh(order=[7, 6, 5, 4, 3, 2, 1, 0], kind=AxisType.Explicit)
    with jax.set_mesh(mesh):
        assert planned(X, W).sharding.mesh == mesh


def test_inside_another_jit(planned):
    def twice(x, w):
        a = planned(x, w)
        return a + planned(x * 2, w), a

    got, _ = jax.jit(twice)(put(X, ("x", "y")), put(W, None, "y"))
    np.testing.assert_allclose(got, WANT + np.tanh(2 * X @ W), rtol=1e-5)


def test_inside_another_jit_on_a_mesh_of_the_same_name(planned):
    flat = make_mesh((8,), ("all",))
    x, w = put(X, "all", mesh=flat), put(W, mesh=flat)
    np.testing.assert_allclose(jax.jit(lambda x, w: planned(x + 0, w))(x, w), WANT, rtol=1e-5)


def test_compiled_bytes_are_those_promised(planned):
    text = planned.lower(put(X, ("x", "y")), put(W, None, "y")).compile().as_text()
    assert count_collectives(text, 8).busiest_device_bytes == planned.plan.wire_bytes > 0


def test_a_call_plans_and_traces_nothing_again(planned):
    x, w = put(X, ("x", "y")), put(W, None, "y")
    first = planned(x, w).block_until_ready()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(planned), "apply", None)  # tracing would call it
        again = planned(x, w).block_until_ready()
    np.testing.assert_array_equal(np.asarray(again), np.asarray(first))
    assert again.sharding == first.sharding


def test_checkpointed_outside_of_any_jit(planned):
    """JAX then calls what it traced on the arrays as they are: of NumPy, on no devices."""
    np.testing.assert_allclose(jax.checkpoint(planned)(X, W), WANT, rtol=1e-5)


REFUSED = {
    "structure": (lambda f: f(X), "arguments of structure"),
    "shape": (lambda f: f(X[:8], W), r"args\[0\] of matmul is float32\[8, 8\]"),
    "element type": (lambda f: f(X, W.astype(np.int32)), r"args\[1\] of matmul is int32"),
    "mesh shape": (lambda f: f(put(X, "x", mesh=make_mesh((2, 4))), W), "mesh of another shape"),
    "too few devices": (lambda f: f(put(X, "x", mesh=make_mesh((2, 2))), W), "mesh of another shape"),
    "one device": (lambda f: f(jax.device_put(X, jax.devices()[1]), W), "lies on 1 devices"),
    "device order": (
        lambda f: f(put(X, "x"), put(W, mesh=make_mesh(order=[1, 0, 2, 3, 4, 5, 6, 7]))),
        "in another order",
    ),
    "jit without devices": (lambda f: jax.jit(f)(X, W), "in a context with 1"),
    "grad": (lambda f: jax.grad(lambda x: f(x, W).sum())(put(X)), "no derivative.*eggshard.jit"),
    "jvp": (lambda f: jax.jvp(lambda x: f(x, W), (X,), (X,)), "no derivative"),
    "grad in jit": (lambda f: jax.jit(jax.grad(lambda x: f(x, W).sum()))(put(X)), "no derivative"),
    "vmap": (lambda f: jax.vmap(lambda x: f(x, W))(np.stack([X, X])), "vmap"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(planned, case):
    call, message = REFUSED[case]
    with pytest.raises(EggshardError, match=re.compile(message, re.DOTALL)):
        call(planned)


def test_more_devices_than_present():
    text = """
      module { sdy.mesh @mesh = <["x"=16]>
        func.func @main(%a: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<16xf32> {
          %0 = stablehlo.negate %a : tensor<16xf32>
          return %0 : tensor<16xf32> } }"""
    with pytest.raises(LoweringError, match="16 devices.*there are 8"):
        to_jax(PLAN(text))(np.ones(16, np.float32))


def test_programs_from_text_take_inputs_one_by_one():
    ids = "3, 1, 0, 2, 7, 6, 4, 5"
    text = f"""
      module {{ sdy.mesh @mesh = <["x"=4, "y"=2], device_ids=[{ids}]>
        func.func @main(%a: tensor<16x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{"y"}}]>}})
            -> (tensor<16x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{"x"}}]>}}) {{
          %0 = stablehlo.negate %a : tensor<16x8xf32>
          return %0 : tensor<16x8xf32> }} }}"""
    plan = PLAN(text)
    (got,) = to_jax(plan)(X)
    np.testing.assert_array_equal(got, -X)
    np.testing.assert_array_equal(run_on_devices(plan, [X])[0], -X)
    np.testing.assert_array_equal(run_unsharded(plan.program, [X])[0], -X)


def test_sub_axes_at_the_boundary():
    plan = es.plan_reshard((16, 8), "float32", {"x": 8}, '[{"x":(1)2}, {}]', '[{}, {"x":(2)4}]')
    (got,) = to_jax(plan)(X)
    np.testing.assert_array_equal(got, X)
    assert {s.data.shape for s in got.addressable_shards} == {(16, 2)}
    np.testing.assert_array_equal(to_jax(plan)(got)[0], X)


def test_the_calling_convention_of_jit():
    def f(state, batch, *, scale, mode):
        key, count, table = state["key"], state["count"], state["table"]
        assert mode == "sum"
        noise = jax.random.key_data(key)[0].astype(jnp.float32)
        table = jax.lax.with_sharding_constraint(table + batch["x"] * scale + 0 * noise, NamedSharding(MESH, P("x")))
        out = {"key": jax.random.clone(key), "count": count + 1, "table": table}
        return out, (count * 2, None)

    state = {"key": jax.random.key(7), "count": 3, "table": put(X, "x")}
    batch = {"x": put(X, None, "y"), "unused": np.zeros(5)}
    jitted = jax.jit(f, static_argnames="mode", donate_argnums=0)
    planned = to_jax(PLAN(jitted.lower(state, batch, scale=2.0, mode="sum")))
    want = jax.jit(f, static_argnames="mode")(state, batch, scale=2.0, mode="sum")
    got = planned(state, batch, scale=2.0)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype and getattr(g, "weak_type", None) == getattr(w, "weak_type", None)
        raw = jax.random.key_data if jax.dtypes.issubdtype(w.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(raw(g), raw(w))
    assert state["table"].is_deleted() and not batch["x"].is_deleted()
    again = planned(got[0], batch, scale=2.0)
    np.testing.assert_array_equal(again[0]["count"], 5)


def test_results_without_data():
    gradient = jax.jit(jax.grad(lambda n: 2.0 * n.sum(), allow_int=True))
    got = to_jax(PLAN(gradient.lower(np.arange(3))))(np.arange(3))
    assert got.shape == (3,) and got.dtype == jax.dtypes.float0


def test_one_device():
    planned = to_jax(PLAN(jax.jit(matmul).lower(X, W)))
    np.testing.assert_allclose(planned(X, W), WANT, rtol=1e-5)
    # Without collectives it also runs where others need several devices.
    np.testing.assert_allclose(jax.jit(planned)(put(X, "x"), put(W)), WANT, rtol=1e-5)


def test_without_jit(planned):
    with jax.disable_jit():
        np.testing.assert_allclose(planned(X, W), WANT, rtol=1e-5)


def test_linear_algebra_in_a_process_that_has_lowered_none(tmp_path):
    def factor(x):
        return jnp.linalg.cholesky(x @ x.mT + 8 * jnp.eye(8, dtype=x.dtype))

    saved = tmp_path / "plan.json"
    saved.write_text(es.optimize(jax.jit(factor).lower(np.zeros((4, 8, 8), np.float32))).to_json())
    code = f"import eggshard; print(eggshard.Plan.from_json(open({str(saved)!r}).read()).verify(engines=('jax',)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "equal to the unsharded program" in done.stdout, done
