"""Programs of users, partitioned and planned beside XLA: what the bench calls good, and what not."""

from __future__ import annotations

import io

import pytest
from bench import partition
from bench.partition import Way
from rich.console import Console


def printed(only: str) -> tuple[bool, str]:
    console = Console(file=io.StringIO(), width=400)
    good = partition.run(console, only)
    return good, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_row_has_bytes_and_flops_of_all_ways() -> None:
    good, shown = printed("largest of shards")
    assert good and "2AG AR" in shown and shown.count("0.984") == 4


def test_more_bytes_more_flops_and_wrong_results_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"shardy": Way(1e9, 1.0), "global": Way(1e9, 1e12), "optimize": Way(0.0, 1.0, failure="wrong results"),
             "XLA": Way()}
    monkeypatch.setattr(partition, "_way", lambda way, *rest: found[way])
    good, shown = printed("largest of shards")
    shown = " ".join(shown.split())
    assert not good and "shardy: more" not in shown
    assert "global: more bytes than XLA" in shown and "more flops than XLA" in shown and "wrong results" in shown
