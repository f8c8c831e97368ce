"""Problems without what is too dear for them, and the bounds that say so, against exhaustive search."""

import math

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings
from tests.selection.problems import brute_force, problems, stencil_windows

from eggshard.selection.bounds.bound import cheap_bound, least_derivations
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.parts import affordable, choice_count
from eggshard.selection.reductions.presolve import shrink


@given(problems())
@hypothesis_settings(max_examples=60)
def test_no_shard_costs_less_than_its_least_derivation(problem):
    least = least_derivations(Graph(problem))
    for c, table in enumerate(problem.conversions):
        for q in range(len(table)):
            optimum = brute_force(Problem(problem.choices, problem.conversions, [(c, q)]))
            assert least.placed[c][q] <= optimum * (1 + 1e-12)


@given(problems())
@hypothesis_settings(max_examples=80)
def test_what_is_too_dear_is_no_part_of_the_optimum(problem):
    small, _ = shrink(problem)
    optimum = brute_force(small)
    if optimum == math.inf:
        return
    narrowed, inverse = shrink(affordable(small, least_derivations(Graph(small)).placed, optimum * (1 + 1e-9)))
    assert brute_force(narrowed) == pytest.approx(optimum)
    assert inverse.lift(extract(narrowed).selection).cost == pytest.approx(optimum)


def gathers(steps: int) -> Problem:
    """A chain in which every step needs two halos of one tensor, each of which might be cut out of a gathered one.

    Classes: the tensor at step k is 3k; its halo along either dimension, with a price of its own, is 3k + 1 and 3k + 2.
    Placements of the tensor: on tiles, and gathered, which costs a hundred.
    """
    choices = [[Choice(0, 0.0, ())]]
    conversions = [np.array([[0.0, 100.0], [0.0, 0.0]])]
    for k in range(steps):
        source = 3 * k
        for cost in (2.0, 1.0):
            choices.append([Choice(0, cost, ((source, 0),)), Choice(0, 0.0, ((source, 1),))])
            conversions.append(np.zeros((1, 1)))
        choices.append([Choice(0, 0.125, ((source + 1, 0), (source + 2, 0))), Choice(1, 1.0, ((source, 1),))])
        conversions.append(conversions[0])
    return Problem(choices, conversions, [(3 * steps, 0)])


def test_halos_of_both_dimensions_add_up_once_nothing_can_be_gathered() -> None:
    """As long as the tensor might be gathered, the dearer halo alone is certain; few steps cannot pay for gathering."""
    problem = gathers(8)
    small, _ = shrink(problem)
    least = least_derivations(Graph(small))
    assert least.roots == pytest.approx(8 * 2.125)
    part = affordable(small, least.placed, 8 * 3.125)
    assert choice_count(part) <= 0.8 * choice_count(small)
    assert cheap_bound(Graph(shrink(part)[0])) == pytest.approx(8 * 3.125)
    found = extract(problem)
    assert found.bound == found.selection.cost == pytest.approx(8 * 3.125)


def test_nothing_is_left_out_where_everything_is_affordable() -> None:
    small, _ = shrink(stencil_windows(4, 3.0))
    assert choice_count(affordable(small, least_derivations(Graph(small)).placed, 1e9)) == choice_count(small)
