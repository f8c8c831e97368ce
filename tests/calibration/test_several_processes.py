"""Calibration of devices of several processes: what is timed, the levels that are fitted, and one machine for all."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from tests.engines.jax.several_processes import run_processes

from eggshard.calibration.calibrating import _of_hosts, _per_process
from eggshard.calibration.fitting import errors, fitted
from eggshard.calibration.samples import Groups, samples
from eggshard.costmodel import load, preset
from eggshard.costmodel.detection import calibrated_file
from eggshard.costmodel.machines.machine_text import to_toml
from eggshard.errors import CostModelError


def test_groups_of_one_device_of_each_process() -> None:
    apart = Groups(8, 4, stride=2)
    assert dict(apart.mesh.axes) == {"rest": 1, "group": 4, "beside": 2}
    assert apart.pairs([(0, 1), (3, 0)]) == ((0, 2), (6, 0), (1, 3), (7, 1))
    assert Groups(8, 2).pairs([(1, 0)]) == ((1, 0), (3, 2), (5, 4), (7, 6))


def test_several_processes_are_timed_across_too() -> None:
    def meshes(per_process: int) -> set[tuple[int, ...]]:
        found = samples(8, (1 << 12,), per_process=per_process)
        return {tuple(s.mesh.axes.values()) for s in found if s.step.communicates}

    assert meshes(2) - meshes(0) == {(1, 4, 2)}
    assert meshes(8) == meshes(1) == meshes(0)


def test_levels_are_fitted_each_by_itself(tmp_path) -> None:
    """A network that is a hundred times slower, and hosts in which reducing is slow."""
    base = _of_hosts(preset("cpu-host"), 2)
    host, network = base.levels
    slow = replace(network.fabric, bandwidth=1.25e7, latency=2e-4)
    truth = replace(base, levels=(host, replace(network, fabric=slow)))
    reducing = replace(truth.protocols[0], name="reducing", kinds=("reduce-scatter",), bandwidth={"host": 0.05})
    truth = replace(truth, protocols=(*truth.protocols, reducing))
    rows = [(s.step, truth.seconds(s.step)) for s in samples(8, (1 << 12, 1 << 15, 1 << 18, 1 << 21), per_process=2)
            if s.step.communicates]
    found = fitted(base, rows)
    for e in errors(found, rows):
        assert e.median < 0.02 and e.p90 < 0.1, e
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(found))
    assert load(path) == found and isinstance(found.protocols[-1].latency, dict)


def _devices(*processes: int) -> list[Any]:
    return [SimpleNamespace(process_index=p, device_kind="cpu") for p in processes]


def test_processes_are_told_in_the_name() -> None:
    assert calibrated_file(_devices(0, 0, 1, 1)).name == "cpu-2x2.toml"
    assert calibrated_file(_devices(0, 0, 0, 0)).name == "cpu-4.toml"


@pytest.mark.parametrize("processes", [(0, 1), (0, 1, 0, 1), (0, 0, 0, 1)])
def test_devices_of_several_processes_are_all_of_them_in_order(monkeypatch, processes: tuple[int, ...]) -> None:
    all_ = _devices(0, 0, 1, 1) if processes == (0, 1) else _devices(*processes)
    monkeypatch.setattr(jax, "devices", lambda: all_)
    with pytest.raises(CostModelError, match="takes all of their devices"):
        _per_process(_devices(0, 1) if processes == (0, 1) else all_)


CALIBRATED = """
from eggshard.calibration import calibrating
from eggshard.costmodel.machines.machine_text import to_toml
found = calibrating.samples
kinds = "all-reduce", "collective-permute"
calibrating.samples = lambda *about, **others: [s for s in found(*about, **others) if s.step.kind in kinds]
machine = calibrating.calibrate(sizes=(1 << 12, 1 << 18), groups=(4, 8), repeats=1).machine
report(machine.name, [level.units for level in machine.levels], to_toml(machine))
"""


@pytest.mark.slow
def test_processes_agree_on_one_machine() -> None:
    first, second = run_processes(CALIBRATED)
    assert first == second and first.startswith("cpu-2x4 [4, 0]")
