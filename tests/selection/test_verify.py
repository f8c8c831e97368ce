"""The judge of selections, on plans that are right and on every way to be wrong."""

import math

import numpy as np
import pytest

from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.selection.verify import check, complete, price


def two_classes() -> Problem:
    """Class 0 is an input at 0; class 1 is made at 0 or 1 from class 0 at the same placement."""
    conversions = np.array([[0.0, 3.0], [math.inf, 0.0]])
    return Problem(
        [[Choice(0, 1.0, ())], [Choice(0, 2.0, ((0, 0),)), Choice(1, 5.0, ((0, 1),))]],
        [conversions, conversions], [(1, 1)])


def circle() -> Problem:
    """Classes 0 and 1 are computed from each other for nothing; class 0 also by itself, for 4."""
    free = np.zeros((1, 1))
    return Problem(
        [[Choice(0, 0.0, ((1, 0),)), Choice(0, 4.0, ())], [Choice(0, 0.0, ((0, 0),))]], [free, free], [(1, 0)])


def test_a_valid_selection_is_priced_once_per_choice_and_conversion():
    problem = two_classes()
    selection = Selection({0: (0,), 1: (1,)}, ((0, 0, 1),), 0.0)
    assert check(problem, selection) == []
    assert price(problem, selection) == 1 + 5 + 3


@pytest.mark.parametrize(("selection", "reason"), [
    (Selection({0: (0,), 1: (0,)}, (), 0.0), "root class 1 is not delivered at placement 1"),
    (Selection({0: (0,), 1: (1,)}, (), 0.0), "choice 1 of class 1 needs class 0 at placement 1"),
    (Selection({1: (0,)}, ((1, 0, 1),), 0.0), "choice 0 of class 1 needs class 0 at placement 0"),
    (Selection({0: (0,), 1: (1,)}, ((0, 0, 1), (0, 1, 0)), 0.0), "starts at a placement that is not computed"),
    (Selection({0: (0,), 1: (0, 1)}, ((0, 0, 1), (1, 0, 1)), 0.0), "both computed at placement 1 and converted to it"),
    (Selection({0: (0,), 1: (1,)}, ((0, 0, 1), (1, 1, 0)), 0.0), "class 1 cannot be converted from 1 to 0"),
    (Selection({0: (7,)}, (), 0.0), "class 0 has no choice 7"),
])
def test_what_is_wrong_is_said(selection, reason):
    assert any(reason in text for text in check(two_classes(), selection))


def test_classes_that_wait_for_each_other_are_no_plan():
    problem = circle()
    assert check(problem, Selection({0: (0,), 1: (0,)}, (), 0.0)) == [
        "choice 0 of class 0 needs itself", "choice 0 of class 1 needs itself"]
    assert check(problem, Selection({0: (1,), 1: (0,)}, (), 0.0)) == []
    assert complete(problem, {0: (0,), 1: (0,)}) is None


def test_a_class_may_need_itself_at_a_placement_that_is_really_computed():
    conversions = np.array([[0.0, math.inf], [math.inf, 0.0]])
    problem = Problem([[Choice(0, 1.0, ()), Choice(1, 2.0, ((0, 0),))]], [conversions], [(0, 1)])
    assert complete(problem, {0: (0, 1)}).cost == 3
    assert complete(problem, {0: (1,)}) is None


def test_completing_converts_from_the_cheapest_source_and_drops_what_nothing_needs():
    problem = two_classes()
    selection = complete(problem, {0: (0,), 1: (0, 1)})
    assert selection.chosen == {0: (0,), 1: (1,)} and selection.conversions == ((0, 0, 1),)
    selection = complete(problem, {0: (0,), 1: (0,)})
    assert selection.conversions == ((1, 0, 1),) and selection.cost == 6


def test_sources_follow_the_order_of_computing_where_the_cheapest_run_in_a_circle():
    # Class 1 at 1 is free from class 2, which is made from class 1 at 1; converting from 0 costs 1.
    matrix = np.array([[0.0, 1.0], [1.0, 0.0]])
    problem = Problem(
        [[Choice(0, 1.0, ()), Choice(1, 0.0, ((1, 0),))], [Choice(0, 0.0, ((0, 1),))]], [matrix, matrix], [(1, 0)])
    selection = complete(problem, {0: (0, 1), 1: (0,)})
    assert selection.chosen == {0: (0,), 1: (0,)} and selection.cost == 2
