"""Starting plans that have classes at stated placements."""

import numpy as np

from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.parts import by_way_of
from eggshard.selection.search.start import plan_by_way_of, plans_at

TABLE = np.array([[0.0, 4.0], [4.0, 0.0]])


def chain(length: int) -> Problem:
    """Classes that cost 1 at placement 0 and 2 at placement 1, each from the one before at its own placement."""
    choices = [[Choice(0, 0.0, ())]]
    choices += [[Choice(p, 1.0 + p, ((c, p),)) for p in (0, 1)] for c in range(length)]
    return Problem(choices, [TABLE] * (length + 1), [(length, 0)])


def test_classes_are_computed_where_they_are_stated() -> None:
    problem = chain(3)
    plan = plan_by_way_of(problem, {2: (1,)})
    assert plan is not None and plan.cost == 1 + 4 + 2 + 4 + 1
    assert {c: problem.choices[c][s].out for c, (s,) in plan.chosen.items()}[2] == 1
    anywhere = plan_by_way_of(problem, {2: (1, 0)})
    assert anywhere is not None and anywhere.cost == 3


def test_what_is_computed_elsewhere_is_converted_and_what_cannot_be_there_is_free() -> None:
    problem = chain(2)
    problem.choices[1] = problem.choices[1][:1]  # at placement 0 alone
    part = by_way_of(problem, {1: (1,)})
    assert [(x.out, x.cost) for x in part.choices[1]] == [(1, 5.0)] and part.choices[0] == problem.choices[0]
    problem.conversions[1] = np.where(np.eye(2, dtype=bool), 0.0, np.inf)
    assert by_way_of(problem, {1: (1,)}).choices[1] == problem.choices[1]


def test_plans_at_each_choice_of_a_class_keep_it() -> None:
    problem = chain(3)
    problem.choices[1] = [*problem.choices[1], Choice(0, np.inf, ())]  # of which there is no plan
    plans = list(plans_at(problem, 1))
    assert [plan.chosen[1] for plan in plans] == [(0,), (1,)]
    assert [plan.cost for plan in plans] == [3.0, 4 + 2 + 4 + 1 + 1]
    assert list(plans_at(problem, 1, deadline=0.0)) == []
