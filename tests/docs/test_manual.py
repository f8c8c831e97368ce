"""The manual as a whole: every page is reached, every link and path leads somewhere, chapters are short."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest
from tests.docs.pages import DOCS

PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
#: Files and folders that chapters may name, by their ends.
FOLDERS = ("src", "rewrites", "costmodel", "frontends", "tests", "testing")
PATHS = {p.relative_to(DOCS.parent).as_posix() for folder in FOLDERS for p in (DOCS.parent / folder).rglob("*")}
CONTRACTS = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CHAPTERS = sorted((DOCS / "design").glob("*.md"))
RECORDS = sorted(p for p in (DOCS / "decisions").glob("*.md") if p.stem != "index")


def listed(page: Path) -> set[Path]:
    """The pages of a page's tables of contents."""
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    names = [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]
    return {(page.parent / f"{name}.md").resolve() for name in names}


def test_every_page_is_in_the_manual() -> None:
    reached, new = set(), {(DOCS / "index.md").resolve()}
    while new:
        reached |= new
        new = {page for one in new for page in listed(one)} - reached
    assert reached == {page.resolve() for page in PAGES}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_links_lead_to_pages(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+\.md)\)", path.read_text()):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_are_short_and_name_what_is_there(path: Path) -> None:
    text = path.read_text()
    assert len(text.split()) < 600
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", text):
        assert any(f"/{path}".endswith(f"/{name.rstrip('/')}") for path in PATHS), name


def test_rooms_are_listed_in_the_order_of_the_contract() -> None:
    (layers,) = [contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"]
    rooms = re.findall(r"^\| (`.*) \|.*\|$", (DOCS / "design" / "index.md").read_text(), re.MULTILINE)
    names = [re.sub(r"/$|\.py$", "", name) for room in rooms for name in re.findall(r"`([\w/.]+)`", room)]
    for layer in reversed(layers):
        level = set(layer.split(" | "))
        assert set(names[:len(level)]) == level
        del names[:len(level)]
    assert not names


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_have_a_number_a_date_and_three_parts(path: Path) -> None:
    text = path.read_text()
    assert re.match(rf"# {int(path.stem[:4])}\. .+\n\n\*\d{{4}}-\d\d-\d\d\*\n", text)
    assert re.findall("^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) < 250


def test_every_record_has_its_number() -> None:
    assert [int(path.stem[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


AUTO = re.compile(r"^\.\. auto(module|class|function):: (\S+)\n(?:   :members: (.*))?", re.MULTILINE)


@pytest.mark.parametrize("path", sorted((DOCS / "reference").glob("*.md")), ids=lambda path: path.stem)
def test_the_reference_names_what_is_there(path: Path) -> None:
    for kind, name, members in AUTO.findall(path.read_text()):
        module, _, member = (name, "", "") if kind == "module" else name.rpartition(".")
        for each in [*members.split(", "), member]:
            assert not each.startswith("_")
            assert not each or inspect.getdoc(getattr(importlib.import_module(module), each))
