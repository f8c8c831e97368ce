from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.samples import CHAIN, MLP, chain, mlp
from typer.testing import CliRunner

import eggshard
from eggshard.cli import app
from eggshard.costmodel import Messages, StepInfo
from eggshard.errors import EggshardError


def test_a_plan_does_not_differ_from_itself() -> None:
    found = mlp().diff(mlp())
    assert found.same == len(mlp().steps) and all(a == b for a, b in found.rows)
    assert "4 of 4 and 4 steps are the same" in str(found)


def test_every_step_of_both_is_in_one_row() -> None:
    plan, baseline = chain(), chain().baseline
    found = plan.diff(baseline, ("plan", "baseline"))
    assert [a.step for a, _ in found.rows if a] == [str(i) for i in range(len(plan.steps))]
    assert sorted(int(b.step) for _, b in found.rows if b) == list(range(len(baseline.steps)))
    for a, b in found.rows:
        assert a or b
        if a and b:
            assert a.same(b) or (a.value, a.op) == (b.value, b.op)
    shown = str(found)
    assert "plan" in shown and "baseline" in shown and "x " in shown
    assert any(line.startswith((" -", " +")) for line in shown.splitlines())


def test_the_command_line_prints_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(mlp().to_json())
    (tmp_path / "b.json").write_text(eggshard.optimize(MLP, cost_model=Messages()).to_json())
    result = CliRunner().invoke(app, ["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert result.exit_code == 0, result.output
    assert "a.json" in result.output and "seconds" in result.output


def test_the_command_line_explains_a_step_and_writes_a_report(tmp_path: Path) -> None:
    saved, page = tmp_path / "plan.json", tmp_path / "plan.html"
    saved.write_text(mlp().to_json())
    result = CliRunner().invoke(app, ["explain", str(saved), "--step", "3"])
    assert result.exit_code == 0 and "WHAT ELSE" in result.output, result.output
    result = CliRunner().invoke(app, ["report", str(saved), "-o", str(page)])
    assert result.exit_code == 0 and page.read_text().startswith("<!doctype html>"), result.output


def test_prices_of_two_models_are_said_to_be() -> None:
    class Mine:
        def seconds(self, step: StepInfo) -> float:
            return 2e-9 * step.wire_bytes + 1e-6 * step.messages + 1e-15 * step.flops

    first, second = chain(), eggshard.optimize(CHAIN, cost_model=Mine())
    assert "each plan's own model's" in str(first.diff(second)) and "; Mine" in str(first.diff(second))
    assert "own model's" not in str(first.diff(first))
    with pytest.raises(EggshardError, match="str is no plan to compare with"):
        first.diff("plan.json")  # type: ignore[arg-type]
