"""The plans that compute the same classes as a given plan from the same operands: its terms, at any placements.

Alternatives that the algebra finds are what makes relaxations of a large problem loose, and dual ascent end without a
plan. Among the plans of one term there are hardly any, and the bound mostly meets the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from eggshard.selection.problem import Choice, Problem


def of_same_terms(problem: Problem, chosen: Mapping[int, tuple[int, ...]]) -> Problem:
    """The problem with only the plan's classes, each with the choices that need what the plan's choices need, or more,
    or less; others cost infinitely much, so that choices keep their numbers.

    (A placement may hold what an operand would give: such a choice needs fewer operands than others of the same op.)
    """
    kept = []
    for c, choices in enumerate(problem.choices):
        mine = [_operands(choices[s]) for s in chosen.get(c, ())]
        kept.append([
            choice if mine and _among(choice, mine, chosen) else Choice(choice.out, math.inf, choice.needs, choice.tag)
            for choice in choices])
    return Problem(kept, problem.conversions, problem.roots, single=problem.single)


def _among(choice: Choice, mine: Collection[frozenset[int]], classes: Collection[int]) -> bool:
    operands = _operands(choice)
    return all(a in classes for a in operands) and any(operands <= own or own <= operands for own in mine)


def _operands(choice: Choice) -> frozenset[int]:
    return frozenset(a for a, _ in choice.needs)
