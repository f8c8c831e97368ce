"""Codes per device: what a row shows, what the seed draws, and what is a failure."""

from __future__ import annotations

import io

import pytest
from bench import partition, per_device
from bench.partition import Way
from bench.programs import by_name
from bench.programs.per_device import programs
from rich.console import Console


def printed(only: str) -> tuple[bool, str]:
    console = Console(file=io.StringIO(), width=300)
    good = per_device.run(console, only)
    return good, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_row_has_bytes_and_collectives_as_written_and_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "SPENT", 0.1)
    good, shown = printed("upwind")
    row = next(line.split("│") for line in shown.splitlines() if "upwind" in line)
    assert good and row[-3].strip() == "CP" and row[-4].strip().endswith("CP") and row[-4].strip() != "CP"


def test_wrong_results_fallbacks_and_more_collectives_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Way(0.0, collectives={"all-gather": 99}, failure="wrong results", fallback="no time")
    found = {"optimize": ours, "XLA": Way()}
    monkeypatch.setattr(partition, "_way", lambda way, *rest: found[way])
    good, shown = printed("upwind")
    assert not good and "wrong results; fell back: no time; more collectives than the code" in shown


def test_sizes_come_from_the_seed() -> None:
    first, again, other = (by_name(programs(seed)) for seed in (1, 1, 2))
    assert list(first) == list(other)
    assert first["upwind"].module == again["upwind"].module
    assert any(first[name].arguments != other[name].arguments for name in first)
