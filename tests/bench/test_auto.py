"""Choices of shardings: what a row shows, what the seed draws, and what is a failure."""

from __future__ import annotations

import io

import pytest
from bench import auto
from bench.auto import Chosen, summary
from bench.programs.choices import programs
from rich.console import Console


@pytest.mark.slow
def test_a_choice_is_held_against_those_by_hand_and_all_others() -> None:
    console = Console(file=io.StringIO(), width=300)
    good = auto.run(console, "embedding", model="tpu-v5e", most=2)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert good and "2 of 324" in shown and "1 programs: cost over the best by hand" in shown


def test_what_is_dearer_than_another_choice_fails() -> None:
    row = Chosen("f", 2.0, 1.5, {"DP": 1.9}, 1.0, (9, 9), fallback="no time")
    assert row.failures == ["fell back: no time", "1.053 of the best by hand", "2.000 of the best of all",
                            "another choice is below the bound"]
    assert not Chosen("f", 1.0, 0.9, {"DP": 1.0}, 0.995).failures
    assert list(summary([row]))[0].startswith("1 programs: cost over the best by hand: geometric mean 1.053, 0 better")


def test_sizes_come_from_the_seed() -> None:
    first, again, other = ({p.name: p.arguments for p in programs(seed)} for seed in (1, 1, 2))
    assert list(first) == list(other) and first == again != other
