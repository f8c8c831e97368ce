"""The Python of every tutorial and how-to runs as written, and prints what stands below it."""

import re
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, run_page

PAGES = sorted([*(DOCS / "tutorials").glob("*.md"), *(DOCS / "how-to").glob("*.md")])
TUTORIALS = [path for path in PAGES if "```python" in path.read_text()]
SLOW = {"cluster", "one-to-many", "stencil"}


@pytest.mark.parametrize("path", [pytest.param(path, marks=pytest.mark.slow) if path.stem in SLOW else path
                                  for path in TUTORIALS], ids=lambda path: path.stem)
def test_tutorial(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    monkeypatch.syspath_prepend(tmp_path)
    assert run_page(path, capsys, tmp_path)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_import_public_names_only(path: Path) -> None:
    """A name of a room's own module is public; modules inside rooms are not."""
    imported = re.findall(r"^(?:from|import) (eggshard[\w.]*)", path.read_text(), re.MULTILINE)
    assert all(name.count(".") <= 1 for name in imported)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_pictures_are_there(path: Path) -> None:
    for image in re.findall(r"\]\(([^):]*\.png)\)", path.read_text()):
        assert (path.parent / image).exists()
