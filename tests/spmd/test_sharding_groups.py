"""Sharding groups (JAX's shard_alike): what is returned lies as its group does, what is inside is planned freely."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.shard_alike import shard_alike
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es

M = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X, Y = np.random.default_rng(0).standard_normal((2, 8, 16)).astype(np.float32)


def planned(function: Any, *specs: P) -> es.Plan:
    jitted = jax.jit(function, in_shardings=[NamedSharding(M, s) for s in specs])
    plan = es.optimize(jitted.lower(X, Y))
    want = jax.tree.leaves(jitted(X, Y))
    for got in (plan.run(X, Y), jax.tree.leaves(plan.to_jax()(X, Y)), plan.baseline.run(X, Y)):
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
    return plan


def test_a_returned_member_lies_as_the_stated_one() -> None:
    plan = planned(lambda x, y: shard_alike(x, y * 2)[1], P("x", "y"), P())
    assert [str(p) for p in plan.output_placements] == ["(x, y)"] and not plan.collectives


def test_returned_members_lie_alike_where_nothing_is_stated() -> None:
    plan = planned(lambda x, y: shard_alike(jnp.sin(x), y * 2), P("y"), P("y"))
    assert len(set(plan.output_placements)) == 1
    plan = planned(lambda x, y: shard_alike(jnp.sin(x), y * 2), P("y"), P(None, "x"))
    assert len(set(plan.output_placements)) == 1


def test_a_member_that_nothing_else_needs_still_speaks() -> None:
    def function(x: Any, y: Any) -> Any:
        unused = jax.lax.with_sharding_constraint(x + 1, NamedSharding(M, P("x", "y")))
        return shard_alike(unused, y * 2)[1]

    plan = planned(function, P(), P())
    assert [str(p) for p in plan.output_placements] == ["(x, y)"]
    assert "add" not in str(plan)


def test_members_inside_a_program_are_planned_freely() -> None:
    def function(x: Any, y: Any) -> Any:
        a, b = shard_alike(jnp.sin(x), y * 2)
        return (a @ b.T).sum()

    assert planned(function, P(None, "x"), P(None, "x")).collectives == {"all-reduce": 1}
