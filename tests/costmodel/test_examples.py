"""The examples of own cost models run, and their models change plans or prices as they say."""

import os
import runpy
from pathlib import Path

import pytest

pytest.importorskip("jax")

EXAMPLES = Path(__file__).parents[2] / "examples" / "cost_models"


@pytest.fixture(autouse=True)
def _like_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))


@pytest.mark.parametrize("name", ["message_count", "energy", "measured_table"])
def test_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
    assert "by default: {" in capsys.readouterr().out


def test_a_dear_all_to_all_is_avoided(capsys: pytest.CaptureFixture[str]) -> None:
    import eggshard as es

    found = runpy.run_path(str(EXAMPLES / "measured_table.py"))
    table = found["Table"].of(found["rows"](found["CSV"]), found["preset"]("h100-node"))
    move = ((256, 256), "f32", {"x": 4}, ("x", None), (None, "x"))
    assert es.plan_reshard(*move, cost_model="h100-node").collectives == {"all-to-all": 1}
    assert "all-to-all" not in es.plan_reshard(*move, cost_model=table).collectives


def test_the_learned_one_asks_for_scikit_learn_or_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "learned.py"))["main"]()
    printed = capsys.readouterr().out
    assert "pip install eggshard[examples]" in printed or "as learned: {" in printed
