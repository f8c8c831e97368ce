"""The examples of several processes run: one starts its processes, the other is started by a cluster's launcher."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[1]
CLUSTER = str(ROOT / "examples" / "cluster.py")


def environment(**more: str) -> dict[str, str]:
    """As for a script: examples set their own numbers of devices."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), *sys.path]))
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"PYTHONPATH": path} | more


def slurm_job() -> int:
    """A job number from which JAX makes a port that nobody listens on."""
    for job in range(1, 4096):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", 61440 + (os.getpid() + job) % 4096))
            except OSError:
                continue
            return (os.getpid() + job) % 4096
    raise AssertionError("no free port")


@pytest.mark.slow
def test_two_processes() -> None:
    command = [sys.executable, str(ROOT / "examples" / "two_processes.py"), "--size", "32", "--steps", "3"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert all(f"process {i}: 16 rows on 4 of 8 devices" in done.stdout for i in range(2))
    assert "collective-permute" in done.stdout


@pytest.mark.slow
def test_as_slurm_starts_it(tmp_path: Path) -> None:
    job, arguments = slurm_job(), ["--cpu-devices", "2", "--sequence", "32", "--plan", str(tmp_path / "plan.json")]
    started = [
        subprocess.Popen(
            [sys.executable, CLUSTER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(SLURM_JOB_ID=str(job), SLURM_STEP_NODELIST="localhost", SLURM_NTASKS="2",
                            SLURM_PROCID=str(i), SLURM_LOCALID=str(i)),
        )
        for i in range(2)
    ]
    try:
        out = [process.communicate(timeout=180) for process in started]
    finally:
        for process in started:
            process.kill()
    for i, (process, (printed, errors)) in enumerate(zip(started, out, strict=True)):
        assert process.returncode == 0, errors
        assert f"process {i} of 2 with 2 of 4 devices" in printed
    assert "planning: " in out[0][0] and (tmp_path / "plan.json").exists()


@pytest.mark.slow
def test_as_mpi_starts_it() -> None:
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    found = str(mpiexec) if mpiexec.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec")
    command = [found, "-n", "2", sys.executable, CLUSTER]
    command += ["--detect", "mpi4py", "--cpu-devices", "2", "--sequence", "32"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert all(f"process {i} of 2 with 2 of 4 devices" in done.stdout for i in range(2))
