"""Programs of upstream issues: what the bench calls good, what the seed draws, and the page that lists them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from bench import partition, upstream
from bench.partition import Way
from bench.programs import by_name
from bench.programs.upstream import programs
from rich.console import Console

PAGE = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text()
#: A program of the page, and the figures after it.
LISTED = re.compile(r"`([^`]+)`: [\d,.-]+ to [\d,.]+ KiB")
LINK = re.compile(r"^\[([\w./-]+)#(\d+)\]: https://github\.com/([\w./-]+)/(?:issues|pull)/(\d+)$", re.MULTILINE)


def printed(only: str) -> tuple[bool, str]:
    console = Console(file=io.StringIO(), width=400)
    good = upstream.run(console, only)
    return good, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_row_has_bytes_and_collectives_of_both() -> None:
    good, shown = printed("first rows set")
    row = next(line.split("│") for line in shown.splitlines() if "jax-ml/jax#23052" in line)
    cells = [cell.strip() for cell in row[1:-1]]
    assert good and [cells[i] for i in (1, 3, 5, 7, 8, 9)] == ["first rows set", "3,584", "0", "AG", "none", ""]


def test_more_bytes_wrong_results_and_fallbacks_fail_and_xlas_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"optimize": Way(1e9, failure="wrong results", fallback="no time"), "XLA": Way(failure="wrong results")}
    monkeypatch.setattr(partition, "_way", lambda way, *rest: found[way])
    good, shown = printed("first rows set")
    assert not good and "wrong results; fell back: no time; more bytes than XLA; XLA: wrong results" in shown
    found["optimize"] = Way(0.0)
    assert printed("first rows set")[0]


def test_names_stay_and_positions_come_from_the_seed() -> None:
    first, again, other = (by_name(programs(seed)) for seed in (3, 3, 4))
    assert list(first) == list(again) == list(other)
    assert first["gauge"].module == again["gauge"].module != other["gauge"].module


def test_the_page_lists_every_program_and_thread() -> None:
    listed = LISTED.findall(" ".join(PAGE.split()))
    assert sorted(listed) == sorted(by_name(programs()))
    links = {f"{repository}#{number}" for repository, number, *_ in LINK.findall(PAGE)}
    assert {thread for program in programs() for thread in program.origin.split()} <= links


def test_every_thread_of_the_page_has_its_link() -> None:
    links = LINK.findall(PAGE)
    assert all((repository, number) == (at, same) for repository, number, at, same in links)
    named = set(re.findall(r"\[([\w./-]+#\d+)\](?!: https)", PAGE))
    assert named == {f"{repository}#{number}" for repository, number, *_ in links}
