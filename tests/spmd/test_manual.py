"""Manual computations (shard_map) inside planned programs: spliced into the plan, priced, simulated and run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.engines.jax.verification import compare
from eggshard.planner.optimization import AS_GLOBAL
from eggshard.spmd.authored import axes_of_groups
from eggshard.steps.authored_steps import GroupCollective
from eggshard.steps.control_steps import Loop

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def mesh(order: list[int] | None = None) -> Mesh:
    devices = np.array(jax.devices()[:8])
    return Mesh(devices[order or range(8)].reshape(2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


XY = P("x", "y")


def lowered(body: Any, out: Any = XY, where: Mesh | None = None) -> tuple[Any, Any]:
    """The jitted program ``shard_map(body)(2 x) + 1``, and its lowering."""
    m = where or mesh()
    mapped = jax.shard_map(body, mesh=m, in_specs=P("x", "y"), out_specs=out, check_vma=False)
    jitted = jax.jit(lambda x: mapped(x * 2) + 1, in_shardings=NamedSharding(m, P("x", "y")))
    return jitted, jitted.lower(X)


def check(jitted: Any, plan: es.Plan, x: np.ndarray = X) -> None:
    want = [np.asarray(jitted(x))]
    for planned in (plan, plan.baseline, es.Plan.from_json(plan.to_json())):
        compare("numpy", planned.run(x), want, plan.program.output_types)
    compare("jax", [np.asarray(plan.to_jax()(x))], want, plan.program.output_types)


BODIES = {
    "psum": (lambda a: lax.psum(a, "y"), {"all-reduce": 1}, P("x", None)),
    "pmax, minor axis first": (lambda a: lax.pmax(a, ("y", "x")), {"all-reduce": 1}, P()),
    "all_gather": (lambda a: lax.all_gather(a, ("y", "x"), axis=1, tiled=True), {"all-gather": 1}, P()),
    "psum_scatter": (lambda a: lax.psum_scatter(a, "y", scatter_dimension=1, tiled=True), {"reduce-scatter": 1}, None),
    "all_to_all": (lambda a: lax.all_to_all(a, "y", 0, 1, tiled=True), {"all-to-all": 1}, None),
    "all_to_all in one dimension": (lambda a: lax.all_to_all(a, "y", 1, 1, tiled=True), {"all-to-all": 1}, None),
    "ring": (
        lambda a: a + lax.ppermute(a, "y", [(k, (k + 1) % 4) for k in range(4)]), {"collective-permute": 1}, None),
    "partial permute": (lambda a: lax.ppermute(a, "x", [(0, 1)]), {"collective-permute": 1}, None),
    "axis index": (lambda a: a * lax.axis_index("y") + lax.axis_index("x"), {}, None),
    "loop that communicates": (
        lambda a: lax.fori_loop(0, 3, lambda i, c: c + lax.pmean(c, "x"), a), {"all-reduce": 3}, None),
    "loop of each device": (
        lambda a: lax.while_loop(
            lambda c: c[0] < lax.axis_index("y"), lambda c: (c[0] + 1, c[1] * 2), (0, a))[1], {}, None),
    "branch of each device": (lambda a: lax.cond(lax.axis_index("y") > 1, jnp.sin, jnp.cos, a), {}, None),
    "nothing": (lambda a: a, {}, None),
}


@pytest.mark.parametrize("name", some(BODIES, 7))
def test_bodies(name: str) -> None:
    body, collectives, out = BODIES[name]
    jitted, low = lowered(body, P("x", "y") if out is None else out)
    plan = es.optimize(low)
    written = plan.baseline if AS_GLOBAL in plan.search.notes else plan
    assert written.collectives == collectives and not plan.search.fallback
    check(jitted, plan)
    assert set(plan.verify().differences) == {"numpy", "jax"}


def test_bytes_are_those_of_the_ring() -> None:
    plan = es.optimize(lowered(lambda a: lax.all_gather(a, "y", axis=1, tiled=True), P("x", None))[1])
    assert plan.wire_bytes == 4 * 4 * 4 * 3  # three other shards of 4x4 f32
    assert plan.cost.communication > 0


def test_devices_in_another_order() -> None:
    m = mesh([3, 1, 0, 2, 7, 5, 6, 4])
    jitted, low = lowered(lambda a: lax.psum(a, "x") * lax.axis_index("y"), P(None, "y"), m)
    check(jitted, es.optimize(low))


def test_planned_around_and_inside_a_loop() -> None:
    m = mesh()
    mapped = jax.shard_map(lambda v: lax.psum(v, "x"), mesh=m, in_specs=P("x", "y"), out_specs=P(None, "y"))

    def step(h: Any, _: Any) -> Any:
        return jnp.tanh(jnp.concatenate([mapped(h)] * 2)), None

    jitted = jax.jit(lambda x: lax.scan(step, x, None, length=3)[0], in_shardings=NamedSharding(m, P("x", "y")))
    plan = es.optimize(jitted.lower(X))
    assert any(isinstance(s.action, Loop) for s in plan.steps)
    check(jitted, plan)


def test_groups_that_no_axes_span() -> None:
    text = lowered(lambda a: lax.psum(a, "x"))[1].as_text()
    crooked = text.replace("[[0, 4], [1, 5], [2, 6], [3, 7]]", "[[0, 5], [1, 4], [2, 7], [3, 6]]")
    assert crooked != text
    plan = es.optimize(crooked)
    assert any(isinstance(s.action, GroupCollective) for s in plan.steps)
    assert plan.collectives == {"group-collective": 1} and plan.wire_bytes == 4 * 4 * 4
    assert "dense<[[0, 5], [1, 4], [2, 7], [3, 6]]>" in plan.to_stablehlo()
    assert "group-collective" in str(plan)
    (got,) = plan.to_jax()(X)
    blocks = 2 * X.reshape(2, 4, 4, 4).transpose(0, 2, 1, 3).reshape(8, 4, 4)
    sums = (blocks + blocks[[5, 4, 7, 6, 1, 0, 3, 2]]).reshape(2, 4, 4, 4).transpose(0, 2, 1, 3).reshape(8, 16)
    np.testing.assert_allclose(got, sums + 1, rtol=1e-6)
    assert set(plan.verify().differences) == {"jax", "numpy"}


def test_groups_are_recognised_in_any_order_of_groups() -> None:
    m = es.Mesh({"x": 2, "y": 2, "one": 1, "z": 2})
    for axes in [("x",), ("z", "x"), ("y", "z", "x"), ()]:
        groups = tuple(tuple(map(int, row)) for row in m.groups(axes))
        assert axes_of_groups(m, groups[::-1]) == axes
    assert axes_of_groups(m, ((0, 1), (2, 3), (4, 6), (5, 7))) is None
