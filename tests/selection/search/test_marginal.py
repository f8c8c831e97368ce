"""What alternatives cost, against plans that are made, and against the best of all plans that have them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tests.selection.exhaustive import Tally, TooLarge, cases, optimum
from tests.selection.problems import random_problem

from eggshard.errors import LimitError
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Problem
from eggshard.selection.search.marginal import Marginal, Switch
from eggshard.selection.verify import check, complete


def optimal(problem: Problem) -> Marginal | None:
    try:
        return Marginal(problem, extract(problem).selection)
    except LimitError:
        return None


def every_switch(marginal: Marginal) -> list[Switch]:
    found: list[Switch] = []
    for item in list(marginal.decisions()):
        if len(item) == 2:
            found += marginal.choices(*item)[0]
        else:
            found += marginal.conversion(item[0], item[2])[0]
    return found


def only(problem: Problem, c: int, s: int) -> Problem:
    """The problem in which a class is computed by one choice alone."""
    choices = list(problem.choices)
    choices[c] = [x if i == s else x._replace(cost=math.inf) for i, x in enumerate(choices[c])]
    return replace(problem, choices=choices)


@pytest.mark.parametrize("seed", range(60))
def test_an_alternatives_price_is_the_difference_of_two_plans(seed: int) -> None:
    problem = random_problem(random.Random(seed), classes=7)
    marginal = optimal(problem)
    if marginal is None or not marginal.total < math.inf:
        return
    total = marginal.total
    assert total == pytest.approx(marginal.selection.cost, rel=1e-12, abs=1e-12)
    for switch in every_switch(marginal):
        for follow, stated in ((False, switch.held), (True, switch.followed)):
            plan = complete(problem, marginal.selection_with(switch, follow))
            assert plan is not None and not check(problem, plan)
            if not follow or switch.followed < switch.held:
                assert plan.cost - total == pytest.approx(stated, rel=1e-9, abs=1e-9)
        assert switch.followed <= switch.held
        parts = math.fsum(switch.joins.values()) - math.fsum(switch.leaves.values())
        assert parts == pytest.approx(min(switch.held, switch.followed), rel=1e-9, abs=1e-9)
    assert marginal.state.chosen() == marginal.selection.chosen and marginal.total == total, "every move is undone"


@pytest.mark.parametrize("real", [False, True])
def test_no_alternative_is_cheaper_than_the_best_plan_that_has_it(real: bool) -> None:
    seen = best = 0
    for problem, least in cases(4, 12, real, Tally()):
        marginal = optimal(problem)
        if marginal is None or not marginal.total < math.inf:
            continue
        for switch in every_switch(marginal):
            assert switch.followed >= least - marginal.total - 1e-9 * (1 + least), "the plan was the best"
            if switch.choice < 0 or switch.out < 0 or len(marginal.state.made[switch.cls]) > 1:
                continue
            try:
                constrained = optimum(only(problem, switch.cls, switch.choice)) - marginal.total
            except TooLarge:
                continue
            seen += 1
            # Plans of the constrained problem may do without the class, and then cost what the plan does, or less.
            assert switch.followed >= constrained - 1e-9 * (1 + abs(least))
            best += switch.followed <= constrained + 1e-9 * (1 + abs(least))
    assert seen > 15 and best > 0.8 * seen, (seen, best)


def test_the_cheapest_alternatives_are_kept() -> None:
    problem = random_problem(random.Random(3), classes=6)
    marginal = optimal(problem)
    assert marginal is not None
    for item in list(marginal.decisions()):
        if len(item) == 2:
            few, every = marginal.choices(*item, kept=2)[0], marginal.choices(*item, kept=10_000)[0]
            assert sorted(x.held for x in few) == pytest.approx(sorted(x.held for x in every)[:2])


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_flips_where_a_price_moves_by_the_stated_amount(seed: int) -> None:
    problem = random_problem(random.Random(100 + seed), classes=6)
    marginal = optimal(problem)
    if marginal is None or not marginal.total < math.inf:
        return
    for switch in every_switch(marginal):
        least = min(switch.held, switch.followed)
        for item in switch.leaves:
            for factor, flips in ((1 - 1e-6, False), (1 + 1e-6, True)):
                dearer = with_price(problem, item, max(0.0, least) * factor + (1e-9 if flips else -1e-9))
                now = complete(dearer, marginal.selection.chosen)
                then = complete(dearer, marginal.selection_with(switch, switch.followed < switch.held))
                assert now is not None and then is not None
                # Dearer conversions may be gone around, so the plan itself may cost less than what is stated.
                if now.cost == pytest.approx(marginal.total + max(0.0, least) * factor, abs=1e-7) and least > 1e-6:
                    assert (then.cost < now.cost) is flips


def with_price(problem: Problem, item: tuple[int, ...], more: float) -> Problem:
    if len(item) == 2:
        choices = list(problem.choices)
        c, s = item
        choices[c] = [x._replace(cost=x.cost + more) if i == s else x for i, x in enumerate(choices[c])]
        return replace(problem, choices=choices)
    c, p, q = item
    tables = [table.copy() for table in problem.conversions]
    tables[c][p, q] += more
    return replace(problem, conversions=tables)
