"""The dual ascent's bound against exhaustive search."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from tests.selection.problems import brute_force, problems, residual_mlp, sharded_program, stencil_windows

from eggshard.selection.bounds.dual import Dual
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Problem
from eggshard.selection.reductions.presolve import shrink
from eggshard.selection.search.greedy import greedy
from eggshard.selection.verify import check


def dual_of(problem: Problem, rounds: int = 20) -> tuple[Dual, float]:
    graph = Graph(problem)
    cost = greedy(graph).plans[0].cost
    dual = Dual(graph, cost)
    climb(dual, rounds)
    return dual, cost


def climb(dual: Dual, rounds: int = 60, enough: float = 1.0) -> float:
    """Ascend until the bound is so near the incumbent's cost, and say how near."""
    return next((part for part in dual.ascend(rounds=rounds) if part >= enough), dual.bound / dual.unit)


@given(problems(), st.integers(0, 30))
@hypothesis_settings(max_examples=150)
def test_no_plan_that_computes_nothing_twice_costs_less_than_the_dual_bound(problem, rounds):
    once = brute_force(problem, copies=False)
    if not 0 < once < math.inf:
        return
    for stated in (problem, shrink(problem)[0]):
        graph = Graph(stated)
        plans = greedy(graph).plans
        if plans and plans[0].cost > 0:
            dual = Dual(graph, plans[0].cost)
            climb(dual, rounds)
            assert dual.bound <= once * (1 + 1e-9)


@given(problems())
@hypothesis_settings(max_examples=100)
def test_random_charges_and_shares_prove_a_bound(problem):
    """Soundness does not rest on the ascent: whatever it might have found proves no more than the optimum."""
    once = brute_force(problem, copies=False)
    plans = greedy(Graph(problem)).plans
    if not (0 < once < math.inf and plans and plans[0].cost > 0):
        return
    dual = Dual(Graph(problem), plans[0].cost)
    rng = np.random.default_rng(0)
    for block in dual.blocks:
        block.state.charge[:] = rng.normal(size=block.state.charge.shape) * 0.3
        weights = rng.random(block.state.share.shape)
        total = np.bincount(block.conversion, weights, len(block.cost))
        split = weights / total[block.conversion] * block.cost[block.conversion]
        block.state.share[:] = np.where(block.state.share < 1.0, split, block.state.share)
        block.state.across[:] = block.state.share[block.turned]
    dual.evaluate()
    assert dual.bound <= once * (1 + 1e-9)


def test_shares_of_a_conversion_never_exceed_its_cost():
    dual, _ = dual_of(shrink(sharded_program(random.Random(2), 40, 7, 12))[0])
    for block in dual.blocks:
        cheap = block.cost < 1.0
        total = np.bincount(block.conversion, block.state.share, len(block.cost))
        assert (total <= block.cost + 1e-12)[cheap].all()
        assert (block.state.share >= 0).all()


@pytest.mark.parametrize("problem", [residual_mlp(8), residual_mlp(8, candidates=4), stencil_windows(8, 3.0)])
def test_chains_and_residuals_are_certified_to_a_percent(problem):
    small = shrink(problem)[0]
    best = extract(problem).selection.cost
    dual = Dual(Graph(small), best)
    climb(dual, enough=0.99)
    assert best * 0.99 <= dual.bound <= best * (1 + 1e-9)


def test_the_dual_of_a_problem_is_always_the_same():
    first, second = (dual_of(shrink(sharded_program(random.Random(5), 30, 7, 12))[0])[0] for _ in range(2))
    assert first.bound == second.bound


def test_a_large_problem_is_certified_by_the_dual_alone():
    problem = sharded_program(random.Random(3), 60, compute=0.1)
    local, result = (extract(problem, seconds=60, methods=m) for m in (["local"], ["local", "dual", "once"]))
    assert result.once >= result.selection.cost * 0.99
    assert result.selection.cost < local.selection.cost  # decoded from the prices
    assert result.method == "dual" and not check(problem, result.selection)


