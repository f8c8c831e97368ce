"""Codes under shard_map are planned as global programs where that is cheaper, and as they are written elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.frontends.globalization.per_device_codes import SHAPE, Codes, mesh_of, shift
from tests.slowness import some

import eggshard as es
from eggshard.planner.optimization import AS_GLOBAL

ROW = mesh_of(x=8)


def heat(steps: int, loop: bool = False, ring: bool = True) -> Any:
    """The lowered code: a halo of one row is exchanged in every step."""
    def step(_: Any, u: Any) -> Any:
        before = lax.ppermute(u[-1:], "x", shift(8, 1, ring))
        after = lax.ppermute(u[:1], "x", shift(8, -1, ring))
        wide = jnp.concatenate([before, u, after])
        return u + 0.1 * (wide[:-2] - 2 * u + wide[2:])

    def code(u: Any) -> Any:
        if loop:
            return lax.fori_loop(0, steps, step, u)
        for i in range(steps):
            u = step(i, u)
        return u

    mapped = jax.jit(jax.shard_map(code, mesh=ROW, in_specs=P("x"), out_specs=P("x")))
    return mapped.lower(jax.ShapeDtypeStruct((8192, 64), np.float32, sharding=NamedSharding(ROW, P("x"))))


@pytest.mark.parametrize("ring", [True, False])
def test_ten_steps_exchange_once(ring: bool) -> None:
    plan = es.optimize(heat(10, ring=ring))
    assert plan.baseline.collectives == {"collective-permute": 20}
    assert plan.collectives == {"collective-permute": 2}
    assert plan.cost.total < 0.5 * plan.baseline.cost.total
    assert AS_GLOBAL in plan.search.notes


def test_loops_exchange_once_for_many_iterations() -> None:
    plan = es.optimize(heat(20, loop=True))
    assert plan.baseline.collectives == {"collective-permute": 40}
    assert sum(plan.collectives.values()) <= 4


def test_plans_are_of_what_the_author_wrote() -> None:
    lowered = heat(3)
    plan, program = es.optimize(lowered), es.load(lowered)
    assert plan.program == program and plan.prove().equal
    x = np.random.default_rng(0).standard_normal((8192, 64)).astype(np.float32)
    wanted = np.asarray(lowered.compile()(jax.device_put(x, NamedSharding(ROW, P("x")))))
    for made in (plan.run(x)[0], es.Plan.from_json(plan.to_json()).run(x)[0], np.asarray(plan.to_jax()(x))):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    print(plan), plan.explain(0)  # values of the program keep their numbers


def test_no_gap_is_claimed_of_code_that_stays() -> None:
    mapped = jax.shard_map(lambda u: jnp.sort(u, axis=0) + lax.ppermute(u, "x", shift(8, 1, True)), mesh=ROW,
                           in_specs=P("x"), out_specs=P("x"))
    plan = es.optimize(jax.jit(mapped).lower(np.zeros((64, 4), np.float32)))
    assert plan.gap is None and "manual computations otherwise than they are written" in plan.certificate


def test_a_plan_that_takes_much_more_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eggshard.planner.optimization.MOST_MEMORY", 0.5)
    monkeypatch.setattr("eggshard.planner.optimization.LITTLE_MEMORY", 0)
    assert es.optimize(heat(2)).collectives == {"collective-permute": 4}


def test_a_reading_that_fails_leaves_the_plan_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(program: es.Program) -> None:
        raise IndexError("no such dimension")

    monkeypatch.setattr("eggshard.planner.optimization.globalized", fail)
    with pytest.warns(es.errors.FallbackWarning, match="planned as it is written .IndexError: no such dimension"):
        plan = es.optimize(heat(2))
    assert plan.collectives == {"collective-permute": 4}


@pytest.mark.parametrize("seed", some(range(24), 1))
def test_plans_of_drawn_codes_on_xla(seed: int) -> None:
    codes = Codes(seed)
    arrays = [np.random.default_rng(seed + n).integers(-9, 9, SHAPE, np.int32) for n in range(2)]
    sharding = NamedSharding(codes.mesh, P(*codes.axes))
    given = [jax.ShapeDtypeStruct(SHAPE, np.int32, sharding=sharding) for _ in arrays]
    plan = es.optimize(codes.function.lower(*given))
    for made, wanted in zip(plan.to_jax()(*arrays), codes.function(*arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted))
