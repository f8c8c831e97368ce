"""Running the Python of a page of the manual, and comparing what it prints with what stands below it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(path: Path, capsys: pytest.CaptureFixture[str], folder: Path) -> int:
    """Run a page's Python in order, its files in a folder; returns how many blocks ran."""
    text = path.read_text()
    for name, code in FILE.findall(text):
        (folder / name).write_text(code)
    blocks = [(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in BLOCK.finditer(text)]
    namespace: dict[str, Any] = {"__name__": path.stem}
    ran = 0
    for (kind, code, line), following in zip(blocks, [*blocks, ("", "", 0)][1:], strict=True):
        if kind == "output":
            continue
        exec(compile("\n" * line + code, str(path), "exec", dont_inherit=True), namespace)
        ran += 1
        printed = capsys.readouterr().out
        if following[0] == "output":
            assert doctest.OutputChecker().check_output(following[1], printed, FLAGS), (
                f"{path.name}, line {line}: printed\n{printed}"
            )
    return ran
