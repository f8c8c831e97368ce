"""The extraction against exhaustive enumeration: made-up problems, and what the planner encodes for random programs."""

import numpy as np
import pytest
from tests.selection.exhaustive import Tally, TooLarge, cases, optimum

from eggshard.selection.problem import Choice, Problem


def differences(seed: int, count: int, real: bool) -> tuple[list[str], Tally]:
    tally = Tally()
    wrong = []
    for i, (problem, best) in enumerate(cases(seed, count, real, tally)):
        wrong += [f"{'real' if real else 'made-up'} case {i} of seed {seed}: {what}"
                  for what in tally.take(problem, best)]
    return wrong, tally


@pytest.mark.parametrize(("real", "count"), [(False, 50), pytest.param(True, 10, marks=pytest.mark.slow)])
def test_the_selection_is_optimal(real, count):
    wrong, tally = differences(0, count, real)
    assert not wrong
    assert tally.equal == tally.cases == count and not tally.above


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_selection_is_optimal_in_every_one_of_many_cases(seed, real):
    wrong, tally = differences(seed, 100, real)
    assert not wrong
    assert tally.equal == tally.cases == 100 and not tally.above


def test_the_integer_program_keeps_circles_in_order():
    tally = Tally()
    for problem, best in cases(21, 25, False, tally):
        assert tally.take(problem, best, ("greedy", "local", "shards")) == []
    assert tally.circles > 3


def test_the_enumeration_knows_copies_circles_and_shared_conversions():
    far = np.array([[0.0, 50.0], [50.0, 0.0]])
    twice = Problem([[Choice(0, 3.0, ()), Choice(1, 4.0, ())]], [far], [(0, 0), (0, 1)])
    assert optimum(twice) == 7
    shared = Problem([[Choice(0, 1.0, ())], [Choice(0, 1.0, ((0, 1),))], [Choice(0, 1.0, ((0, 1),))]], [far] * 3,
                     [(1, 0), (2, 0)])
    assert optimum(shared) == 53
    free = np.zeros((1, 1))
    circle = Problem([[Choice(0, 9.0, ()), Choice(0, 0.0, ((1, 0),))], [Choice(0, 0.0, ((0, 0),))]], [free] * 2,
                     [(1, 0)])
    assert optimum(circle) == 9
    with pytest.raises(TooLarge):
        optimum(circle, most=2)
