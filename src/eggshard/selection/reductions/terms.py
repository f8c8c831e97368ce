"""Problems restricted to some plans: recombinations of given ones, or plans of the same terms as a given one.

The latter compute the same classes from the same operands (a fixed term), at any placements. Algebraic alternatives
are what makes relaxations of a large problem loose and dual ascent end without a plan. Among the plans of one term
there are hardly any, and the bound mostly meets the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.selection.reductions.reduction import Inverse, Reduction, SameNumbers


class SameTerms(Reduction):
    """Only the plan's classes, each with the choices that need what the plan's choices need, or more, or less; others
    cost infinitely much.

    (A placement may hold what an operand would give: such a choice needs fewer operands than others of the same op.)
    """

    def __init__(self, chosen: Mapping[int, tuple[int, ...]]) -> None:
        self.chosen = chosen

    def apply(self, problem: Problem) -> tuple[Problem, Inverse]:
        kept = []
        for c, choices in enumerate(problem.choices):
            mine = [_operands(choices[s]) for s in self.chosen.get(c, ())]
            kept.append([
                choice if mine and _among(choice, mine, self.chosen) else choice._replace(cost=math.inf)
                for choice in choices])
        return Problem(kept, problem.conversions, problem.roots, single=problem.single), SameNumbers(problem)


class OfPlans(Reduction):
    """Only the choices of some plans, which may be put together anew; others cost infinitely much."""

    def __init__(self, plans: Sequence[Selection]) -> None:
        self.plans = plans

    def apply(self, problem: Problem) -> tuple[Problem, Inverse]:
        used: list[set[int]] = [set() for _ in problem.choices]
        for plan in self.plans:
            for c, some in plan.chosen.items():
                used[c].update(some)
        choices = [[s if i in some else s._replace(cost=math.inf) for i, s in enumerate(row)]
                   for row, some in zip(problem.choices, used, strict=True)]
        return Problem(choices, problem.conversions, problem.roots, single=problem.single), SameNumbers(problem)


def _among(choice: Choice, mine: Collection[frozenset[int]], classes: Collection[int]) -> bool:
    operands = _operands(choice)
    return all(a in classes for a in operands) and any(operands <= own or own <= operands for own in mine)


def _operands(choice: Choice) -> frozenset[int]:
    return frozenset(a for a, _ in choice.needs)
