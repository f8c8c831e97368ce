"""Starting ranks, and plans from files on them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from tests.engines.mpi.ranks import needs_mpi, start
from tests.engines.processes.programs import alive
from typer.testing import CliRunner

import eggshard as es
from eggshard.cli import app
from eggshard.engines.jax.archives import load_arrays, save_arrays
from eggshard.engines.mpi import launching
from eggshard.engines.mpi.launching import mpiexec, run_ranks
from eggshard.errors import DependencyError, EngineError, LoweringError
from eggshard.program.types import TensorType


@needs_mpi
def test_the_launcher_is_found_without_a_path(monkeypatch):
    monkeypatch.setenv("PATH", "")
    done = run_ranks(3, [
        "-c", "import os; from mpi4py import MPI; os.write(1, b'of %d\\n' % MPI.COMM_WORLD.size)"
    ], timeout=60)
    assert done.returncode == 0 and done.stdout.splitlines() == ["of 3"] * 3, done.stderr


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else found(name))
    with pytest.raises(EngineError, match=r"mpi4py is not installed; .*pip install 'eggshard\[mpi\]'"):
        mpiexec()
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DependencyError, match=r"mpi4py, which is not installed: pip install 'eggshard\[mpi\]'"):
        plan().to_mpi()


@needs_mpi
def test_without_a_launcher_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(launching.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="no mpiexec beside .*pip install"):
        mpiexec()


@needs_mpi
def test_ranks_that_take_too_long_are_ended():
    with pytest.raises(EngineError, match="2 ranks did not end within 2 s"):
        run_ranks(2, ["-c", "import time; from mpi4py import MPI; time.sleep(100)"], timeout=2)
    with pytest.raises(EngineError, match="0 ranks"):
        run_ranks(0, ["-c", "pass"])


@needs_mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_ranks_end_with_the_process_that_started_them(tmp_path):
    waits = ("import os, sys, time; from mpi4py import MPI; from pathlib import Path\n"
             "from eggshard.engines.mpi.launching import end_with_launcher\n"
             "rank = MPI.COMM_WORLD.rank\nend_with_launcher(rank)\n"
             "Path(sys.argv[1], f'new{rank}').write_text(str(os.getpid()))\n"
             "os.rename(Path(sys.argv[1], f'new{rank}'), Path(sys.argv[1], str(rank)))\ntime.sleep(100)")
    code = (f"import sys; sys.path[:] = {sys.path!r}\nfrom tests.engines.mpi.ranks import start\n"
            f"start(2, '-c', {waits!r}, {str(tmp_path)!r})")
    places, until = [tmp_path / "0", tmp_path / "1"], time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", code]) as launcher:
        while not all(place.exists() for place in places):
            assert time.monotonic() < until
            time.sleep(0.05)
        pids = [int(place.read_text()) for place in places]
        assert all(map(alive, pids))
        launcher.kill()
    until = time.monotonic() + 20
    while any(map(alive, pids)):
        assert time.monotonic() < until
        time.sleep(0.05)


@cache
def plan():
    b = es.ProgramBuilder({"x": 2})
    x = b.input((6, 4), "f32", ("x", None), name="rows")
    y = b.input((4, 4), "bf16", (None, "x"), name="weights")
    b.output(b.dot(b.convert(x, "bf16"), y), ("x", None), name="product")
    b.output(b.sum(x, 0), (None,), name="sums")
    return es.optimize(b.build(), cost_model=es.costmodel.WireBytes())


def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(ml_dtypes.bfloat16)


@needs_mpi
def test_a_saved_plan_on_ranks(tmp_path):
    made = plan()
    saved, given, out = tmp_path / "plan.json", tmp_path / "in.npz", tmp_path / "out.npz"
    saved.write_text(made.to_json())
    save_arrays(given, arrays(), made.program.input_names)
    done = CliRunner().invoke(app, ["run", str(saved), str(given), str(out), "--engine", "mpi"])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    results = load_arrays(out, made.program.output_types, made.program.output_names)
    for got, want in zip(results, made.run(*arrays()), strict=True):
        assert got.dtype == want.dtype and np.allclose(got.astype(float), want.astype(float), rtol=0.02)
    done = start(3, "-m", "eggshard.engines.mpi", saved, given, out)
    assert done.returncode == 1 and done.stderr.count("eggshard: the plan is for 2 devices") == 1, done.stderr
    done = start(2, "-m", "eggshard.engines.mpi", saved, saved, out)
    assert done.returncode == 1 and "plan.json is no archive of arrays" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_archives_hold_every_element_type(tmp_path):
    path = tmp_path / "a.npz"
    given = [np.ones((2, 3), ml_dtypes.bfloat16), np.zeros((), bool), np.arange(3, dtype=np.int8)]
    types = [TensorType((2, 3), "bf16"), TensorType((), "i1"), TensorType((3,), "i8")]
    for names in ((), ("c", "b", "a"), ("", "", "")):
        save_arrays(path, given, names)
        for got, want in zip(load_arrays(path, types, names), given, strict=True):
            assert got.dtype == want.dtype and (got == want).all()
    save_arrays(path, given, ("c", "b", "a"))
    assert load_arrays(path, types[::-1], ("a", "b", "c"))[0].dtype == np.int8
    for names in ((), ("a", "b", "d")):  # in the archive's order arrays of one type would be mistaken
        with pytest.raises(LoweringError, match="holds c, b, a, but the program takes a"):
            load_arrays(path, types, names)
    save_arrays(path, given)
    with pytest.raises(LoweringError, match="holds 3 arrays, but the program takes 2"):
        load_arrays(path, types[:2])
    np.save(tmp_path / "b.npy", given[2])
    for name, text in (("b.npy", "a single array"), ("c.npz", "no archive")):
        (tmp_path / "c.npz").write_text("hello")
        with pytest.raises(LoweringError, match=text):
            load_arrays(tmp_path / name, types)


@needs_mpi
def test_plans_on_ranks_started_for_them():
    made = plan()
    assert set(made.verify(engines=("numpy", "mpi")).differences) == {"numpy", "mpi"}
    with pytest.raises(LoweringError, match="takes 2 arrays, got 1"):
        made.run(arrays()[0], engine="mpi")
