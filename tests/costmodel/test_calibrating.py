"""Calibration on the devices of the tests: small, for what it writes and says, not for its figures."""

from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from eggshard.cli import app
from eggshard.costmodel import StepInfo, detect, load, preset
from eggshard.costmodel.calibrating import calibrate
from eggshard.costmodel.measuring import cases
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh


def test_what_is_calibrated_is_saved_where_asked(monkeypatch, tmp_path: Path) -> None:
    """With a machine's prices for times."""
    truth = preset("h100-node")
    monkeypatch.setattr("eggshard.costmodel.calibrating.measure", lambda found, devices, repeats, advance: [
        (c.step, truth.seconds(c.step)) for c in found])
    path = tmp_path / "mine.toml"
    result = CliRunner().invoke(app, ["calibrate", "--output", str(path)])
    assert result.exit_code == 0, result.output
    assert f'load("{path}")' in result.output.replace("\n", "") and "halo-exchange" in result.output
    machine = load(path)
    assert machine.devices == ("cpu",) and "calibrate" in machine.sources["protocols"]
    gather = StepInfo("all-gather", Mesh({"x": 8}), axes=("x",), group=8, wire_bytes=1e6, messages=1)
    assert machine.seconds(gather) == pytest.approx(truth.seconds(gather), rel=0.3)
    permute, exchange = (StepInfo(kind, Mesh({"x": 8}), axes=("x",), group=8, wire_bytes=1e6, messages=1)
                         for kind in ("collective-permute", "exchange"))
    assert machine.seconds(permute) == machine.seconds(exchange)


@pytest.mark.slow
def test_a_calibrated_machine_is_found_by_its_devices(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["calibrate", "--sizes", "1KiB,8KiB,64KiB", "--groups", "8", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "all-reduce" in result.output and "halo-exchange" in result.output and "cost_model" in result.output
    machine = detect(jax.devices())
    assert machine.name == f"cpu-{len(jax.devices())}" and machine.devices == ("cpu",)
    assert machine == load(tmp_path / "eggshard" / "machines" / f"{machine.name}.toml")
    mesh = Mesh({"x": 8})
    kinds = {kind for p in machine.protocols for kind in p.kinds}
    assert {"all-gather", "all-reduce", "collective-permute"} <= kinds
    for kind in ("all-gather", "all-to-all"):
        small, large = (machine.seconds(StepInfo(kind, mesh, axes=("x",), group=8, wire_bytes=w, messages=1,
                                                 memory_bytes=w)) for w in (1e3, 1e8))
        assert 0 < small < large
    assert machine.compute.like["exponential"] == "tanh"


def test_every_kind_is_measured_at_every_size_and_group() -> None:
    found = cases(8, (1 << 10, 1 << 16))
    steps = [(c.step.kind, c.step.group) for c in found if c.step.communicates]
    assert len(steps) == len(set(steps)) * 2 == 6 * 3 * 2
    assert {c.step.op for c in found if not c.step.communicates} == {"add", "tanh", "reduce", "dot_general"}


@pytest.mark.parametrize(("options", "message"), [
    ({"groups": (3,)}, r"\[3\] do not divide 8"), ({"sizes": (4,)}, "at least 4"), ({"repeats": 0}, "at least once"),
    ({"devices": jax.devices()[:1]}, "--devices 8"),
])
def test_impossible_calibrations_are_refused(options: dict, message: str) -> None:
    with pytest.raises(CostModelError, match=message):
        calibrate(**options)


@pytest.mark.parametrize("arguments", [["--sizes", "1KB"], ["--groups", "two"]])
def test_mistaken_options_are_named(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    assert isinstance(result.exception, CostModelError) and arguments[1] in str(result.exception)
