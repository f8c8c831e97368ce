"""Candidate caps: what stays is derivable, within the cap, and holds what is pinned."""

from __future__ import annotations

import random

import pytest

from eggshard.planner.encoding.candidates import closure, within_cap
from eggshard.program.placement import Dim, Placement
from eggshard.selection.problem import Choice


def chain(length: int, placements: int) -> list[list[Choice]]:
    """An input pinned at placement 0, then ops that keep their operand's placement."""
    return [[Choice(0, 0.0, ())]] + [
        [Choice(p, 1.0, ((c - 1, p),)) for p in range(placements)] for c in range(1, length)
    ]


def table(placements: int) -> list[Placement]:
    return [Placement((Dim((f"a{p}",) if p else (), 1),)) for p in range(placements)]


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_the_cap_holds_and_every_class_stays_computable(cap: int) -> None:
    choices = chain(6, 12)
    kept = within_cap(choices, [table(12)] * 6, [(0, 0), (5, 7)], cap)
    assert all(kept)
    for made, every in zip(kept, choices, strict=True):
        assert set(made) <= set(every)
        assert len({choice.out for choice in made}) <= cap + 2


def test_what_is_pinned_reaches_through_the_choices() -> None:
    kept = within_cap(chain(4, 12), [table(12)] * 4, [(0, 0), (3, 7)], 3)
    assert {0, 7} <= {choice.out for choice in kept[2]}


def test_the_same_problem_keeps_the_same_candidates() -> None:
    rng = random.Random(1)
    choices = chain(5, 20)
    for made in choices[1:]:
        rng.shuffle(made)
    first, second = (within_cap(choices, [table(20)] * 5, [(0, 0), (4, 3)], 4) for _ in range(2))
    assert first == second


def reached_by_loops(
    choices: list[list[Choice]], seeds: list[tuple[int, int]], rounds: int
) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in choices]
    for c, p in seeds:
        found[c].add(p)
    for _ in range(rounds):
        new = [set(f) for f in found]
        for c, made in enumerate(choices):
            for choice in made:
                if all(p in found[w] for w, p in choice.needs):
                    new[c].add(choice.out)
                if choice.out in found[c]:
                    for w, p in choice.needs:
                        new[w].add(p)
        if new == found:
            break
        found = new
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_closure_is_what_plain_loops_find(seed: int) -> None:
    rng = random.Random(seed)
    choices: list[list[Choice]] = [[] for _ in range(12)]
    for arity in (0, 1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 3, 1, 2):
        children = rng.choices(range(12), k=arity)
        choices[rng.randrange(12)] += [
            Choice(rng.randrange(8), 1.0, tuple(dict.fromkeys((c, rng.randrange(8)) for c in children)))
            for _ in range(5)
        ]
    seeds = [(0, 1), (3, 2), (7, 5)]
    rank = [[(0.0, p) for p in range(8)]] * 12
    for rounds in (1, 2, 30):
        found = closure(choices, seeds, rank, 100, rounds)
        assert [set(f) for f in found] == reached_by_loops(choices, seeds, rounds)


def test_the_cap_keeps_the_best_ranked_and_all_seeds() -> None:
    choices: list[list[Choice]] = [[], [Choice(p, 1.0, ((0, 0),)) for p in range(1, 7)]]
    rank = [[(float(r), p) for p, r in enumerate((0, 5, 1, 4, 2, 3, 9))]] * 2
    found = closure(choices, [(0, 0), (1, 6)], rank, 3)
    assert [list(f) for f in found] == [[0], [6, 2, 4]]
