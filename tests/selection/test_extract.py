"""Every extractor and the whole portfolio against exhaustive search, and on programs of known optimum."""

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from tests.selection.problems import (
    brute_force,
    problems,
    random_conversions,
    random_problem,
    residual_mlp,
    sharded_program,
    stencil_windows,
)

from eggshard.errors import LimitError
from eggshard.selection.bounds.bound import cheap_bound
from eggshard.selection.exact import highs, program
from eggshard.selection.graph import Graph, strong_components
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.presolve import shrink
from eggshard.selection.search.greedy import greedy
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.search.state import PlanState
from eggshard.selection.verify import check, complete, price

EXACT = 1 + 1e-4  # the default gap


@given(problems())
@hypothesis_settings(max_examples=40, deadline=None)
def test_costs_that_are_whole_numbers_are_costs(problem: Problem) -> None:
    """An integer is as good a price as a float, in each method."""
    if math.isinf(brute_force(problem)):
        return
    whole = Problem(
        [[s if math.isinf(s.cost) else s._replace(cost=int(s.cost)) for s in some] for some in problem.choices],
        problem.conversions, problem.roots)
    assert extract(whole).selection.cost == pytest.approx(extract(problem).selection.cost)


def plans_of(problem: Problem):
    graph = Graph(problem)
    found = greedy(graph)
    return graph, found.whole, found.plans


@given(problems())
@hypothesis_settings(max_examples=150)
def test_the_portfolio_finds_the_optimum(problem):
    optimum = brute_force(problem)
    if optimum == math.inf:
        with pytest.raises(LimitError, match="no plan delivers class"):
            extract(problem)
        return
    result = extract(problem)
    assert check(problem, result.selection) == []
    assert result.selection.cost == pytest.approx(price(problem, result.selection))
    assert not any("solver" in note for note in result.notes), result.notes
    assert result.bound <= optimum * (1 + 1e-12)
    assert optimum <= result.selection.cost * (1 + 1e-12)
    # Copies that convert to a placement which another copy computes are not enumerated; they leave a gap at worst.
    assert result.selection.cost <= optimum * EXACT or result.gap > 1e-4


@given(problems())
@hypothesis_settings(max_examples=60)
def test_greedy_and_local_plans_are_valid_and_exactly_priced(problem):
    graph, costs, plans = plans_of(problem)
    assert bool(plans) == (brute_force(problem) < math.inf)
    search = LocalSearch(graph, costs.best)
    for plan in plans:
        assert check(problem, plan) == []
        better = search.improve(plan.chosen)
        if better is not None:  # sources may run in a circle, then there is nothing to start from
            assert check(problem, better) == []
            assert better.cost <= plan.cost * (1 + 1e-9)


@given(problems())
@hypothesis_settings(max_examples=60)
def test_no_bound_exceeds_the_optimum(problem):
    optimum = brute_force(problem)
    if optimum == math.inf:
        return
    graph, _, plans = plans_of(problem)
    assert cheap_bound(graph) <= optimum * (1 + 1e-12)
    if plans[0].cost > 0:
        assert program.solve(graph, plans[0], 60.0, 0.0).bound <= optimum * (1 + 1e-12)


@given(problems())
@hypothesis_settings(max_examples=80)
def test_shrinking_keeps_the_optimum(problem):
    small, inverse = shrink(problem)
    optimum = brute_force(problem)
    assert brute_force(small) == pytest.approx(optimum)
    if optimum < math.inf:
        plan = extract(small).selection
        assert inverse.lift(plan).cost <= plan.cost * (1 + 1e-12)


@given(problems(), st.randoms(use_true_random=False))
@hypothesis_settings(max_examples=40)
def test_a_move_that_is_undone_leaves_no_trace(problem, rng):
    graph, costs, plans = plans_of(problem)
    if not plans:
        return
    state = PlanState(graph, plans[0].chosen, costs.best)
    for _ in range(20):
        live = [c for c, made in enumerate(state.made) if made]
        if not live or not state.cost < math.inf:
            return
        c = rng.choice(live)
        made, count = [dict(m) for m in state.made], [dict(m) for m in state.count]
        before = (made, count, list(state.conversion_cost), state.cost)
        s = rng.randrange(len(problem.choices[c]))
        kept = state.try_switch(c, (s,), tuple(state.made[c]) if rng.random() < 0.7 else (), below=1e-9)
        if not kept:  # the state is what it was
            assert before == (state.made, state.count, state.conversion_cost, state.cost)
        else:
            again = PlanState(graph, state.chosen(), costs.best)
            assert again.cost <= state.cost + 1e-9  # unused copies are not made again


def test_chains_are_folded_and_lifted():
    """An input, eight element-wise ops in a row, and a root: one class remains."""
    conversions = random_conversions(random.Random(0), 3, impossible=0.0, free=0.0)
    table = [[Choice(0, 0.0, ())]]
    for c in range(8):
        table.append([Choice(p, 1.0, ((c, p),)) for p in range(3)])
    problem = Problem(table, [conversions] * 9, [(8, 2)])
    small, _ = shrink(problem)
    assert sum(bool(row) for row in small.choices) == 1
    result = extract(problem)
    assert result.selection.cost == 8 + conversions[0, 2] and len(result.selection.chosen) == 9


def test_copies_are_made_where_they_pay():
    """Two consumers at placements far apart: computing twice from a replicated input beats converting."""
    far = np.array([[0.0, 0.0, 0.0], [50.0, 0.0, 50.0], [50.0, 50.0, 0.0]])
    problem = Problem(
        [[Choice(0, 1.0, ())], [Choice(p, 3.0 if p else 90.0, ((0, p),)) for p in range(3)],
         [Choice(1, 1.0, ((1, 1),))], [Choice(2, 1.0, ((1, 2),))]],
        [far] * 4, [(2, 1), (3, 2)])
    result = extract(problem)
    assert len(result.selection.chosen[1]) == 2
    assert result.selection.cost == 9 and result.gap == 0


def test_a_conversion_is_paid_once_however_many_share_it():
    matrix = np.array([[0.0, 10.0], [10.0, 0.0]])
    problem = Problem(
        [[Choice(0, 0.0, ())], *[[Choice(1, 1.0, ((0, 1),)), Choice(0, 9.0, ((0, 0),))] for _ in range(3)]],
        [matrix] * 4, [(1, 1), (2, 1), (3, 1)])
    assert extract(problem).selection.cost == 13


def test_equal_tensors_made_from_each_other_are_not_free():
    """A solver without order finds cost 0; both directions of a slice and its undoing, chained four deep."""
    free = np.zeros((1, 1))
    table = [[Choice(0, 100.0, ())]]
    for c in range(1, 5):
        table.append([Choice(0, 0.0, ((c % 4 + 1, 0),)), Choice(0, 10.0 + c, ((0, 0),))])
    result = extract(Problem(table, [free] * 5, [(3, 0)]))
    assert result.selection.cost == 111 and result.gap <= 1e-4


def test_consumers_that_stand_in_for_each_other_pay_in_full():
    """Three ways to the root share one conversion; a plain relaxation pays a third of it, covers all."""
    matrix = np.array([[0.0, 12.0], [12.0, 0.0]])
    table = [[Choice(0, 0.0, ())], *[[Choice(1, 1.0, ((0, 1),))] for _ in range(3)],
             [Choice(1, 0.0, ((c, 1),)) for c in (1, 2, 3)]]
    problem = Problem(table, [matrix] * 5, [(4, 1)])
    graph, _, (plan, *_) = plans_of(problem)
    assert plan.cost == 13
    assert program.solve(graph, plan, 60.0, 1e-6).bound == pytest.approx(13)
    assert extract(problem, methods=["shards"]).bound == 13


@pytest.mark.parametrize(("alpha", "exchanges"), [(3.0, 1), (0.01, None)])
def test_a_stencil_exchanges_as_rarely_as_it_pays(alpha, exchanges):
    problem = stencil_windows(8, alpha)
    result = extract(problem)
    assert result.gap <= 1e-4
    paid = [c for c in result.selection.conversions if problem.conversions[c[0]][c[1], c[2]] > 0]
    if exchanges is not None:
        assert len(paid) == exchanges
    every_step = 8 * (alpha + 0.02)
    assert result.selection.cost <= every_step + 1e-9


@pytest.mark.slow
def test_a_deep_stencil_is_solved_to_the_gap():
    result = extract(stencil_windows(16, 0.05), seconds=60)
    assert result.gap <= 1e-4


def test_costs_far_apart_all_count():
    """Bytes at 1e6, messages at 1, compute at 1e-3: the least weight still decides between equals."""
    for seed in range(12):
        rng = random.Random(seed)
        problem = random_problem(rng, classes=5, placements=3, choices=3)
        problem.choices = [[s._replace(cost=s.cost * 1e6 + rng.randrange(4) + rng.randrange(4) * 1e-3) for s in row]
                           for row in problem.choices]
        problem.conversions = [m * 1e6 for m in problem.conversions]
        optimum = brute_force(problem)
        if optimum < math.inf:
            assert extract(problem, gap=0.0).selection.cost == pytest.approx(optimum, rel=1e-9)


def test_the_scale_of_costs_does_not_matter():
    for scale in (1e-9, 1e12):
        problem = residual_mlp(2)
        problem.choices = [[s._replace(cost=s.cost * scale) for s in row] for row in problem.choices]
        problem.conversions = [m * scale for m in problem.conversions]
        result = extract(problem)
        assert result.gap <= 1e-4
        assert result.selection.cost == pytest.approx(extract(residual_mlp(2)).selection.cost * scale)


def test_a_seed_is_never_beaten_by_the_result():
    for seed in range(10):
        problem = random_problem(random.Random(seed), classes=5)
        if brute_force(problem) == math.inf:
            continue
        best = extract(problem).selection
        if all(len(some) == 1 for some in best.chosen.values()):
            problem.seeds = [{c: some[0] for c, some in best.chosen.items()}, {0: 0}]
            for methods in (("greedy",), ("local",), None):
                assert extract(problem, methods=methods).selection.cost <= best.cost * (1 + 1e-12)


def test_running_out_of_time_leaves_a_valid_plan_and_a_bound():
    problem = sharded_program(random.Random(3), 60, compute=0.1)
    result = extract(problem, seconds=0.0)
    assert check(problem, result.selection) == []
    assert 0 <= result.bound <= result.selection.cost


def test_the_same_problem_gives_the_same_plan():
    first, second = (extract(sharded_program(random.Random(5), 30, 7, 12)) for _ in range(2))
    assert first.selection == second.selection and first.bound == second.bound and first.method == second.method


def test_a_solver_that_fails_leaves_the_local_plan(monkeypatch):
    def refuse(self, seconds):
        raise highs.SolverError("refused")

    monkeypatch.setattr(highs.Model, "_run", refuse)
    problem = sharded_program(random.Random(3), 60, compute=0.1)
    result = extract(problem)
    assert check(problem, result.selection) == []
    assert any("refused" in note for note in result.notes)
    assert result.bound <= result.selection.cost


def test_methods_can_be_chosen():
    problem = residual_mlp(3, candidates=4)
    plans = {m: extract(problem, methods=[m]) for m in ("greedy", "local", "shards")}
    assert all(check(problem, plan.selection) == [] for plan in plans.values())
    with pytest.raises(ValueError, match="unknown extraction methods"):
        extract(problem, methods=["magic"])


def test_a_placement_that_nothing_reaches_is_named():
    problem = Problem([[Choice(0, 1.0, ())]], [np.array([[0.0, math.inf], [math.inf, 0.0]])], [(0, 1)])
    with pytest.raises(LimitError, match="no plan delivers class 0 at placement 1"):
        extract(problem)


def test_roots_on_inputs_and_empty_programs():
    matrix = np.array([[0.0, 2.0], [2.0, 0.0]])
    result = extract(Problem([[Choice(0, 0.0, ())]], [matrix], [(0, 0), (0, 1)]))
    assert result.selection.conversions == ((0, 0, 1),) and result.selection.cost == 2 and result.gap == 0
    assert extract(Problem([], [], [])).selection.chosen == {}


def test_deep_programs_do_not_recurse():
    conversions = np.array([[0.0, 1.0], [1.0, 0.0]])
    table = [[Choice(0, 0.0, ())]]
    for c in range(3000):
        needs = ((c, 0), (max(0, c - 1), 0)) if c else ((0, 0),)
        table.append([Choice(0, 1.0, needs), Choice(1, 1.0, tuple((a, 1) for a, _ in needs))])
    result = extract(Problem(table, [conversions] * len(table), [(3000, 0)]), methods=("greedy", "local"))
    assert result.selection.cost == 3000


def test_strong_components_come_operands_first():
    assert strong_components([[1], [2], [1], [0, 3]]) == [[1, 2], [0], [3]]


@pytest.mark.parametrize(("layers", "candidates"), [(10, None), (10, 4), (100, None)])
def test_residual_mlp_is_certified(layers, candidates):
    problem = residual_mlp(layers, candidates=candidates)
    began = time.process_time()
    result = extract(problem, seconds=60)
    print(f"{len(problem.choices)} classes: {time.process_time() - began:.2f} s, gap {result.gap:.1e}")
    assert result.gap <= 1e-4


def test_random_strategies_without_structure_are_solved():
    problem = sharded_program(random.Random(1), 40, 13, 30)
    began = time.process_time()
    result = extract(problem, seconds=60)
    print(f"40 classes, 13 placements: {time.process_time() - began:.2f} s, gap {result.gap:.1e}")
    assert result.gap <= 1e-4


def test_a_completed_selection_of_the_optimum_is_itself():
    problem = stencil_windows(4, 1.0)
    best = extract(problem).selection
    assert complete(problem, best.chosen).cost == pytest.approx(best.cost)
