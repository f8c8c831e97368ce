"""The plans of one term."""

import math
import random

import numpy as np
from hypothesis import given, settings as hypothesis_settings
from tests.selection.problems import brute_force, problems, sharded_program

from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.parts import same_terms
from eggshard.selection.search.ascent import Terms
from eggshard.selection.search.greedy import greedy
from eggshard.selection.verify import check

ONE = np.zeros((1, 1))


def test_other_operands_are_left_out_and_fewer_or_more_are_not():
    problem = Problem(
        [
            [Choice(0, 1.0, ((1, 0),)), Choice(0, 1.0, ((1, 0), (2, 0))), Choice(0, 1.0, ((2, 0),)),
             Choice(0, 5.0, ())],
            [Choice(0, 1.0, ())],
            [Choice(0, 1.0, ())],
        ],
        [ONE] * 3, [(0, 0)])
    kept = [[math.isfinite(s.cost) for s in some] for some in same_terms(problem, {0: (0,), 1: (0,)}).choices]
    assert kept == [[True, False, False, True], [True], [False]]
    more = same_terms(problem, {0: (1,), 1: (0,), 2: (0,)})
    kept = [[math.isfinite(s.cost) for s in some] for some in more.choices]
    assert kept == [[True] * 4, [True], [True]]


@given(problems())
@hypothesis_settings(max_examples=100)
def test_a_plan_is_one_of_its_terms_and_the_bound_is_theirs(problem):
    plans = greedy(Graph(problem)).plans
    if not plans or not plans[0].cost > 0:
        return
    terms = Terms(problem, plans[0])
    assert terms.has(plans[0])
    found = terms.ascend(0.0, math.inf)
    once = brute_force(terms.problem, copies=False)
    assert terms.bound <= once * (1 + 1e-9)
    if found is not None:
        assert terms.has(found) and not check(problem, found)
    if terms.all_plans:
        assert once == brute_force(problem, copies=False)


def test_the_bound_of_a_large_problem_says_whose_it_is():
    problem = sharded_program(random.Random(3), 60, compute=0.1)
    found = extract(problem, seconds=60, methods=["local", "dual"])
    assert found.bound <= found.once <= found.terms <= found.selection.cost
