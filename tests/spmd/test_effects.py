"""Effects in planned programs: every callback runs as often as in the unsharded program, used or not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.errors import LoweringError, VerificationError
from eggshard.steps.authored_steps import OnFirstDevice

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


def mesh(*sizes: int) -> Mesh:
    return jax.make_mesh(sizes or (2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def planned(function: Any, m: Mesh | None = None) -> es.Plan:
    return es.optimize(jax.jit(function, in_shardings=NamedSharding(m or mesh(), P("x", "y"))).lower(X))


def run(plan: es.Plan, log: list[Any]) -> np.ndarray:
    log.clear()
    result = np.asarray(plan.to_jax()(X))
    jax.effects_barrier()
    return result


def test_callbacks_run_once_and_their_results_reach_all_devices() -> None:
    log: list[Any] = []

    def told(name: str, value: Any) -> Any:
        log.append((name, np.shape(value)))
        return np.float32(np.sum(value) + 1)

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(("debug", v.shape)), x)
        y = x * 2
        used = io_callback(lambda v: told("used", v), SCALAR, y)
        io_callback(lambda v: told("unused", v), SCALAR, used)
        io_callback(lambda v: told("unused", v), SCALAR, used)
        return y + used

    plan = planned(f)
    assert sum(isinstance(s.action, OnFirstDevice) for s in plan.steps) == 4
    for each in (plan, plan.baseline):
        result = run(each, log)
        assert sorted(log) == [("debug", (8, 16)), ("unused", ()), ("unused", ()), ("used", (8, 16))]
        np.testing.assert_allclose(result, 2 * X + (2 * X).sum() + 1, rtol=1e-4)


@pytest.mark.parametrize("sizes", [(2, 4), (1, 1)])
def test_inside_loops_and_branches(sizes: tuple[int, ...]) -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            jax.debug.callback(lambda i: log.append(int(i)), i)
            return lax.cond(i == 1, lambda h: h + io_callback(lambda: (log.append("branch"), np.float32(1))[1], SCALAR),
                            lambda h: h * 2, h)  # fmt: skip

        return lax.fori_loop(0, 3, body, x)

    plan = planned(f, mesh(*sizes))
    result = run(plan, log)
    assert sorted(map(str, log)) == ["0", "1", "2", "branch"]
    np.testing.assert_allclose(result, (2 * X + 1) * 2, rtol=1e-6)


def test_results_of_every_kind_arrive_bit_for_bit() -> None:
    kinds = [np.array([-0.0, np.nan, np.inf], np.float32), np.array([-0.0, 1.5], jnp.bfloat16),
             np.array([True, False]), np.array([-5, 7], np.int8), np.array([1 - 2j], np.complex64)]
    shapes = [jax.ShapeDtypeStruct(k.shape, k.dtype) for k in kinds]
    m = mesh()
    jitted = jax.jit(lambda x: io_callback(lambda _: kinds, shapes, x), in_shardings=NamedSharding(m, P("x", "y")))
    got = es.optimize(jitted.lower(X)).to_jax()(X)
    for g, want in zip(got, kinds, strict=True):
        assert np.asarray(g).tobytes() == want.tobytes()


def test_a_manual_computation_calls_back_on_every_device() -> None:
    log: list[Any] = []

    def body(v: Any) -> Any:
        jax.debug.callback(lambda i: log.append(int(i)), lax.axis_index("x") * 4 + lax.axis_index("y"))
        return v + 1

    plan = planned(jax.shard_map(body, mesh=mesh(), in_specs=P("x", "y"), out_specs=P("x", "y")))
    np.testing.assert_array_equal(run(plan, log), X + 1)
    assert sorted(log) == list(range(8))


def test_under_eggshard_jit() -> None:
    log: list[Any] = []

    @es.jit
    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(v.shape), x)
        return x.sum()

    x = jax.device_put(X, NamedSharding(mesh(), P("x", "y")))
    for _ in range(2):
        np.testing.assert_allclose(f(x), X.sum(), rtol=1e-4)
    jax.effects_barrier()
    assert log == [(8, 16)] * 2


def test_text_has_no_callbacks() -> None:
    m = mesh()
    text = jax.jit(
        lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(X.shape, X.dtype), x),
        in_shardings=NamedSharding(m, P("x", "y")),
    ).lower(X).as_text()  # fmt: skip
    plan = es.optimize(text)
    with pytest.raises(LoweringError, match="callbacks are not at hand"):
        plan.to_jax()(X)
    with pytest.raises(VerificationError, match="nothing was compared"):
        plan.verify()


def test_ordered_effects_are_refused() -> None:
    def f(x: Any) -> Any:
        io_callback(lambda v: None, None, x.sum(), ordered=True)
        return x

    with pytest.raises(LoweringError, match="ordered=False"):
        planned(f, mesh(1, 1))
