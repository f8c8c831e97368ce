"""Plans under a limit of memory, the front of time and memory, and the bound below both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bench.memory import compiled_memory
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.limits import Deadline
from eggshard.memory.search import MemoryPriced, cheapest_within, front
from eggshard.steps.control_steps import Loop


def program() -> object:
    """Weights that may be gathered, or the partial sums of a product reduced, which takes far less memory."""
    b = es.ProgramBuilder({"x": 8})
    x, w = b.input((64, 512), "f32", ("x", None)), b.input((512, 512), "f32", (None, "x"))
    b.output(b.dot(x, w), ("x", None))
    return b.build()


@pytest.fixture(scope="module")
def cheapest() -> es.Plan:
    return es.optimize(program(), cost_model="alpha-beta")


@pytest.fixture(scope="module")
def found() -> es.Plan:
    return es.pareto(program(), cost_model="alpha-beta", points=6)


def test_a_limit_that_does_not_bind_changes_nothing(cheapest: es.Plan) -> None:
    plan = es.optimize(program(), cost_model="alpha-beta", memory_limit=cheapest.memory.peak)
    assert plan.device_program == cheapest.device_program and plan.cost == cheapest.cost


def test_a_limit_is_met_by_the_compiled_program(cheapest: es.Plan, found: es.Plan) -> None:
    memory = cheapest.memory
    limit = memory.arguments + memory.outputs + 6 * memory.temporaries // 10
    plan = es.optimize(program(), cost_model="alpha-beta", memory_limit=limit)
    assert plan.memory.peak <= limit and sum(compiled_memory(plan)) <= limit
    assert plan.cost.total >= cheapest.cost.total and plan.bound <= cheapest.cost.total
    assert plan.cost_model is cheapest.cost_model or plan.cost_model == cheapest.cost_model
    plan.verify()


def test_a_limit_that_nothing_meets_is_an_error_with_the_least_peak(cheapest: es.Plan) -> None:
    with pytest.raises(es.errors.LimitError, match=r"smallest one found takes \d+.*so that no plan can"):
        es.optimize(program(), cost_model="alpha-beta", memory_limit=cheapest.memory.arguments)


def test_what_every_plan_holds_is_no_more_than_what_any_plan_takes(found: es.Plan) -> None:
    least = min(plan.memory.peak for plan in found)
    with pytest.raises(es.errors.LimitError) as error:
        es.optimize(program(), cost_model="alpha-beta", memory_limit=0)
    assert int(str(error.value).split("at least ")[1].split(",")[0]) <= least


def test_the_front_is_of_plans_that_nothing_undercuts(found: es.Plan, cheapest: es.Plan) -> None:
    assert found[0].cost.total <= cheapest.cost.total and len(found) >= 2
    for a, b in zip(found, found[1:], strict=False):
        assert a.cost.total < b.cost.total and a.memory.peak > b.memory.peak
    assert len(str(found).splitlines()) == len(found) + 1 and "temporaries" in str(found)
    for plan in found:
        plan.verify(engines=("numpy",))


def test_the_front_of_a_limit_and_its_errors(found: es.Plan) -> None:
    limit = found[-1].memory.peak
    within = es.pareto(program(), cost_model="alpha-beta", points=6, memory_limit=limit)
    assert all(plan.memory.peak <= limit for plan in within)
    with pytest.raises(es.errors.LimitError, match="at least 1"):
        es.pareto(program(), cost_model="alpha-beta", points=0)


def test_equal_plans_are_one_point(cheapest: es.Plan) -> None:
    assert front([cheapest, cheapest]) == [cheapest]


def test_a_price_of_memory_adds_to_the_models() -> None:
    class Flat:
        def seconds(self, step: object) -> float:
            return 1.0

    plan = es.optimize(program(), cost_model=MemoryPriced(Flat(), 1e-6))
    assert plan.cost.total > len(plan.steps) - 1


def test_one_time_limit_ends_the_search_for_less_memory_too(cheapest: es.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    monkeypatch.setattr("eggshard.limits.Deadline.left", property(lambda self: 0.0 if made else 1.0))

    def planner(model: object) -> es.Plan:
        made.append(1.0)
        return cheapest

    found, peak = cheapest_within(1.0, cheapest, planner, deadline=Deadline(1.0))
    assert found is None and peak <= cheapest.peak_bytes and len(made) <= 1
    with pytest.raises(es.errors.LimitError, match="the time limit ended the search"):
        es.optimize(program(), cost_model="alpha-beta", memory_limit=int(0.7 * cheapest.peak_bytes),
                    limits=es.Limits(seconds=0))
    assert len(es.pareto(program(), limits=es.Limits(seconds=0))) >= 1


def test_strips_of_a_program_without_loops_are_proved() -> None:
    rows = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def steps(u: Any) -> Any:
        for _ in range(3):
            u = u + 0.1 * (jnp.roll(u, 1, 0) - 2 * u + jnp.roll(u, -1, 0))
        return u

    sharding = NamedSharding(rows, P("x"))
    lowered = jax.jit(steps, in_shardings=sharding, out_shardings=sharding).lower(
        jax.ShapeDtypeStruct((1024, 256), np.float32))
    limit = int(0.8 * es.optimize(lowered).memory.peak)
    plan = es.optimize(lowered, memory_limit=limit)
    assert any(isinstance(step.action, Loop) and step.action.trip_count for step in plan.steps)
    assert plan.memory.peak <= limit and not plan.search.fallback and plan.prove().equal
