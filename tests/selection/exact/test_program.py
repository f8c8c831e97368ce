"""The integer program over shards against enumeration."""

import math
import random

import numpy as np
import pytest
from tests.selection.carried import small_loops
from tests.selection.exhaustive import Tally, TooLarge, cases, optimum

from eggshard.errors import LimitError
from eggshard.selection.exact import program
from eggshard.selection.exact.highs import Model
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.verify import check, complete


def solved(problem):
    incumbent = extract(problem, methods=("greedy", "local", "shards")).selection
    return program.solve(Graph(problem), incumbent, 60.0, 0.0), incumbent


@pytest.mark.parametrize(("count", "least"), [(20, 6), pytest.param(60, 20, marks=pytest.mark.slow)])
def test_made_up_problems_are_solved_to_the_optimum(count, least):
    tally = Tally()
    compared = 0
    for problem, best in cases(5, count, False, tally):
        if best <= 0:
            continue
        answer, incumbent = solved(problem)
        plan = answer.plan if answer.plan is not None else incumbent
        assert not check(problem, plan)
        assert min(plan.cost, incumbent.cost) == pytest.approx(best, rel=1e-6)
        assert answer.bound <= best * (1 + 1e-9)
        assert answer.bound == pytest.approx(best, rel=1e-5)
        compared += 1
    assert compared > least


def test_an_integral_relaxation_is_enough(monkeypatch):
    """A chain of ops at one of two placements, from a plan that converts at each: no integer is asked for."""
    apart = np.array([[0.0, 5.0], [5.0, 0.0]])
    choices = [[Choice(0, 3.0, ()), Choice(1, 4.0, ())]]
    choices += [[Choice(0, 1.0, ((a, 0),)), Choice(1, 2.0, ((a, 1),))] for a in range(5)]
    problem = Problem(choices, [apart] * len(choices), [(5, 1)])
    dear = complete(problem, {c: (c % 2,) for c in range(6)})
    assert dear is not None and dear.cost > 13

    def never(*given):
        raise AssertionError("the relaxation has an integral solution")

    monkeypatch.setattr(Model, "solve_integer", never)
    answer = program.solve(Graph(problem), dear, 60.0, 0.0)
    assert answer.plan is not None and answer.plan.cost == 13.0 and answer.bound == pytest.approx(13.0, rel=1e-9)


def test_what_a_loop_carries_stays_at_one_placement():
    compared = 0
    for seed in range(40):
        problem = small_loops(random.Random(seed), 6)
        try:
            best = optimum(problem)
        except TooLarge:
            continue
        if best == math.inf:
            with pytest.raises(LimitError):
                solved(problem)
            continue
        answer, incumbent = solved(problem)
        plan = answer.plan if answer.plan is not None else incumbent
        assert not check(problem, plan)
        assert min(plan.cost, incumbent.cost) == pytest.approx(best, rel=1e-6)
        compared += 1
    assert compared > 10


def test_the_portfolio_asks_it_where_a_bound_of_all_plans_is_wanted():
    apart = np.array([[0.0, 50.0], [50.0, 0.0]])
    choices = [[Choice(0, 3.0, ()), Choice(1, 4.0, ())]]
    for _ in range(3):
        a = len(choices) - 1
        choices.append([Choice(0, 1.0, ((a, 0),)), Choice(1, 2.0, ((a, 1),))])
    problem = Problem(choices, [apart] * len(choices), [(len(choices) - 1, 0), (len(choices) - 1, 1)])
    found = extract(problem, methods=("greedy", "shards"), exact=True)
    assert found.selection.cost == 16 and found.bound == pytest.approx(16)
    assert any(note.startswith("shards") for note in found.notes) or found.method == "greedy"
