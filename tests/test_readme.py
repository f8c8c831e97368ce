"""The README's Python runs as written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # they write files
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "all-reduce" in printed or "reduce-scatter" in printed
    assert "equal to the unsharded program" in printed
