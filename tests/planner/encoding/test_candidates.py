"""Candidate caps: what stays is derivable, within the cap, and holds what is pinned."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("egglog")

from eggshard.planner.encoding.candidates import within_cap  # noqa: E402
from eggshard.program.placement import Dim, Placement  # noqa: E402
from eggshard.selection.problem import Choice  # noqa: E402


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
    kept = within_cap(choices, [table(12)] * 6, [(0, 0), (5, 7)], cap, 4096)
    assert all(kept)
    for made, every in zip(kept, choices, strict=True):
        assert set(made) <= set(every)
        assert len({choice.out for choice in made}) <= cap + 2


def test_what_is_pinned_reaches_through_the_choices() -> None:
    kept = within_cap(chain(4, 12), [table(12)] * 4, [(0, 0), (3, 7)], 3, 4096)
    assert {0, 7} <= {choice.out for choice in kept[2]}


def test_the_same_problem_keeps_the_same_candidates() -> None:
    rng = random.Random(1)
    choices = chain(5, 20)
    for made in choices[1:]:
        rng.shuffle(made)
    first, second = (within_cap(choices, [table(20)] * 5, [(0, 0), (4, 3)], 4, 4096) for _ in range(2))
    assert first == second
