"""What the peers report: known plans with known bytes, and failures as reasons."""

import json

import pytest

jax = pytest.importorskip("jax")
lax = jax.lax
jnp = jax.numpy

from bench import peers  # noqa: E402
from bench.programs import BenchProgram, by_name, dense, reshard  # noqa: E402

PROGRAMS = by_name((*reshard.PROGRAMS, *dense.PROGRAMS))
KIB = 1024


@pytest.fixture(scope="module")
def worker():
    with peers.ShardyWorker() as started:
        yield started


@pytest.mark.parametrize(
    ("name", "kib", "summary"),
    [
        ("xla#15207", 640, "2 A2A"),
        ("axis+dim replace", 1536, "AG"),
        ("tiny dim", 5.5, "AG + A2A + CP"),
        ("partial move", 512, "AG"),
        ("MLP 2-D weights, batch 16", 116, "AG + AR + 2 A2A + RS"),
        ("scan of 4 layers, tensor parallel", 512, "4 AR"),
    ],
)
def test_shardy_plans(worker: peers.ShardyWorker, name: str, kib: float, summary: str) -> None:
    result = worker.plan(PROGRAMS[name].module)
    assert result.count is not None and result.complete
    assert (result.wire_bytes, result.count.summary) == (kib * KIB, summary)


def test_shardy_permutes_are_averaged_over_devices(worker: peers.ShardyWorker) -> None:
    count = worker.plan(PROGRAMS["axis order"].module).count
    assert count is not None
    assert (count.wire_bytes, count.average_wire_bytes) == (512 * KIB, 384 * KIB)


def test_shardy_repeats_are_told(worker: peers.ShardyWorker) -> None:
    result = worker.plan(PROGRAMS["attention, features sharded"].module)
    assert (result.wire_bytes, result.least_wire_bytes) == (1024 * KIB, 512 * KIB)


def test_shardy_exchange_between_neighbours_is_not_free(worker: peers.ShardyWorker) -> None:
    sliced = BenchProgram.define("sliced", "test", "8", ["64x8: x -"], lambda v: v[8:56] * 2, "x -")
    result = worker.plan(sliced.module)
    assert result.unpriced or (result.wire_bytes or 0) > 0


def test_shardy_failures_are_reasons(worker: peers.ShardyWorker) -> None:
    assert worker.plan("no module").count is None
    unbounded = BenchProgram.define(
        "loop", "test", "8", ["64: x"], lambda v: lax.while_loop(lambda a: a.sum() < 3, lambda a: a + 1, v), "x"
    )
    assert "trip count" in worker.plan(unbounded.module).reason


def test_the_worker_survives_its_process() -> None:
    with peers.ShardyWorker() as worker:
        assert worker.plan(PROGRAMS["gather"].module).wire_bytes == 3584 * KIB
        worker._process.kill()
        ended = worker.plan(PROGRAMS["gather"].module)
        assert ended.count is None and "SIGKILL" in ended.reason
        assert worker.plan(PROGRAMS["gather"].module).wire_bytes == 3584 * KIB


@pytest.mark.slow
def test_the_worker_ends_what_takes_too_long() -> None:
    with peers.ShardyWorker() as worker:
        assert worker.plan(PROGRAMS["gather"].module).wire_bytes == 3584 * KIB
        worker.close()  # a process that must start first cannot answer at once
        worker.timeout = 0.0
        assert "took more" in worker.plan(PROGRAMS["gather"].module).reason
        worker.timeout = 60.0
        assert worker.plan(PROGRAMS["gather"].module).wire_bytes == 3584 * KIB


def test_xla_takes_programs_lowered_functions_and_text() -> None:
    program = PROGRAMS["dim swap"]
    results = [peers.xla(program), peers.xla(program.lower()), peers.xla(program.module)]
    assert {result.wire_bytes for result in results} == {448 * KIB}


def test_xla_warns_of_rematerialization(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # nothing is taken from a cache
        assert peers.xla(PROGRAMS["xla#15207"]).rematerialized
    assert not peers.xla(PROGRAMS["dim swap"]).rematerialized
    assert "rematerialization" not in capfd.readouterr().err


def test_xla_counts_flops_of_one_device() -> None:
    assert peers.xla(PROGRAMS["control: batch sharded product"]).flops == 2 * 2048 * 512 * 512 / 8


def test_xla_failures_are_reasons() -> None:
    tensor = "tensor<4xf32>"
    text = f"module {{ func.func @main(%a: {tensor}) -> {tensor} {{ %0 = stablehlo.custom_call @nowhere(%a) : "
    failed = peers.xla(text + f"({tensor}) -> {tensor} return %0 : {tensor} }} }}")
    assert failed.count is None and "nowhere" in failed.reason
    unbounded = BenchProgram.define(
        "loop", "test", "8", ["64: x"], lambda v: lax.while_loop(lambda a: a.sum() < 3, lambda a: a + 1, v), "x"
    )
    result = peers.xla(unbounded)
    assert result.wire_bytes is None and "trip count" in result.reason


def test_command_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    peers.main(["reshard", "--only", "dim swap", "--json", str(tmp_path / "out.json")])
    records = json.loads((tmp_path / "out.json").read_text())
    assert [r["program"] for r in records] == ["dim swap", "dim swap x", "dim swap xy"]
    assert records[0]["peers"][0]["wire_bytes"] == 448 * KIB
    assert "dim swap xy" in capsys.readouterr().out
