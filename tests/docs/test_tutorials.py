"""The Python of every tutorial runs as written, and prints what stands below it."""

import doctest
import re
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    monkeypatch.syspath_prepend(tmp_path)
    text = path.read_text()
    for name, code in FILE.findall(text):
        (tmp_path / name).write_text(code)
    blocks = [(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in BLOCK.finditer(text)]
    assert any(kind == "python" for kind, *_ in blocks)
    namespace: dict[str, object] = {"__name__": path.stem}
    for (kind, code, line), following in zip(blocks, [*blocks[1:], ("", "", 0)], strict=True):
        if kind == "output":
            continue
        exec(compile("\n" * line + code, str(path), "exec"), namespace)
        printed = capsys.readouterr().out
        if following[0] == "output":
            assert doctest.OutputChecker().check_output(following[1], printed, FLAGS), (
                f"{path.name}, line {line}: printed\n{printed}"
            )


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_import_public_names_only(path: Path) -> None:
    """A name of a room's own module is public; modules inside rooms are not."""
    imported = re.findall(r"^(?:from|import) (eggshard[\w.]*)", path.read_text(), re.MULTILINE)
    assert all(name.count(".") <= 1 for name in imported)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_pictures_are_there(path: Path) -> None:
    for image in re.findall(r"\]\(([^):]*\.png)\)", path.read_text()):
        assert (path.parent / image).exists()


def test_every_page_is_in_the_manual() -> None:
    docs = TUTORIALS[0].parents[1]
    listed = set(re.findall(r"^([a-z-]+/?[a-z-]+)$", (docs / "index.md").read_text(), re.MULTILINE))
    pages = {p.relative_to(docs).with_suffix("").as_posix() for p in docs.rglob("*.md") if "_build" not in p.parts}
    assert pages - listed == {"index"}
