"""Choices of shardings within limits: what rows show, and what is a failure."""

from __future__ import annotations

import io

import pytest
from bench import auto_memory
from bench.auto_memory import Found, Limited, summary
from rich.console import Console


@pytest.mark.slow
def test_choices_within_limits_are_held_against_those_by_hand() -> None:
    console = Console(file=io.StringIO(), width=200)
    good = auto_memory.run(console, "products of columns", model="tpu-v5e")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert good and "2 of 2 limits that plans by hand meet are met" in shown


def test_no_plan_or_a_dearer_one_than_by_hand_fails() -> None:
    assert Found(10, 1.1, 9, 1.0).failure == "1.100 of the best by hand"
    assert Found(10, None, hand=1.0).failure == "no plan"
    assert not Found(10, 1.0, 9, 1.0).failure and not Found(10, None, proved=True).failure


def test_what_all_rows_come_to() -> None:
    row = Limited("f", 1.0, [Found(5, None, proved=True), Found(10, 1.0, 9, 1.0), Found(12, None, hand=1.0)])
    assert list(summary([row])) == ["1 of 2 limits that plans by hand meet are met, at no more cost",
                                    "below: 0 of 1 met, 1 proved impossible"]
