"""Guides for contributors: their Python runs, and the files that they name are the right ones."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, run_page

from eggshard.engines.running import ENGINES
from eggshard.frontends import registry as frontends
from eggshard.ops import base
from eggshard.shardy import catalogue

GUIDES = sorted((DOCS / "guides").glob("*.md"))
ROOT = DOCS.parent
#: A command, and what it prints.
GREP = re.compile(
    r'^```\{code-block\} text\n:caption: grep -rlE "([^\n]*)" ([\w ]+)\n\n(.*?)^```', re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"`((?:src|rewrites|costmodel|frontends|tests|testing|docs)/[\w/.-]*|pyproject\.toml)`")


@pytest.fixture
def registered() -> Iterator[None]:
    """What a guide registers is known to no other test."""
    tables = (base._REGISTRY, ENGINES, catalogue.PASSES)
    before, sources = [dict(table) for table in tables], list(frontends._frontends)
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    frontends._frontends[:] = sources
    gc.collect()  # classes of actions are found as subclasses


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_guide(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(path, capsys, tmp_path) or path.stem in ("index", "placement-kind")


def printed(pattern: str, folders: str) -> list[str]:
    """The Python files in which a pattern is found, as by ``grep -r``, which follows no links to folders."""
    expression = re.compile(pattern)
    files = (p for folder in folders.split() for p in (ROOT / folder).rglob("*.py"))
    return sorted(p.relative_to(ROOT).as_posix() for p in files if expression.search(p.read_text()))


LISTS = [(path.stem, *match) for path in GUIDES for match in GREP.findall(path.read_text())]


@pytest.mark.parametrize(("guide", "pattern", "folders", "listed"), LISTS, ids=[f"{g}: {p}" for g, p, *_ in LISTS])
def test_lists_are_what_their_commands_print(guide: str, pattern: str, folders: str, listed: str) -> None:
    assert listed.split() == printed(pattern.replace('\\"', '"'), folders)


def test_every_table_of_readers_is_among_the_places_for_a_collective() -> None:
    (places, *_) = [listed.split() for guide, _, _, listed in LISTS if guide == "collective"]
    tables = printed(r'= Handlers\("', "src rewrites costmodel frontends")
    assert tables and set(tables) <= set(places)


@pytest.mark.parametrize("path", [*GUIDES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_files_that_are_named_exist(path: Path) -> None:
    assert [name for name in NAMED.findall(path.read_text()) if not (ROOT / name).exists()] == []


def test_every_guide_but_the_index_names_files() -> None:
    assert {guide for guide, *_ in LISTS} == {path.stem for path in GUIDES} - {"index"}
