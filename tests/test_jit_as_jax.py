"""What `jax.jit` does, `eggshard.jit` does too: with arrays of every size, in every memory, wherever results lie."""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402
from jax.experimental.custom_partitioning import custom_partitioning  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.emit.jax_primitive import DeviceModule, TransformationError  # noqa: E402
from eggshard.errors import EggshardWarning, LimitError  # noqa: E402

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
LIMITS = es.Limits(strategies=16, placements=4)
jit = partial(es.jit, limits=LIMITS)


def on(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


WITHOUT_ELEMENTS = {
    "sum": (jnp.sum, on(), on("x"), ones(64, 0)),
    "moved": (lambda a: a, on(None, "x"), on(), ones(0, 8)),
    "gathered": (lambda a: a, on(), on(None, "x"), ones(0, 8)),
    "sharded where it is empty": (lambda a: a * 2, on("x"), on("x"), ones(0, 8)),
    "sharded where it is not": (lambda a: a * 2, on(None, "y"), on(None, "x"), ones(0, 8)),
    "moved to where it is not": (lambda a: (a, a + 1), (on("x", "y"), on("y")), on(None, ("x", "y")), ones(0, 8)),
    "scattered in no batch": (jax.vmap(lambda a, i: a.at[i].add(1)), on("x"), on("y"), ones(0, 6),
                              np.zeros((0, 3), np.int32)),
    "scattered into nothing": (lambda a, i: a.at[i].add(1), on("x"), on("y"), ones(0), np.zeros(8, np.int32)),
    "summed over nothing": (lambda a: a.sum(0), on("x"), on(None, "x"), ones(0, 8)),
    "reshape": (lambda a: lax.reshape(a, (8, 0))[2:4], on(), on(), ones(2, 0, 4)),
    "roll": (lambda a: jnp.roll(a, 1, 0), on(), on(), ones(2, 0)),
    "dot": (lambda a, b: a @ b, on(), (on("x"), on()), ones(8, 0), ones(0, 8)),
    "concatenate": (lambda a, b: jnp.concatenate([a, b, a]), on("x"), (on("x"), on()), ones(8, 4), ones(0, 4)),
    "pad": (lambda a: jnp.pad(a, ((4, 4), (0, 0)), constant_values=3), on("x"), on("x"), ones(0, 4)),
    "update": (lambda a, b: lax.dynamic_update_slice(a, b, (0, 0)), on("x"), (on("x"), on()), ones(8, 4), ones(0, 4)),
    "sort": (lambda a: jnp.sort(a, 0), on("x"), on("x"), ones(8, 0)),
    "loop": (lambda a: lax.fori_loop(0, 3, lambda i, u: u + jnp.roll(u, 1, 1), a), on("x"), on("x"), ones(8, 0)),
    "scan": (lambda a: lax.scan(lambda c, x: (c + 1, c * x), jnp.float32(0), a), on(), on(None, "x"), ones(0, 8)),
    "scatter": (lambda a, i: a.at[i].add(1 + a[i]), on("x"), (on("x"), on()), ones(8, 4), np.zeros(0, np.int32)),
    "convolution": (lambda a, k: lax.conv(a, k, (1, 1), "SAME"), on("x"), (on("x"), on()), ones(8, 3, 0, 4),
                    ones(2, 3, 1, 1)),
    "mean": (jnp.mean, on(), on("x"), ones(8, 0)),
    "transpose": (lambda a: a.T, on("x"), on("x"), ones(8, 0)),
}


@pytest.mark.parametrize("name", some(WITHOUT_ELEMENTS, 7))
def test_arrays_without_elements(name: str) -> None:
    function, out, given, *arrays = WITHOUT_ELEMENTS[name]
    plain = jax.jit(function, in_shardings=given, out_shardings=out)
    try:
        want = jax.tree.leaves(plain(*arrays))
    except AssertionError as error:  # JAX before 0.10 loses the sharding of results without elements
        pytest.skip(str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        got = jax.tree.leaves(jit(function, in_shardings=given, out_shardings=out)(*arrays))
        lowered = plain.lower(*arrays)
        plan = es.optimize(lowered)
        direct = jax.tree.leaves(plan.to_jax()(*arrays))
    for g in (*got, *direct):  # XLA leaves them whole, and then JAX cannot read its own arrays
        assert {s.data.shape for s in g.addressable_shards} == {g.sharding.shard_shape(g.shape)}
    for g, d, w in zip(got, direct, want, strict=True):
        assert np.asarray(g).shape == np.asarray(d).shape == w.shape
        assert g.sharding.is_equivalent_to(w.sharding, w.ndim) and d.sharding.is_equivalent_to(w.sharding, w.ndim)
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    for g, s, w in zip(got, plan.run(*(arrays[i] for i in kept)), want, strict=True):
        assert g.shape == s.shape == w.shape and g.dtype == s.dtype == w.dtype
        if w.size:
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w))
            np.testing.assert_array_equal(s, np.asarray(w))


HERE, HOST = on("x"), on("x").with_memory_kind("pinned_host")


@pytest.mark.parametrize(("function", "given", "options"), [
    (lambda a: a * 2, HERE, {"out_shardings": HOST}), (lambda a: a * 2, HOST, {"out_shardings": HERE}),
    (lambda a: jax.device_put(a, HERE) * 2, HOST, {}), (lambda a: a, HOST, {"out_shardings": HOST}),
    (lambda a: a * 2, HOST, {}), (lambda a: jax.device_put(a * 2, HOST), HERE, {}),
    (lambda a: (a * 2, jax.device_put(a, HERE).T), HOST, {}),
    (lambda a: jax.device_put(jax.device_put(a * 2, HOST), HERE) * 3, HERE, {}),
])
@pytest.mark.filterwarnings("ignore::eggshard.EggshardWarning")
def test_results_lie_in_the_memory_that_jax_puts_them_in(function: Any, given: Any, options: dict[str, Any]) -> None:
    array = jax.device_put(ones(16, 8), given)
    try:
        want = jax.tree.leaves(jax.jit(function, **options)(array))
    except jax.errors.JaxRuntimeError as error:  # XLA before JAX 0.10
        pytest.skip(str(error))
    got = jax.tree.leaves(jit(function, **options)(array))
    for g, w in zip(got, want, strict=True):
        assert g.sharding.memory_kind == w.sharding.memory_kind and g.sharding.is_equivalent_to(w.sharding, g.ndim)
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_functions_that_partition_themselves_run_as_xla_partitions_them() -> None:
    @custom_partitioning
    def own(x: Any) -> Any:
        return jnp.sin(x)

    own.def_partition(
        partition=lambda mesh, args, result: (mesh, jnp.sin, result.sharding, (args[0].sharding,)),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding, sharding_rule="i j -> i j",
    )
    planned = jit(lambda x: own(x) + 1, in_shardings=on("x"), out_shardings=on("x"))
    with pytest.warns(EggshardWarning, match="<lambda> calls a function that partitions itself"):
        got = planned(ones(16, 8))
    np.testing.assert_allclose(np.asarray(got), np.sin(1) + 1, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        planned(ones(16, 8))
    plan = es.optimize(jax.jit(lambda x: own(x) + 1, in_shardings=on("x"), out_shardings=on("x")).lower(ones(16, 8)))
    with pytest.warns(EggshardWarning, match="partitions itself"):
        got = plan.to_jax()(jax.device_put(ones(16, 8), on("x")))
    np.testing.assert_allclose(np.asarray(got), np.sin(1) + 1, rtol=1e-6)


def test_what_xla_does_not_compile_runs_as_under_jax_jit() -> None:
    class FailsWhenCompiled:
        def __call__(self, *args: Any) -> Any:
            raise jax.errors.JaxRuntimeError("INTERNAL: no such form")

        lower = __call__

    planned = jit(jnp.sin, in_shardings=on("x"))
    made = planned._new_jitted
    planned._new_jitted = lambda *key: made(*key)._replace(function=FailsWhenCompiled())
    with pytest.warns(EggshardWarning, match="XLA does not compile the plan of sin, which runs as jax.jit would"):
        got = planned(ones(16, 8))
    np.testing.assert_allclose(np.asarray(got), np.sin(1), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        planned(ones(16, 8))


def test_errors_of_running_are_not_taken_for_errors_of_compiling() -> None:
    class FailsWhenRun:
        def __call__(self, *args: Any) -> Any:
            raise jax.errors.JaxRuntimeError("INTERNAL: in the middle of running")

        def lower(self, *args: Any) -> Any:
            return jax.jit(jnp.sin).lower(*args)

    planned = jit(jnp.sin, in_shardings=on("x"))
    made = planned._new_jitted
    planned._new_jitted = lambda *key: made(*key)._replace(function=FailsWhenRun())
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        with pytest.raises(jax.errors.JaxRuntimeError, match="in the middle"):
            planned(ones(16, 8))


def net(w: Any, x: Any) -> Any:
    for a, b in zip(w[::2], w[1::2], strict=True):
        x = x + jnp.tanh(x @ a) @ b
    return x


def step(w: Any, x: Any) -> Any:
    value, gradient = jax.value_and_grad(lambda w: (net(w, x) ** 2).mean())(w)
    # Uphill: parameters and gradients are positive, so no digits cancel and an error of the gradient is seen.
    return jax.tree.map(lambda p, g: p + 0.1 * g, w, gradient), value


WEIGHTS = [ones(8, 16) / 8, ones(16, 8) / 16] * 2


@pytest.mark.parametrize(("function", "arrays", "places"), some([
    (step, (WEIGHTS, ones(16, 8)), ([on()] * 4, on("x"))),
    (step, (WEIGHTS, ones(16, 8)), ([on(None, "y"), on("y")] * 2, on("x"))),
    (step, (WEIGHTS, ones(16, 8)), ([on("x", "y"), on("y", "x")] * 2, on(("x", "y")))),
    (lambda a, b: a + b, (ones(16, 16), ones(16, 16)), (on("x"), on(None, "y"))),
    (lambda a: a.reshape(4, 4, 16), (ones(16, 16),), (on("x", "y"),)),
    (lambda a: jnp.pad(a, ((0, 3), (0, 0))), (ones(16, 16),), (on("x", "y"),)),
    (lambda a: (a[1:6], jnp.ones((8, 8)), a.T, a.sum(0)), (ones(16, 16),), (on("x", "y"),)),
    (lambda a: lax.with_sharding_constraint(a * 2, on(None, "y")), (ones(16, 16),), (on("x"),)),
], 4, rows=True))
def test_unstated_results_lie_where_jax_puts_them(function: Any, arrays: Any, places: Any) -> None:
    given = jax.device_put(arrays, places)
    got, want = (jax.tree.leaves(made(function)(*given)) for made in (jit, jax.jit))
    for g, w in zip(got, want, strict=True):
        assert g.sharding.is_equivalent_to(w.sharding, g.ndim)
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-5)


@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_training_loop_plans_once(donated: tuple[int, ...]) -> None:
    planned = jit(step, donate_argnums=donated)
    w, x = jax.device_put((WEIGHTS, ones(16, 8)), ([on(None, "y"), on("y")] * 2, on("x")))
    for _ in range(3):
        w, _ = planned(w, x)
    assert len(planned._plans) == 1


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """What other tests left behind is not looked through."""
    gc.freeze()
    yield
    gc.unfreeze()


def modules() -> int:
    gc.collect()
    return sum(type(o) is DeviceModule for o in gc.get_objects())


@pytest.mark.usefixtures("only_new_objects")
def test_caches_are_bounded_and_return_their_memory() -> None:
    before, planned = modules(), jit(lambda x, n: (x * n).T, in_shardings=on("x"), static_argnums=1, cache_size=3)
    for n in range(1, 6):
        planned(ones(8, 8), n)
        planned(ones(8 * n, 4), 1)
    assert modules() - before == len(planned._plans) == 3
    planned(ones(40, 4), 1)
    assert modules() - before == 3
    planned.clear_cache()
    assert modules() == before
    assert planned(ones(8, 8), 2).sharding.is_equivalent_to(on(None, "x"), 2)


@pytest.mark.usefixtures("only_new_objects")
def test_gradients_return_their_memory() -> None:
    before, planned = modules(), jit(lambda x: (x**2).sum(), in_shardings=on("x"))
    np.testing.assert_array_equal(jax.grad(planned)(ones(8, 8)), 2 * ones(8, 8))
    planned.clear_cache()
    assert modules() == before


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_cache_sizes_that_are_none(size: Any) -> None:
    with pytest.raises(LimitError, match="cache_size"):
        jit(jnp.sin, cache_size=size)


def curved(x: Any) -> Any:
    return (jnp.sin(x) ** 2).sum()


@pytest.mark.parametrize("transformed", some([
    lambda f, x: jax.linearize(f, x)[1](x), lambda f, x: jax.jit(lambda x: jax.linearize(f, x)[1](x))(x),
    lambda f, x: jax.hessian(f)(x), lambda f, x: jax.jvp(f, (x,), (x,)), lambda f, x: jax.jvp(jax.jit(f), (x,), (x,)),
    lambda f, x: jax.jacfwd(f)(x), lambda f, x: jax.jacfwd(jax.jacrev(f))(x), lambda f, x: jax.jacrev(jax.grad(f))(x),
    lambda f, x: jax.jvp(jax.grad(f), (x,), (x,)), lambda f, x: jax.vmap(f)(np.stack([x, x])),
    lambda f, x: jax.vmap(jax.grad(f))(np.stack([x, x])),
    lambda f, x: jax.grad(lambda y: jax.vmap(f)(y).sum())(x[None]),
    lambda f, x: jax.vmap(jax.vmap(f))(np.stack([x, x])[None]), lambda f, x: jax.vmap(f, 1)(np.stack([x, x], 1)),
    lambda f, x: jax.grad(lambda y: jax.jvp(f, (y,), (y,))[1])(x),
], 8))
def test_transformations(transformed: Any) -> None:
    got, want = (transformed(made(curved, in_shardings=on("x")), ones(8) / 8) for made in (jit, jax.jit))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), got, want)


def test_batched_and_linearized_programs_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_programs = []
    monkeypatch.setattr("eggshard.planning.optimize", lambda lowered, optimize=es.optimize, **options:
                        planned_programs.append(lowered) or optimize(lowered, **options))
    planned, x = jit(curved, in_shardings=on("x")), ones(8)
    jax.vmap(planned)(np.stack([x, x]))
    assert len(planned_programs) == 1
    jax.jvp(planned, (x,), (x,))
    assert len(planned_programs) == 3  # the forward program, and that of the tangents
    jax.hessian(planned)(x)
    jax.hessian(planned)(x)
    assert len(planned_programs) == len({p.as_text() for p in planned_programs})


def test_forward_mode_with_shardings_in_types() -> None:
    mesh = jax.make_mesh((4,), ("x",), (AxisType.Explicit,))
    with jax.set_mesh(mesh):
        a = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("x")))
        w = jax.device_put(np.full((4, 4), 0.1, np.float32), NamedSharding(mesh, P()))
        for transformed in (jax.jacfwd, jax.jacrev):
            got, want = (transformed(made(lambda a, w: jnp.tanh(a @ w).sum(1)), 1)(a, w) for made in (jit, jax.jit))
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_batched_axes_that_have_names() -> None:
    centred = jit(lambda x: x - lax.pmean(x, "i"))
    np.testing.assert_array_equal(jax.vmap(centred, axis_name="i")(np.array([1.0, 3.0])), [-1, 1])


def test_a_plan_has_no_transpose_where_it_is_linear() -> None:
    with pytest.raises(TransformationError, match=r"e\.g\. eggshard\.jit\("):
        jax.linear_transpose(jit(lambda x: 2 * x, in_shardings=on("x")), ones(8))(ones(8))


def test_types_and_stages() -> None:
    planned = jit(curved, in_shardings=on("x"))
    assert inspect.signature(planned) == inspect.signature(curved)
    assert planned.trace(ones(8)).out_info.shape == () == planned.eval_shape(ones(8)).shape
    assert planned.trace(ones(8)).lower().as_text() == planned.lower(ones(8)).as_text()


def test_reverse_mode_over_reverse_mode() -> None:
    planned, plain = (made(lambda x: (jnp.sin(x) ** 2).sum(), in_shardings=on("x")) for made in (jit, jax.jit))
    for transformed in (lambda f: jax.grad(lambda x: jax.grad(f)(x).sum()), lambda f: jax.value_and_grad(jax.jit(f)),
                        lambda f: lambda x: lax.scan(lambda c, _: (c + f(c * x), None), 0.0, None, length=2)):
        got, want = transformed(planned)(ones(8)), transformed(plain)(ones(8))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), got, want)


def test_exported_and_read_back() -> None:
    """Through bytes; and what `jax.export` makes of a plain function can be planned."""
    pytest.importorskip("flatbuffers")
    weights = on(None, "x")
    options = {"in_shardings": (on("x"), weights), "out_shardings": on("x")}
    planned, plain = (made(lambda a, w: jnp.tanh(a @ w) @ w, **options) for made in (jit, jax.jit))
    a = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    read = export.deserialize(export.export(planned)(a, a).serialize())
    called = jax.jit(read.call, in_shardings=options["in_shardings"])
    np.testing.assert_allclose(called(a, a), plain(a, a), rtol=1e-5)
    text, plan = called.lower(a, a).compile().as_text(), planned.plan(a, a)
    assert text.count(" all-gather(") == plan.collectives["all-gather"]
    again = es.optimize(export.export(plain)(a, a).mlir_module(), limits=LIMITS)
    assert again.input_placements == plan.input_placements and again.collectives == plan.collectives
