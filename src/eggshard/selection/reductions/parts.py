"""Parts of a problem: what is left out costs infinitely much, and the rest keeps its numbers.

Of a large problem's plans, those of one term compute the same classes from the same operands, at any placements.
Algebraic alternatives are what makes relaxations of such a problem loose and dual ascent end without a plan. Among the
plans of one term there are hardly any, and the bound mostly meets the best of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from eggshard.selection.problem import IMPOSSIBLE, Choice, Problem, Selection
from eggshard.selection.reductions.inverse import Chosen


def same_terms(problem: Problem, chosen: Chosen) -> Problem:
    """Only a plan's classes, each with the choices that need what the plan's choices need, or more, or less.

    (A placement may hold what an operand would give: such a choice needs fewer operands than others of the same op.)
    """
    mine = {c: [_operands(problem.choices[c][s]) for s in some] for c, some in chosen.items()}

    def kept(c: int, _: int, choice: Choice) -> bool:
        operands = _operands(choice)
        return operands <= mine.keys() and any(operands <= own or own <= operands for own in mine.get(c, ()))

    return _part(problem, kept)


def of_plans(problem: Problem, plans: Iterable[Selection]) -> Problem:
    """Only the choices of some plans, which may be put together anew."""
    used = {(c, s) for plan in plans for c, some in plan.chosen.items() for s in some}
    return _part(problem, lambda c, s, _: (c, s) in used)


def by_way_of(problem: Problem, places: Mapping[int, Sequence[int]]) -> Problem:
    """The problem of plans that compute classes at some of their placements, and go on from there.

    Where no choice does, any may, with a conversion to the first of them. Classes that never come there stay free.
    """
    choices = list(problem.choices)
    for c, some in places.items():
        made = [x if x.out in some else IMPOSSIBLE for x in choices[c]]
        if not any(x.cost < np.inf for x in made):
            table = problem.conversions[c]
            made = [x._replace(cost=x.cost + float(table[x.out, some[0]]), out=some[0]) for x in choices[c]]
        if any(x.cost < np.inf for x in made):
            choices[c] = made
    return Problem(choices, problem.conversions, problem.roots, single=problem.single)


def affordable(problem: Problem, least: Sequence[Sequence[float]], limit: float) -> Problem:
    """Reduced-cost fixing: only choices and conversions whose use alone costs a plan no more than ``limit``.

    least[c][q]: a lower bound on the cost of plans that place class c at placement q. A choice costs a plan at least
    its own price and the dearest of its needs; a conversion its price and what has the placement that it starts at. In
    a program whose best plan sends halos, gathering whole tensors is out of the question; but as long as its choices
    are in the problem, searches visit them and relaxations use fractions of them.
    """
    made = [np.full(len(table), np.inf) for table in problem.conversions]

    def kept(c: int, _: int, choice: Choice) -> bool:
        cost = choice.cost + max((least[a][q] for a, q in choice.needs), default=0.0)
        if cost <= limit:
            made[c][choice.out] = min(made[c][choice.out], cost)
        return cost <= limit

    part = _part(problem, kept)
    part.conversions = [
        np.where(np.eye(len(table), dtype=bool) | (table + row[:, None] <= limit), table, np.inf)
        for table, row in zip(problem.conversions, made, strict=True)]
    return part


def choice_count(problem: Problem) -> int:
    """The number of choices that are not left out."""
    return sum(choice.cost < np.inf for row in problem.choices for choice in row)


def _part(problem: Problem, kept: Callable[[int, int, Choice], bool]) -> Problem:
    choices = [[choice if kept(c, s, choice) else IMPOSSIBLE for s, choice in enumerate(row)]
               for c, row in enumerate(problem.choices)]
    return Problem(choices, problem.conversions, problem.roots, single=problem.single)


def _operands(choice: Choice) -> frozenset[int]:
    return frozenset(a for a, _ in choice.needs)
