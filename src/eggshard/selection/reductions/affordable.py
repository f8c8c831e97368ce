"""Reduced-cost fixing: drops whatever no plan cheaper than a known one can use.

In a program whose best plan sends halos, gathering whole tensors is out of the question; but as long as its choices are
in the problem, searches visit them and relaxations use fractions of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.reduction import Inverse, Reduction, SameNumbers

#: Fraction of the choices that must be fixed for the reduced problem to be built.
WORTHWHILE = 0.2


class Affordable(Reduction):
    """Leaves out choices and conversions whose use alone costs a plan more than ``limit``: they cost infinitely much.

    least[c][q]: a lower bound on the cost of plans that place class c at placement q. A choice costs a plan at least
    its own price and the dearest of its needs; a conversion its price and what has the placement that it starts at.
    """

    def __init__(self, least: Sequence[Sequence[float]], limit: float) -> None:
        self.least, self.limit = least, limit

    def apply(self, problem: Problem) -> tuple[Problem, Inverse]:
        choices = [
            [s if self._at_least(s) <= self.limit else s._replace(cost=math.inf) for s in row]
            for row in problem.choices]
        conversions = []
        for table, row in zip(problem.conversions, choices, strict=True):
            made = np.full(len(table), math.inf)
            for s in row:
                made[s.out] = min(made[s.out], self._at_least(s))
            conversions.append(
                np.where(np.eye(len(table), dtype=bool) | (table + made[:, None] <= self.limit), table, math.inf))
        return Problem(choices, conversions, problem.roots, single=problem.single), SameNumbers(problem)

    def pays(self, problem: Problem) -> bool:
        """Whether it leaves out enough."""
        kept = sum(self._at_least(s) <= self.limit for row in problem.choices for s in row)
        return kept <= (1 - WORTHWHILE) * sum(map(len, problem.choices))

    def _at_least(self, choice: Choice) -> float:
        return choice.cost + max((self.least[a][q] for a, q in choice.needs), default=0.0)
