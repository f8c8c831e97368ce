"""Progress: stages in order, a bar only where and when it helps, nothing left behind."""

from __future__ import annotations

import io
import pickle
import sys
import time
from typing import Any

import pytest
from rich.console import Console
from tests.report.samples import MLP, scan

import eggshard
from eggshard.costmodel import AlphaBeta
from eggshard.planner import progress
from eggshard.planner.layers import planning as layers_planning
from eggshard.planner.progress import STAGES, Bar, Clock, tracked


def stages_of(program: Any, **options: Any) -> list[str]:
    heard: list[tuple[str, float]] = []
    eggshard.optimize(program, progress=lambda stage, seconds: heard.append((stage, seconds)), **options)
    assert [seconds for _, seconds in heard] == sorted(seconds for _, seconds in heard)
    return [stage for stage, _ in heard]


@pytest.mark.parametrize("model", [None, AlphaBeta(overlap=1.0)], ids=["prices", "schedules"])
def test_a_function_hears_of_every_stage_once_in_order(model: AlphaBeta | None) -> None:
    assert stages_of(MLP, cost_model=model) == list(STAGES)


def test_bodies_are_planned_in_the_stage_of_what_holds_them() -> None:
    assert stages_of(scan()) == list(STAGES)


def test_layers_are_heard_of_like_any_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers_planning, "MANY_OPS", 8)
    b = eggshard.ProgramBuilder({"x": 2})
    x = b.input((64, 64), "f32", ("x", None))
    for _ in range(8):
        x = b.op("tanh", b.dot(x, b.input((64, 64), "f32", (None, "x"))))
    b.output(x)
    assert stages_of(b.build()) == list(STAGES)


def test_a_bar_shows_a_stage_that_comes_again() -> None:
    heard: list[str] = []
    with Bar(lambda stage, seconds: heard.append(stage)) as bar:
        for stage in ("read", "select", "saturate", "select", "lower", "select"):
            bar.stage(stage)
            assert bar._now == stage
    assert heard == ["read", "select", "lower"]


def test_nothing_is_drawn_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "WAIT", 0.0)
    assert not Bar(None).drawn and Bar(True).drawn and not Bar(False).drawn
    eggshard.optimize(MLP)
    captured = capsys.readouterr()
    assert not captured.err and not captured.out


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert Bar(None).drawn and not Bar(False).drawn


def drawn(console: Console, steps: int) -> None:
    with Bar(True, ("one", "two"), "working", console) as bar:
        bar.stage("one")
        until = time.monotonic() + 10
        while bar._bar is None and steps and time.monotonic() < until:
            time.sleep(0.01)
        bar.stage("two")
        if bar._bar is not None:
            bar._bar.refresh()  # type: ignore[attr-defined]


def test_long_work_is_drawn_and_short_work_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    drawn(console, 0)
    assert not out.getvalue()
    monkeypatch.setattr(progress, "WAIT", 0.0)
    drawn(console, 1)
    assert "working" in out.getvalue() and "two" in out.getvalue()


def test_items_are_counted() -> None:
    assert list(tracked([1, 2, 3], "counting", False)) == [1, 2, 3]


def test_a_clock_is_a_dictionary_elsewhere() -> None:
    clock = Clock(lambda stage: None)
    clock["load"] = 1.0
    assert type(pickle.loads(pickle.dumps(clock))) is dict
