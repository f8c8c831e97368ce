"""The page on reading a plan: its Python runs, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reading-a-plan.md"


def test_the_page_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    text = PAGE.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for language, block in blocks:
        if language == "python":
            exec(compile(block, PAGE.name, "exec"), namespace)
    printed = capsys.readouterr().out
    shown = [line for language, block in blocks if not language for line in block.splitlines() if line]
    quoted = [line for line in shown if line.startswith((" ", "step", "WH"))]
    missing = [line for line in quoted if line.rstrip() not in {p.rstrip() for p in printed.splitlines()}]
    assert len(quoted) > 15 and not missing
    assert (tmp_path / "plan.html").stat().st_size > 100_000
    for image in re.findall(r"\]\((images/[^)]*)\)", text):
        assert (PAGE.parent / image).exists()
