"""The bench of cost models: what it says of tables that a machine could have measured, and of ranks."""

from pathlib import Path

import numpy as np
import pytest
from bench import costmodel as bench
from bench.costmodel_ranks import Alternative, kendall
from rich.console import Console

from eggshard.costmodel import StepInfo, preset
from eggshard.costmodel.machines.algorithms import KINDS
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh


def rows(noise: float) -> list[Measured]:
    rng, machine, out = np.random.default_rng(0), preset("a100-node"), []
    for kind in KINDS[:2]:
        for n in (2, 4, 8):
            for p in range(10, 30):
                step = StepInfo(kind, Mesh({"rest": 8 // n, "group": n}), axes=("group",), group=n,
                                wire_bytes=float(1 << p), messages=1, memory_bytes=2.0 ** p)
                out.append((step, machine.seconds(step) * float(np.exp(noise * rng.normal()))))
    return out


@pytest.mark.slow
def test_a_table_of_the_models_own_kind_is_within_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_REPEATS", 1)
    assert bench._held_out(Console(quiet=True), "device", preset("h100-node"), rows(0.05))
    assert not bench._held_out(Console(quiet=True), "device", preset("h100-node"), rows(2.0))


def test_anchors_hold_and_a_missing_table_is_said(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_installed", lambda: "")
    monkeypatch.delenv("EGGSHARD_XLA_TABLE", raising=False)
    assert bench.run(Console(width=200), only="anchors")
    assert "680" in capsys.readouterr().out
    assert bench.run(Console(width=200), only="table", table="")
    assert "EGGSHARD_XLA_TABLE" in capsys.readouterr().out


def test_rates_are_rounded_where_all_are() -> None:
    step = rows(0.0)[40][0]
    exact = [(step, bench._size(step) / rate) for rate in (1e7, 3e8)]
    assert bench._rounding(exact).tolist() == [5e6, 5e6]
    assert bench._rounding([*exact, (step, 1.2345e-5)]).tolist() == [0.0, 0.0, 0.0]


def test_entries_that_no_model_tells_apart_are_held_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that knows a copy of an entry, but for its pattern, would know the entry."""
    known: list[set[float]] = []

    def fitted(machine: object, found: list[Measured]) -> object:
        known.append({step.wire_bytes for step, _ in found})
        return machine

    monkeypatch.setattr(bench, "fitted", fitted)
    steps = [StepInfo("collective-permute", Mesh({"group": 8}), op=op, axes=("group",), group=8, messages=1,
                      wire_bytes=float(1 << p)) for p in range(10, 20) for op in ("ring", "pairs")]
    bench._crossed(preset("h100-node"), [(step, 1.0) for step in steps])
    assert len(known) == bench._FOLDS * bench._REPEATS and {len(sizes) for sizes in known} == {8}


def test_the_least_error_is_that_of_the_nearest_curve_that_never_falls() -> None:
    def found(*seconds: float, op: str = "") -> list[Measured]:
        return [(StepInfo("collective-permute", Mesh({"group": 8}), op=op, axes=("group",), group=8, messages=1,
                          wire_bytes=float(1 << i)), s) for i, s in enumerate(seconds)]

    assert bench._never_falling(found(1, 2, 4)).tolist() == pytest.approx([1, 2, 4])
    assert bench._never_falling(found(1, 8, 2, 4, 9)).tolist() == pytest.approx([1, 4, 4, 4, 9])
    assert bench._never_falling(found(1, 4) + found(4, 16, op="ring")).tolist() == pytest.approx([2, 8, 2, 8])


def test_the_plugin_is_found_where_it_is_installed_or_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_PLUGINS", ("plugins_of_a_test.cuda",))
    assert bench._installed() == ""
    (tmp_path / "jax_cuda12_pjrt-0.10.2-py3-none-any.whl").write_bytes(b"")
    assert bench._installed().endswith(".whl")
    package = tmp_path / "plugins_of_a_test" / "cuda"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    (package / "xla_cuda_plugin.so").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert bench._installed() == str(package / "xla_cuda_plugin.so")
    with pytest.raises(CostModelError, match="no table"):
        bench.run(Console(width=200), only="table")


@pytest.mark.slow
def test_a_preset_that_rests_on_a_section_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_REPEATS", 1)
    bench._held_out(Console(width=200), "sm_100_B200", preset("b200-node"), rows(0.05)[:60])
    bench._held_out(Console(width=200), "sm_100_GB200", preset("b200-node"), rows(0.05)[:60])
    out = capsys.readouterr().out
    assert "rest on this section: not held out" in out and "fitted to nothing of this section" in out


def test_kendalls_tau_counts_pairs_that_do_not_tie() -> None:
    def found(*pairs: tuple[float, float]) -> list[Alternative]:
        return [Alternative(None, price, seconds, 0.01) for price, seconds in pairs]  # type: ignore[arg-type]

    assert kendall(found((1, 1), (2, 2), (3, 3)), lambda a: a.price) == (3, 3)
    assert kendall(found((1, 3), (2, 2), (3, 1)), lambda a: a.price) == (-3, 3)
    assert kendall(found((1, 1), (2, 1.005), (3, 3)), lambda a: a.price) == (2, 2)
    assert kendall(found((1, 1), (1, 2)), lambda a: a.price) == (0, 1)
