"""Loops and branches: which bodies are planned, at which interfaces, and what their prices are until then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.errors import EggshardWarning
from eggshard.placement.transfer import Strategy
from eggshard.planner import bodies, pipeline
from eggshard.planner.bodies import Bodies, Body, Least, priced_or_bounded
from eggshard.program.mesh import Mesh
from eggshard.program.placement import place, replicated
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.spmd.hoisting import price_of_iterations

X = TensorType((8, 8), "f32")


def layer(x: Array, w: tuple[Array, Array]) -> Array:
    return x + jnp.tanh(x @ w[0]) @ w[1]


def nested(levels: int) -> Callable[..., Array]:
    """Layers in so many scans, each within the next, the inner ones recomputed for gradients."""
    def run(x: Array, ws: Any) -> Array:
        inner = layer if levels == 1 else jax.checkpoint(nested(levels - 1))
        return lax.scan(lambda value, w: (inner(value, w), None), x, ws)[0]

    return run


def gradient(levels: int, width: int) -> jax.stages.Lowered:
    """The gradient of the weights of `nested`, two iterations at every level."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    lead = (2,) * levels
    specs = (P("x"), (P(*(None,) * levels, "x", "y"), P(*(None,) * levels, "y", "x")))
    named = jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    shapes = (16, width), ((*lead, width, 2 * width), (*lead, 2 * width, width))
    given = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes,
                         is_leaf=lambda s: isinstance(s, tuple) and isinstance(s[0], int))
    loss = lambda ws, x: (nested(levels)(x, ws) ** 2).sum()  # noqa: E731
    return jax.jit(lambda x, ws: jax.grad(loss)(ws, x), in_shardings=named, out_shardings=named[1]).lower(*given)


def verify(plan: es.Plan) -> None:
    """On inputs so small that many layers do not blow rounding up."""
    rng = np.random.default_rng(0)
    plan.verify(inputs=[0.1 * rng.standard_normal(t.shape, np.float32) for t in plan.program.input_types])


def interfaces() -> list[Strategy]:
    """Full replication, by rows, by columns."""
    mesh = Mesh.of({"x": 4})
    found = [replicated((8, 8)), *(place(mesh, (8, 8), dims) for dims in ((("x",), ()), ((), ("x",))))]
    return [Strategy((p,), (p,)) for p in found]


def priced(bounds: list[Least], prices: list[float]) -> tuple[list[float], list[int]]:
    """What is said of interfaces with these bounds and prices; the ones that were planned for it."""
    offered, planned = interfaces()[: len(bounds)], list[int]()

    def price(s: Strategy) -> float:
        planned.append(offered.index(s))
        return prices[planned[-1]]

    found = priced_or_bounded(offered, lambda s: bounds[offered.index(s)], price)
    return [seconds for _, seconds in found], planned


def test_full_replication_waits_and_what_was_proposed_is_planned() -> None:
    found, planned = priced([Least(3.0, False), Least(1.0, False), Least(2.0, False)], [7.0, 5.0, 6.0])
    # By rows costs 5, and by columns may cost less.
    assert found == [3.0, 5.0, 6.0] and planned == [1, 2]


def test_what_costs_more_than_another_interface_is_known_to_waits() -> None:
    found, planned = priced([Least(3.0, True), Least(4.0, False), Least(2.0, False)], [3.0, 5.0, 6.0])
    assert found == [3.0, 4.0, 6.0] and planned == [2]


def test_the_only_interface_is_planned() -> None:
    assert priced([Least(3.0, False)], [7.0]) == ([7.0], [0])


class Watched(Bodies):
    """Remembers which bodies were searched, and bounded."""

    searched: Counter[tuple[Region, bool]] = Counter()
    bounded: Counter[tuple[Region, bool]] = Counter()

    def _search(self, body: Body) -> Any:
        self.searched[body.region, any(p.used_axes for p in body.inputs)] += 1
        return super()._search(body)

    def _least_of(self, body: Body) -> Least:
        self.bounded[body.region, any(p.used_axes for p in body.inputs)] += 1
        return super()._least_of(body)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(bodies, "Bodies", Watched)
    Watched.searched, Watched.bounded = Counter(), Counter()
    return Watched


def test_an_interface_that_no_plan_wants_is_not_searched(watched: type[Watched]) -> None:
    plan = es.optimize(gradient(1, 1024), cost_model=AlphaBeta())
    large = {region for region, _ in watched.searched if len(region.ops) > 3}
    assert len(large) == 2  # forwards and backwards
    for region in large:
        assert watched.bounded[region, False] and not watched.searched[region, False]
        assert watched.searched[region, True] == 1
    assert plan.cost.total <= plan.baseline.cost.total


def test_loops_in_loops_are_each_planned_once_per_interface(watched: type[Watched]) -> None:
    plan = es.optimize(gradient(2, 16), cost_model=WireBytes())
    large = [n for (region, _), n in watched.searched.items() if len(region.ops) > 3]
    assert large and all(n == 1 for n in large)
    assert not plan.search.fallback or plan.search.fallback.startswith("the search found nothing")
    verify(plan)


class Bounded(Bodies):
    """Holds every body that is planned against what was said of it before, the loop's invariant part paid for once."""

    held = 0

    def _search(self, body: Body) -> Any:
        least = self._least_of(body)
        found = super()._search(body)
        price = price_of_iterations(found, body.times, body.plans.context.pricer.program)
        assert body.times * least.seconds <= price * (1 + pipeline.ROUNDING)
        Bounded.held += not least.exact and body.times > 1
        return found


def gathered(x: Array, w: Array) -> Array:
    return lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ w), x)


def gathered_and_changed(x: Array, w: Array) -> Array:
    return lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y @ jnp.exp(w + w.T)) + i, x)


def gathered_inside(x: Array, w: Array) -> Array:
    def outer(i: Array, y: Array) -> Array:
        return lax.fori_loop(0, 3, lambda j, z: jnp.tanh(z @ w) @ w.T + i, y)

    return lax.fori_loop(0, 4, outer, x)


@pytest.mark.parametrize("run", (gathered, gathered_and_changed, gathered_inside))
def test_no_body_costs_less_than_its_bound(run: Callable[..., Array], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "Bodies", Bounded)
    monkeypatch.setattr(Bounded, "held", 0)
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    given = [jax.ShapeDtypeStruct((n, 64), jnp.float32, sharding=NamedSharding(mesh, P("x", "y"))) for n in (1024, 64)]
    for model in (WireBytes(), AlphaBeta()):
        plan = es.optimize(jax.jit(run).lower(*given), cost_model=model)
        assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    assert Bounded.held
    verify(plan)


def test_the_baseline_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("no solver")

    lowered = gradient(1, 16)
    wanted = es.optimize(lowered)
    monkeypatch.setattr(bodies, "solve", broken)
    monkeypatch.setattr("eggshard.planner.optimization.solve", broken)
    with pytest.warns(EggshardWarning, match="no solver"):
        plan = es.optimize(lowered)
    assert plan.search.method == "baseline" and plan.cost.total >= wanted.cost.total
    verify(plan)


def test_a_replicated_body_that_nothing_undercuts_sends_nothing() -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

    def steps(x: Array, y: Array) -> Array:
        y = lax.with_sharding_constraint(y, whole)
        return lax.fori_loop(0, 32, lambda _, v: jnp.sin(v) + y, x)

    lowered = jax.jit(steps, in_shardings=(whole, rows), out_shardings=whole).lower(
        *[jax.ShapeDtypeStruct((32, 96), np.float32)] * 2)
    for model in ("wire-bytes", None):
        plan = es.optimize(lowered, cost_model=model)
        assert plan.collectives == plan.baseline.collectives == {"all-gather": 1}
