"""Calibration on the devices of the tests: small, for what it writes and says, not for its figures."""

from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from eggshard.calibration.calibrating import calibrate
from eggshard.calibration.measuring import Case, Timings, looped, measure
from eggshard.calibration.samples import Sample, computing, samples
from eggshard.cli import app
from eggshard.costmodel import Machine, StepInfo, detect, load, preset
from eggshard.emit.stablehlo import module_text
from eggshard.errors import CostModelError, EggshardWarning
from eggshard.program.mesh import Mesh
from eggshard.program.placement import replicated
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import AllReduce


def times_of(monkeypatch, truth: Machine, noise: float = 1.0) -> None:
    """Let a machine's prices be what is measured."""
    monkeypatch.setattr("eggshard.calibration.calibrating.measure", lambda found, devices, repeats, advance: Timings(
        [(s.step, truth.seconds(s.step)) for s in found], noise))


def test_what_is_calibrated_is_saved_where_asked(monkeypatch, tmp_path: Path) -> None:
    truth = preset("h100-node")
    times_of(monkeypatch, truth)
    path = tmp_path / "mine.toml"
    few = ["--sizes", "1KiB,64KiB,4MiB", "--groups", "8"]
    result = CliRunner().invoke(app, ["calibrate", "--output", str(path), *few])
    assert result.exit_code == 0, result.output
    assert f'load("{path}")' in result.output.replace("\n", "") and "halo-exchange" in result.output
    machine = load(path)
    assert machine.devices == ("cpu",) and "calibrate" in machine.sources["protocols"]
    gather = StepInfo("all-gather", Mesh({"x": 8}), axes=("x",), group=8, wire_bytes=1e6, messages=1)
    assert machine.seconds(gather) == pytest.approx(truth.seconds(gather), rel=0.3)


def test_other_load_is_warned_of(monkeypatch) -> None:
    times_of(monkeypatch, preset("h100-node"), noise=1.6)
    with pytest.warns(EggshardWarning, match="1.60 times"):
        assert calibrate(sizes=[1 << 10, 1 << 16], groups=[8]).noise == 1.6


def test_other_load_adds_to_times_and_the_least_count() -> None:
    (sample,) = [s for s in samples(8, (1 << 10,), (8,)) if s.step.op == "tanh"]
    seconds = {0: iter([2.0, 1.0, 9.0]), 10: iter([5.0, 12.0, 6.0])}
    case = Case(sample, copies=2, program=lambda trips: next(seconds[trips]), trips=10)
    for _ in range(3):
        case.time()
    assert case.seconds == (5.0 - 1.0) / (2 * 10)
    assert case.noise == 6.0 / 5.0


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
    assert machine.compute.like["exponential"] == "tanh" and machine.compute.like["rotate"] == "wrap"


def test_every_kind_is_measured_at_every_size_and_group() -> None:
    found = [s.step for s in samples(8, (1 << 10, 1 << 16))]
    sent = {(s.kind, s.group, s.wire_bytes) for s in found if s.communicates}
    assert len(sent) == 7 * 3 * 2
    assert {s.op or s.kind for s in found if not s.communicates} == {
        "add", "wrap", "concatenate", "tanh", "reduce", "fft", "dot_general", "convolution"}


def test_collectives_are_measured_with_and_without_copies() -> None:
    for kind in ("all-gather", "reduce-scatter"):
        steps = [s.step for s in samples(8, (1 << 16,), (8,)) if s.step.kind == kind]
        assert [s.copied_bytes > 0 for s in steps] == [False, True, True]
        short, long = (s.copied_bytes / s.runs for s in steps[1:])
        assert short < long


@pytest.mark.parametrize("sample", [s for s in samples(8, (1 << 10,), (4,))], ids=lambda s: s.step.op or s.step.kind)
def test_samples_are_steps_that_plans_may_have(sample: Sample) -> None:
    """One after the other in a loop, each on operands and into results of its own, all results to be seen."""
    plan = looped(sample, 3)
    own = len(sample.operands) + len(sample.results)
    assert len(plan.inputs) == 2 + 3 * own
    assert len(plan.outputs) == 3 * len(sample.results)
    (step,) = plan.steps
    assert isinstance(step.action, Loop)
    assert sum(each.action == sample.action for each in step.action.body.steps) == 3 * sample.fused
    given, made = ([plan.types[v] for v in values] for values in (plan.inputs, plan.outputs))
    text = module_text(plan, given, [replicated(t.shape) for t in given], made, [replicated(t.shape) for t in made])
    assert text.count("optimization_barrier") == 3


def test_loops_run_as_often_as_they_are_told() -> None:
    sample = Sample(Mesh({"x": 8}), AllReduce(("x",), "add"), (TensorType((4,), "f32"),))
    plan = looped(sample, 2)
    count, x, r = np.int32(0), np.ones((4,), np.float32), np.zeros((4,), np.float32)
    for trips, wanted in ((0, 0), (1, 8), (5, 8)):
        given = [count, np.int32(trips), x, r, x, r]
        outputs = run(plan, [np.stack([array] * 8) for array in given])
        assert all((output == wanted).all() for output in outputs)


def test_devices_compute_before_each_collective() -> None:
    sample = Sample(Mesh({"x": 8}), AllReduce(("x",), "add"), (TensorType((4,), "f32"),))
    product = min(computing(sample.mesh), key=lambda each: each.operands[0].bytes)
    plan = looped(sample, 2, product)
    (step,) = plan.steps
    assert isinstance(step.action, Loop)
    order = [each.action for each in step.action.body.steps if each.action in (sample.action, product.action)]
    assert order == [product.action, sample.action] * 2
    half = np.full(product.operands[0].shape, 0.5, np.float32)
    given = [np.int32(0), np.int32(3), half, half, *[np.ones((4,), np.float32), np.zeros((4,), np.float32)] * 2]
    assert all((output == 8).all() for output in run(plan, [np.stack([array] * 8) for array in given]))


def test_steps_take_time_on_devices() -> None:
    sample = Sample(Mesh({"x": 8}), AllReduce(("x",), "add"), (TensorType((64, 64), "f32"),))
    called: list[str] = []
    ((step, seconds),), noise = measure([sample], jax.devices()[:8], repeats=2, advance=called.append)
    assert step == sample.step and seconds > 0 and noise >= 1 and called == ["all-reduce"] * 3


def test_without_collectives_nothing_is_computed_before_steps() -> None:
    samples_ = list(computing(Mesh({"x": 8})))[-1:]
    ((step, seconds),), _ = measure(samples_, jax.devices()[:8], repeats=1)
    assert step == samples_[0].step and seconds > 0


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
