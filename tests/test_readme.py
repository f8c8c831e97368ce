"""The README's Python runs as written."""

import re
import tomllib
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


def test_what_it_says_to_install_is_there() -> None:
    text = README.read_text()
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]
    use = text.partition("\n## Use\n")[2].partition("```python")[0]
    assert "pip install '.[jax]'" in use and project["requires-python"] == ">=3.11" and "Python 3.11 or newer" in use
    extras = re.findall(r"pip install '?(?:\.|eggshard)\[(\w+)\]", text)
    assert len(extras) >= 3 and set(extras) <= set(project["optional-dependencies"])
