"""Machines as TOML: presets with a source for every constant, files of users, and errors that say what to do."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import eggshard as es
from eggshard.costmodel import (
    AlphaBeta,
    Machine,
    Messages,
    StepInfo,
    WireBytes,
    at_hand,
    detect,
    load,
    named,
    preset,
    presets,
)
from eggshard.costmodel.compute import Compute
from eggshard.costmodel.detection import calibrated_file
from eggshard.costmodel.machines.machine_files import parse
from eggshard.costmodel.machines.machine_text import to_toml
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

SMALL = """
name = "mine"
[compute]
memory = 1e11
flops = 1e12
[[levels]]
name = "box"
fabric = "ring"
bandwidth = 1e9
latency = 1e-6
"""
STEP = StepInfo("all-gather", Mesh({"x": 4, "y": 2}), axes=("x",), group=4, wire_bytes=3e6, messages=1)


def test_the_machines_that_are_promised_are_there() -> None:
    assert {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "a100-node", "a100-cluster", "h100-node", "h100-cluster",
            "h200-node", "h200-cluster", "b200-node", "b200-cluster", "mi300x-node", "cpu-host"} <= set(presets())


@pytest.mark.parametrize("name", presets())
def test_every_constant_of_a_preset_has_a_source(name: str) -> None:
    machine = preset(name)
    assert machine.name == name and machine.devices and hash(machine) == hash(preset(name))
    constants = ["compute.memory", "compute.flops"]
    constants += [f"levels.{level.name}.{what}" for level in machine.levels for what in ("bandwidth", "latency")]
    constants += [f"levels.{level.name}.efficiency" for level in machine.levels if level.fabric.efficiency != 1]
    constants += [f"protocols.{p.name}" for p in machine.protocols]
    constants += ["capacity"] if machine.capacity else []
    for constant in constants:
        assert any(key == constant or key.startswith(f"{constant}.") for key in machine.sources), constant
    for told in machine.disagreements:
        assert set(told) == {"key", "value", "source"}
        assert str(told["key"]).partition(".")[0] in ("levels", "protocols", "compute", "capacity")


@pytest.mark.parametrize("name", presets())
def test_a_machine_written_and_read_is_the_same(name: str) -> None:
    machine = preset(name)
    back = parse(to_toml(machine, "a comment"))
    assert back == machine and dict(back.sources) == dict(machine.sources)
    assert back.disagreements == machine.disagreements
    assert back.seconds(STEP) == machine.seconds(STEP)


def test_rates_of_ops_are_their_own_in_what_they_are_by_default() -> None:
    """An op that does not spill where the machine does, and has no launch where it has one."""
    machine = parse(SMALL)
    ops = {"dot": Compute({"default": 1e12}, 1e10), "tanh": Compute({"default": 1e12}, 1e9, 1e-6, cache=1e6, spill=3.0)}
    compute = replace(machine.compute, launch=1e-5, cache=1e5, spill=2.0, ops=ops)
    written = replace(machine, compute=compute)
    assert parse(to_toml(written)).compute == compute


def test_a_users_machine_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    machine = load(path)
    assert isinstance(machine, Machine) and machine.compute.flops == {"default": 1e12}
    assert named(str(path)) == machine
    path.write_text(SMALL + '\n[compute.ops.dot_general]\nflops = 2e12\n')
    local = StepInfo("local", STEP.mesh, op="dot_general", flops=2e12)
    assert load(path).seconds(local) == 1.0 and machine.seconds(local) == 2.0


def test_a_file_may_extend_a_preset_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL)
    (tmp_path / "more.toml").write_text(
        'extends = "base.toml"\nname = "more"\n[[levels]]\nname = "net"\nfabric = "switch"\nbandwidth = 1\nlatency = 0')
    with pytest.raises(CostModelError, match="more.toml: .*'box'.* lack"):
        load(tmp_path / "more.toml")
    (tmp_path / "base.toml").write_text(SMALL + "units = 4")
    assert [level.name for level in load(tmp_path / "more.toml").levels] == ["box", "net"]
    (tmp_path / "base.toml").write_text('extends = "base.toml"')
    with pytest.raises(CostModelError, match="circles"):
        load(tmp_path / "more.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("bandwidth", "bandwith"), "unknown key levels.box.bandwith; known are bandwidth"),
        (("latency = 1e-6", ""), "levels.box lacks latency; add it"),
        (("1e9", '"fast"'), "levels.box.bandwidth is 'fast'; give a number"),
        (("1e9", "-1"), "levels.box: .*bandwidth is bytes per second"),
        (('"ring"', '"moebius"'), "levels.box.fabric is 'moebius'; give one of fat-tree, full-mesh"),
        (("flops = 1e12", ""), r"compute.flops is None"),
        (("[compute]", "[computer]"), "unknown key computer"),
        (('name = "mine"', ""), "name is None; give a name"),
        (("[[levels]]", "[levels]"), r"write \[\[levels\]\]"),
        (("1e-6", "1e-"), "not TOML"),
        (('name = "mine"', 'name = "mine"\nextends = "abacus"'), "no preset and no file"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace(*change))
    with pytest.raises(CostModelError, match=f"mine.toml: .*{message}"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CostModelError, match="nothing.toml"):
        load(tmp_path / "nothing.toml")


def test_models_by_name() -> None:
    assert named("alpha-beta") == AlphaBeta() and named("wire-bytes") == WireBytes() and named("messages") == Messages()
    assert named("tpu-v5e") == preset("tpu-v5e")
    for unknown in ("abacus", ""):
        with pytest.raises(CostModelError, match="alpha-beta.*h100-node"):
            named(unknown)


def test_the_simple_model_of_a_machine_has_its_datasheet() -> None:
    assert AlphaBeta.preset("a100-node") == AlphaBeta(bandwidth=3e11, flops=1.95e13, memory=2e12)
    assert AlphaBeta.preset("h100-node") == AlphaBeta(launch=14.1e-6, latency=5.95 * 0.6e-6)
    assert AlphaBeta.preset("tpu-v5p") == AlphaBeta("torus", 1e-6, 1e-6, 9e10, 4.59e14, 2.8e12)
    with pytest.raises(CostModelError, match="tpu-v5e"):
        AlphaBeta.preset("abacus")


def devices(kind: str, count: int, processes: int = 1) -> list[SimpleNamespace]:
    return [SimpleNamespace(device_kind=kind, process_index=i * processes // count) for i in range(count)]


@pytest.mark.parametrize(
    ("kind", "count", "processes", "name"),
    [("TPU v5 lite", 16, 1, "tpu-v5e"), ("TPU v5p", 8, 1, "tpu-v5p"), ("NVIDIA H100 80GB HBM3", 8, 1, "h100-node"),
     ("NVIDIA H100 80GB HBM3", 16, 2, "h100-cluster"), ("AMD Instinct MI300X", 8, 1, "mi300x-node"),
     ("cpu", 8, 1, "cpu-host"), ("cpu", 8, 4, "cpu-cluster")],
)
def test_detection(monkeypatch, tmp_path: Path, kind: str, count: int, processes: int, name: str) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert detect(devices(kind, count, processes)).name == name


def test_a_host_has_as_many_devices_as_a_process(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert detect(devices("cpu", 8, 4)).levels[0].units == 2


def test_detection_finds_what_was_calibrated_first(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    found = devices("Abacus 3", 8)
    with pytest.raises(CostModelError, match="'Abacus 3'.*calibrate"):
        detect(found)
    path = calibrated_file(found)
    assert path == tmp_path / "eggshard" / "machines" / "abacus-3-8.toml"
    path.parent.mkdir(parents=True)
    path.write_text(SMALL)
    assert detect(found).name == "mine"
    with pytest.raises(CostModelError, match="no devices"):
        detect([])


def test_the_default_is_the_machine_of_a_programs_devices(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("EGGSHARD_COST_MODEL", raising=False)
    tpus = devices("TPU v5p", 8)
    assert at_hand(tpus) == preset("tpu-v5p") and at_hand(tpus).origin == "a preset, not calibrated"
    calibrated_file(tpus).parent.mkdir(parents=True)
    calibrated_file(tpus).write_text(SMALL)
    assert (at_hand(tpus).name, at_hand(tpus).origin) == ("mine", "calibrated")
    unknown = [SimpleNamespace(device_kind="NVIDIA Abacus", platform="gpu", process_index=0)] * 4
    assert at_hand(unknown) == preset("h100-node") and "for want of one for NVIDIA Abacus" in at_hand(unknown).origin
    monkeypatch.setenv("EGGSHARD_COST_MODEL", "wire-bytes")
    assert at_hand(tpus) == WireBytes()


def test_programs_that_name_no_devices_are_planned_for_the_host_and_jax_is_not_asked() -> None:
    code = ("import sys, eggshard as es\n"
            "print(es.plan_reshard((8, 8), 'f32', {'x': 2}, ('x', None), (None, 'x')))\n"
            "assert 'jax' not in sys.modules")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("plan of reshard on {'x': 2} for cpu-host (a preset, not calibrated): 1")


def test_plans_under_a_machine_are_written_to_json_with_it() -> None:
    model = 0.5 * preset("tpu-v5e") + WireBytes().with_kinds({"all-to-all": Messages()})
    plan = es.plan_reshard((64, 64), "f32", {"x": 4, "y": 2}, ("x", "y"), ("y", "x"), cost_model=model)
    back = es.Plan.from_json(plan.to_json())
    assert back.cost_model == model and back.cost == plan.cost

    class Own:
        def seconds(self, step: StepInfo) -> float:
            return 1e-6 * step.messages

    plan = es.plan_reshard((64, 64), "f32", {"x": 4}, ("x", None), (None, "x"), cost_model=0.5 * AlphaBeta() + Own())
    assert es.Plan.from_json(plan.to_json()).cost == plan.cost


def test_levels_of_a_known_name_are_changed(tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    path.write_text('name = "slow"\nextends = "h100-node"\n[[levels]]\nname = "node"\nbandwidth = 1e9\n'
                    '[[levels]]\nname = "network"\nfabric = "switch"\nbandwidth = 1e8\nlatency = 1e-5\n')
    (node, network), known = load(path).levels, preset("h100-node").levels[0]
    assert node == replace(known, fabric=replace(known.fabric, bandwidth=1e9)) and network.name == "network"


@pytest.mark.parametrize(("name", "meant"), [("h200", "h200-node"), ("h100", "h100-node"), ("WireBytes", "wire-bytes")])
def test_names_that_are_nearly_right(name: str, meant: str) -> None:
    with pytest.raises(CostModelError, match=rf"did you mean '{meant}'\? There are alpha-beta"):
        named(name)


@pytest.mark.parametrize("name", es.costmodel.presets())
def test_machines_print_as_tables(name: str) -> None:
    machine = es.costmodel.preset(name)
    text = str(machine)
    assert text.startswith(f"{name} (") and all(level.name in text for level in machine.levels)
    assert "flop/s" in text and "protocols: " in text and len(text.splitlines()) < 12
    assert repr(machine) == f"<Machine: {text.splitlines()[0]}>"
