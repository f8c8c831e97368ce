"""Plans that compute much more than the baseline for little are replaced by such as do not."""

import math

import pytest

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.errors import LimitError
from eggshard.planner.repricing.thrift import NOTHING_THRIFTY, WORTH


def program(sums: bool) -> es.Program:
    """A matrix and its hyperbolic tangent on every device, of its rows; and, with ``sums``, two products' sum."""
    b = es.ProgramBuilder({"x": 4})
    x = b.input((1024, 1024), sharding=("x", None))
    b.output(x, sharding=(None, None))
    b.output(b.tanh(x), sharding=(None, None))
    if sums:
        first, second = (
            b.dot(b.input((512, 8), sharding=(None, "x")), b.input((8, 512), sharding=("x", None))) for _ in range(2))
        b.output(first + second, sharding=(None, None))
    return b.build()


def at(flops: float) -> AlphaBeta:
    return AlphaBeta(bandwidth=1e9, latency=1e-6, memory=1e13, flops=flops)


def test_what_saves_a_tenth_may_compute_more() -> None:
    plan = es.optimize(program(False), cost_model=at(1e9))
    assert plan.flops == 4 * plan.baseline.flops and plan.cost.total < WORTH * plan.baseline.cost.total
    assert plan.collectives == {"all-gather": 1}


def test_what_saves_less_is_the_baseline_where_nothing_else_saves() -> None:
    model = at(2.8e8)
    anything = es.optimize(program(False), cost_model=model, limits=es.Limits(flops=math.inf))
    assert WORTH * anything.baseline.cost.total < anything.cost.total < anything.baseline.cost.total
    assert anything.flops == 4 * anything.baseline.flops
    plan = es.optimize(program(False), cost_model=model)
    assert plan.search.fallback == NOTHING_THRIFTY
    assert plan.flops == plan.baseline.flops and plan.cost.total == plan.baseline.cost.total


def test_what_saves_by_other_means_is_kept() -> None:
    model = at(2.7e8)
    anything = es.optimize(program(True), cost_model=model, limits=es.Limits(flops=math.inf))
    assert anything.flops > 1.1 * anything.baseline.flops
    assert anything.cost.total > WORTH * anything.baseline.cost.total
    plan = es.optimize(program(True), cost_model=model)
    assert not plan.search.fallback and "computing at 2 times its price" in plan.search.notes
    assert plan.flops <= 1.1 * plan.baseline.flops
    assert anything.cost.total < plan.cost.total < plan.baseline.cost.total
    assert plan.cost_model == model
    plan.verify()


def test_models_of_bytes_decide_alone() -> None:
    plan = es.optimize(program(False), cost_model=WireBytes())
    assert plan.flops == 4 * plan.baseline.flops and not plan.search.fallback


def test_loops_are_counted() -> None:
    import jax
    import numpy as np

    def loop(x):  # type: ignore[no-untyped-def]
        return jax.lax.fori_loop(0, 10, lambda _, x: x + x, x)

    plan = es.optimize(jax.jit(loop).lower(jax.ShapeDtypeStruct((8, 8), np.float32)))
    assert plan.flops >= 10 * 64


def test_fewer_than_the_baselines_cannot_be_asked_for() -> None:
    with pytest.raises(LimitError, match="flops"):
        es.Limits(flops=0.5)
