"""Plans on disk: read where all is the same, made anew where anything differs, refused where a file was altered."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eggshard
import eggshard.rewrites as R
from eggshard.cli import app
from eggshard.costmodel import AlphaBeta, StepInfo, WireBytes
from eggshard.errors import ConfigError, EggshardWarning, LimitError
from eggshard.frontends.builder import ProgramBuilder
from eggshard.plan.identity import plan_fingerprint
from eggshard.plan.plan_cache import PlanCache
from eggshard.planner import optimization
from eggshard.program.program import Program
from eggshard.worker import Worker


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with eggshard.config(plan_cache=tmp_path / "plans"):
        yield tmp_path / "plans"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were searched."""
    found: list[str] = []
    plan = optimization._plan

    def counted(request: Any, *rest: Any) -> Any:
        found.append("searched")
        return plan(request, *rest)

    monkeypatch.setattr(optimization, "_plan", counted)
    return found


def product(rows: int = 16, name: str = "product", sharding: Any = ("x", None)) -> Program:
    b = ProgramBuilder({"x": 4}, name=name)
    x, w = b.input((rows, 32), sharding=sharding, name="x"), b.input((32, 8), sharding=("x", None), name="w")
    b.output(b.tanh(b.dot(x, w)), sharding=(None, None))
    return b.build()


def test_what_was_planned_once_is_read(folder: Path, searches: list[str]) -> None:
    first = eggshard.optimize(product())
    again = eggshard.optimize(product())
    assert plan_fingerprint(again) == plan_fingerprint(first)
    assert again.search == first.search
    assert again.proved == first.proved
    assert again.cost == first.cost
    assert str(again) == str(first)
    arrays = [np.ones((16, 32), np.float32), np.ones((32, 8), np.float32)]
    assert np.array_equal(again.run(*arrays)[0], first.run(*arrays)[0])
    assert searches == ["searched"]


def test_a_kept_plan_has_its_baseline_and_its_reasons(folder: Path) -> None:
    first = eggshard.optimize(product())
    again = eggshard.optimize(product())
    assert again.baseline.cost == first.baseline.cost
    assert again.explain() == first.explain()
    assert again.reasons == first.reasons


def test_the_baseline_of_a_kept_loop_has_the_planned_body(folder: Path) -> None:
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    x = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, PartitionSpec("x")))

    def heat(x):  # type: ignore[no-untyped-def]
        return jax.lax.fori_loop(0, 8, lambda i, x: x.at[1:-1].set((x[2:] + x[:-2]) / 2), x)

    first, again = (eggshard.optimize(jax.jit(heat).lower(x)) for _ in range(2))
    assert again.baseline.cost == first.baseline.cost


def test_names_are_those_of_the_program_asked_for(folder: Path, searches: list[str]) -> None:
    eggshard.optimize(product(name="one"))
    assert eggshard.optimize(product(name="two")).program.name == "two"
    assert searches == ["searched"]


@pytest.mark.parametrize("other", [
    {"cost_model": AlphaBeta()}, {"cost_model": WireBytes()}, {"limits": eggshard.Limits(windows=4)}, {"exact": True},
    {"memory_limit": 1 << 20}, {"rewrites": []}, {"rewrites": R.default_rules()[:3]},
], ids=lambda options: next(iter(options)))
def test_other_options_are_planned_anew(folder: Path, searches: list[str], other: dict[str, Any]) -> None:
    eggshard.optimize(product(), cost_model="cpu-host")
    for _ in range(2):
        eggshard.optimize(product(), **{"cost_model": "cpu-host", **other})
    assert len(searches) == 2


@pytest.mark.parametrize("program", [product(32), product(sharding=(None, "x"))], ids=["size", "sharding"])
def test_other_programs_are_planned_anew(folder: Path, searches: list[str], program: Program) -> None:
    eggshard.optimize(product())
    eggshard.optimize(program)
    assert len(searches) == 2


class Own:
    def seconds(self, step: StepInfo) -> float:
        return step.wire_bytes


def test_what_cannot_be_told_from_others_is_not_kept(folder: Path, searches: list[str]) -> None:
    @R.rule("abs(negate(x)) => abs(x)", cases=R.each(x=R.tensors((4,))))
    def abs_of_negated(m: R.Match) -> bool:
        return True

    for options in ({"cost_model": Own()}, {"rewrites": [*R.default_rules(), abs_of_negated]}):
        for _ in range(2):
            eggshard.optimize(product(), **options)
    assert not folder.exists()
    assert len(searches) == 4


def test_nothing_is_kept_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert PlanCache.configured() is None
    eggshard.optimize(product())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", [
    lambda text: text[:-20], lambda text: text.replace("0", "1"), lambda text: "", lambda text: "{}",
    lambda text: text.replace("all-gather", "all-reduce").replace("reduce-scatter", "all-gather") + " ",
], ids=["cut", "altered", "empty", "other", "longer"])
def test_altered_plans_are_refused(folder: Path, searches: list[str], harm: Callable[[str], str]) -> None:
    first = eggshard.optimize(product())
    (path,) = folder.glob("*.json")
    path.write_text(harm(path.read_text()))
    with pytest.warns(EggshardWarning, match="not as it was written"):
        again = eggshard.optimize(product())
    assert plan_fingerprint(again) == plan_fingerprint(first)
    assert len(searches) == 2
    assert [wrong for _, wrong in PlanCache(folder, 1 << 20).verify()] == [""]


def test_a_plan_under_another_name_is_refused(folder: Path) -> None:
    eggshard.optimize(product())
    (first,) = folder.glob("*.json")
    eggshard.optimize(product(32))
    (second,) = set(folder.glob("*.json")) - {first}
    second.write_text(first.read_text())
    with pytest.warns(EggshardWarning, match="named after another plan"):
        assert eggshard.optimize(product(32)).program.input_types[0].shape == (32, 32)


def test_what_was_used_last_stays(folder: Path) -> None:
    for rows in (16, 32, 64, 128):
        eggshard.optimize(product(rows))
        for path in folder.glob("*.json"):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    eggshard.optimize(product(16))  # the oldest, used again
    cache = PlanCache(folder, 1 << 30)
    plans = cache.plans()
    assert len(plans) == 4
    removed = cache.prune(plans[0].bytes + plans[1].bytes + 10)
    assert [kept.key for kept in removed] == [kept.key for kept in (plans[3], plans[2])]
    assert [kept.key for kept in cache.plans()] == [kept.key for kept in plans[:2]]


def test_folders_stay_within_their_bytes(tmp_path: Path) -> None:
    with eggshard.config(plan_cache=str(tmp_path), plan_cache_bytes=30_000):
        for rows in (16, 32, 64, 128, 256):
            eggshard.optimize(product(rows))
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 30_000


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with eggshard.config(plan_cache=tmp_path / "file"), caplog.at_level("WARNING", "eggshard"):
        assert eggshard.optimize(product()).steps
    assert "is not kept" in caplog.text


def test_failed_searches_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.warns(EggshardWarning, match="optimisation failed"):
        patched.setattr(optimization, "solve", lambda encoded: 1 / 0)
        assert eggshard.optimize(product()).search.fallback
    assert not eggshard.optimize(product()).search.fallback
    with pytest.raises(LimitError):
        eggshard.optimize(product(), memory_limit=8)
    assert len(PlanCache(folder, 1 << 30).plans()) == 1


def test_planned_functions_are_read(folder: Path, searches: list[str]) -> None:
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    x = jax.device_put(np.arange(32.0, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
    for _ in range(2):
        function = eggshard.jit(lambda x: x - x.mean())
        assert np.array_equal(np.asarray(function(x)), np.asarray(x - x.mean()))
    assert len(searches) == 1


def test_the_command_line_looks_after_plans(folder: Path) -> None:
    for rows in (16, 32):
        eggshard.optimize(product(rows))
    call = CliRunner().invoke
    assert "2 plans" in call(app, ["cache", "list"]).output
    assert "2 of 2 plans are as they were written" in call(app, ["cache", "verify", "--folder", str(folder)]).output
    path = next(folder.glob("*.json"))
    path.write_text(path.read_text()[:-1])
    found = call(app, ["cache", "verify"])
    assert found.exit_code == 1
    assert str(path) in found.output
    assert "2 plans removed" in call(app, ["cache", "prune", "--size", "0"]).output
    assert not list(folder.glob("*.json"))


def test_commands_say_where_no_plans_are_kept() -> None:
    assert isinstance(CliRunner().invoke(app, ["cache", "list"]).exception, ConfigError)


_PLANNING = """
import os, random, sys, warnings
warnings.simplefilter("error")
import eggshard
sys.path.insert(0, sys.argv[1])
from tests.plan.test_plan_cache import product
draw = random.Random(os.getpid())
with eggshard.config(plan_cache=sys.argv[2], plan_cache_bytes=60_000):
    while True:
        eggshard.optimize(product(16 * draw.randint(1, 8)), cost_model="cpu-host")
"""


def _running_with(variable: str) -> list[str]:
    """The processes that have this variable in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return [command for command in found if command]


@pytest.mark.slow
def test_processes_may_be_killed_while_they_keep_plans(tmp_path: Path) -> None:
    root, plans, temporary = Path(__file__).parents[2], tmp_path / "plans", tmp_path / "temporary"
    rng = np.random.default_rng(0)
    temporary.mkdir()
    mark = f"KILLED_BY={tmp_path}"

    def started() -> subprocess.Popen[bytes]:
        name, _, value = mark.partition("=")
        return subprocess.Popen([sys.executable, "-c", _PLANNING, str(root), str(plans)], stderr=subprocess.PIPE,
                                env={**os.environ, name: value, "TMPDIR": str(temporary)})

    processes = [started() for _ in range(8)]
    end, kills, failed, folders = time.monotonic() + 120, 0, [], set()
    while time.monotonic() < end:
        folders.update(found for command in _running_with(mark) for found in re.findall(r"serve\('([^']+)'", command))
        time.sleep(rng.uniform(0, 1))
        victim = int(rng.integers(len(processes)))
        processes[victim].kill()
        _, said = processes[victim].communicate()
        failed += [said] if processes[victim].returncode != -signal.SIGKILL else []
        processes[victim] = started()
        kills += 1
    for process in processes:
        process.kill()
        process.communicate()
    kills += len(processes)
    assert not failed
    end = time.monotonic() + 10
    while _running_with(mark) and time.monotonic() < end:
        time.sleep(0.1)
    assert _running_with(mark) == []
    for left in filter(os.path.exists, folders):
        os.utime(left, (0, 0))  # of a process that was killed before its worker began: long ago
    next_ = Worker()
    next_.start()
    next_.close()
    assert folders and not any(map(os.path.exists, folders))
    assert list(temporary.iterdir()) == []
    assert len(list(plans.glob("*.new"))) <= kills
    assert {path.suffix for path in plans.iterdir()} <= {".json", ".new"}
    cache = PlanCache(plans, 60_000)
    assert [wrong for _, wrong in cache.verify() if wrong] == []
    assert cache.plans()
    with eggshard.config(plan_cache=plans):
        for rows in range(16, 144, 16):
            kept = eggshard.optimize(product(rows), cost_model="cpu-host")
            with eggshard.config(plan_cache=None):
                made = eggshard.optimize(product(rows), cost_model="cpu-host")
            assert plan_fingerprint(kept) == plan_fingerprint(made)
