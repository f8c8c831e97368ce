"""The field examples run, and what they print and draw of a plan's exchanges is right."""

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
from jax import lax  # noqa: E402
from tests.planner.test_stencils import PLANE, X8, argument, planned  # noqa: E402

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _like_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts find what lies next to them, and set environment variables."""
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("name,fields", [("heat", 1), ("shallow_water", 3)])
def test_runs(name: str, fields: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "figure.png"
    compared = example(name)["main"](["--size", "32", "--steps", "3", "--plot", str(figure), "--no-plot"])
    assert not compared.plan.search.fallback
    assert len(compared.results) == fields and all(np.ptp(a) > 0 for a in compared.results)
    printed = capsys.readouterr().out
    assert "XLA's partitioner" in printed and compared.ours.summary in printed
    assert not figure.exists()


def test_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    step = example("heat")["step"]
    shared = importlib.import_module("side_by_side")
    plan = planned(lambda u: step(step(u)), X8, argument((32, 32), "x -", "float32"))
    nothing = shared.CollectiveCount((), 8)
    field = np.ones((32, 32), np.float32)
    compared = shared.Compared(plan, nothing, nothing, (field,), 0.0)
    shared.draw(tmp_path / "figure.png", "heat", field, compared)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shared.draw(tmp_path / "none.png", "heat", field, compared)
    assert "eggshard[examples]" in capsys.readouterr().out and not (tmp_path / "none.png").exists()


def test_what_devices_send() -> None:
    step = example("heat")["step"]

    def simulate(u: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, u: step(u), u)

    shared = importlib.import_module("side_by_side")
    for mesh, spec in ((X8, "x -"), (PLANE, "x y")):
        plan = planned(simulate, mesh, argument((32, 32), spec, "float32"))
        counted = shared.exchanges(plan)
        assert sum(action.messages * times for action, times in counted.items()) == sum(plan.collectives.values())
        sent = sum(times * shared.sent(plan, action) for action, times in counted.items())
        assert (sent == sent.T).all() and not sent.diagonal().any()
        if mesh is X8:  # one row up and one down in each of three steps, none across the walls
            assert (sent == 3 * (np.eye(8, k=1, dtype=int) + np.eye(8, k=-1, dtype=int))).all()
        else:  # devices in the middle have three neighbours, those at the ends two
            assert [np.count_nonzero(row) for row in sent] == [2, 2, 3, 3, 3, 3, 2, 2]
