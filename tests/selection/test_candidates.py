"""Candidate caps: what stays is derivable, within the cap, and of the cheapest plans."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eggshard.selection.candidates import regrets, within_cap
from eggshard.selection.problem import Choice, Problem


def chain(length: int, placements: int) -> Problem:
    """An input at placement 0, then ops that keep their operand's placement, and cost more the higher its number."""
    choices = [[Choice(0, 0.0, ())]] + [
        [Choice(p, 1.0 + p, ((c - 1, p),)) for p in range(placements)] for c in range(1, length)
    ]
    return Problem(choices, [1.0 - np.eye(placements)] * length, [(length - 1, 0)])


def kept(problem: Problem, pinned: list[tuple[int, int]], cap: int) -> list[list[Choice]]:
    numbers = [list(range(len(table))) for table in problem.conversions]
    return within_cap(problem, pinned, numbers, numbers, cap)


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_the_cap_holds_and_every_class_stays_computable(cap: int) -> None:
    problem = chain(6, 12)
    found = kept(problem, [(0, 0), (5, 7)], cap)
    assert all(found)
    for made, every in zip(found, problem.choices, strict=True):
        assert set(made) <= set(every)
        assert len({choice.out for choice in made}) <= cap + 2


def test_the_cheapest_stay() -> None:
    assert [{x.out for x in made} for made in kept(chain(4, 12), [], 3)] == [{0}, *[{0, 1, 2}] * 3]


def test_the_same_problem_keeps_the_same_candidates() -> None:
    rng = random.Random(1)
    problem = chain(5, 20)
    for made in problem.choices[1:]:
        rng.shuffle(made)
    first, second = (kept(problem, [(0, 0), (4, 3)], 4) for _ in range(2))
    assert first == second


def tree(rng: random.Random, classes: int, placements: int) -> Problem:
    """Every class but the last is an operand of one other; conversions cost distances on a line."""
    places = [np.array([rng.uniform(0, 3) for _ in range(placements)]) for _ in range(classes)]
    children: list[list[int]] = [[] for _ in range(classes)]
    for c in range(classes - 1):
        children[rng.randrange(c + 1, classes)].append(c)
    choices = [
        [Choice(rng.randrange(placements), rng.uniform(0, 4), tuple((w, rng.randrange(placements)) for w in below))
         for _ in range(6)]
        for below in children
    ]
    return Problem(choices, [abs(x[:, None] - x) for x in places], [(classes - 1, 0)])


def least(problem: Problem, shard: tuple[int, int], made: bool | None = None) -> float:
    """What the cheapest plan costs; that which computes the shard (made), or hands it on to what needs it."""
    c, p = shard

    def delivered(w: int, q: int) -> float:
        if made is False and w == c and q != p:
            return np.inf
        some = [x for x in problem.choices[w] if not (made and w == c and x.out != p)]
        return min((x.cost + sum(delivered(*need) for need in x.needs) + problem.conversions[w][x.out, q]
                    for x in some), default=np.inf)

    return sum(delivered(*root) for root in problem.roots)


@pytest.mark.parametrize("seed", range(8))
def test_regrets_are_what_plans_of_trees_cost_more(seed: int) -> None:
    problem = tree(random.Random(seed), 6, 4)
    best = least(problem, (0, 0))
    for c, found in enumerate(regrets(problem)):
        want = [min(least(problem, (c, p), made) for made in (True, False)) - best for p in range(4)]
        np.testing.assert_allclose(found, want, atol=1e-12)


def test_cycles_and_what_cannot_be_had() -> None:
    """Two classes that are made of each other, one of an input as well, and one of nothing."""
    choices = [
        [Choice(0, 0.0, ())], [Choice(0, 1.0, ((0, 0),)), Choice(1, 0.5, ((2, 1),))], [Choice(1, 2.0, ((1, 0),))],
        [Choice(0, 1.0, ((3, 1),))],
    ]
    problem = Problem(choices, [np.array([[0.0, 9.0], [9.0, 0.0]])] * 4, [(1, 1)])
    found = regrets(problem)
    assert np.isfinite(found[2][1]) and np.isfinite(found[1]).all() and np.isinf(found[3]).all()
