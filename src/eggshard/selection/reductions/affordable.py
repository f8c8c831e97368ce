"""A problem without what no plan cheaper than a known one can use.

In a program whose best plan sends halos, anything that gathers whole tensors is out of the question; but as long as
its choices are there, the searches look at them, and relaxations use them by fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eggshard.selection.problem import Problem, Selection
from eggshard.selection.reductions.shrink import Shrunk, shrink

#: Less than this fraction of the choices is not worth leaving out.
WORTHWHILE = 0.2


@dataclass
class Narrowed:
    """A problem of which all plans up to some cost are plans of the original, made smaller; and the way back."""

    outer: Shrunk | Narrowed
    inner: Shrunk

    @property
    def problem(self) -> Problem:
        return self.inner.problem

    def lift(self, selection: Selection) -> Selection | None:
        """The original problem's selection, with its own exact cost."""
        found = self.inner.lift(selection)
        return None if found is None else self.outer.lift(found)

    def lower(self, chosen: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """The choices that come nearest to the original problem's choices; those need not make up a plan."""
        return self.inner.lower(self.outer.lower(chosen))


def narrow(shrunk: Shrunk | Narrowed, least: Sequence[Sequence[float]], limit: float) -> Narrowed | None:
    """Leave out choices and conversions whose use alone costs a plan more than ``limit``; None where these are few.

    least[c][q]: a lower bound on what a plan pays in which class c lies at placement q. A choice costs a plan at least
    its own price and the dearest of its needs; a conversion its price and what has the placement that it starts at.
    """
    problem = shrunk.problem
    choices, kept = [], 0
    for row in problem.choices:
        costs = [s.cost + max((least[a][q] for a, q in s.needs), default=0.0) for s in row]
        choices.append([s if cost <= limit else s._replace(cost=math.inf) for s, cost in zip(row, costs, strict=True)])
        kept += sum(cost <= limit for cost in costs)
    if kept > (1 - WORTHWHILE) * sum(map(len, problem.choices)):
        return None
    conversions = []
    for c, table in enumerate(problem.conversions):
        made = [math.inf] * len(table)
        for s in choices[c]:
            made[s.out] = min(made[s.out], s.cost + max((least[a][q] for a, q in s.needs), default=0.0))
        conversions.append(np.where(np.eye(len(table), dtype=bool) | (table + np.array(made)[:, None] <= limit),
                                    table, math.inf))
    return Narrowed(shrunk, shrink(Problem(choices, conversions, problem.roots, single=problem.single)))
