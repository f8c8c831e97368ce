"""Launching of ranks on this machine, by the launcher of the MPI installed beside this Python."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eggshard.engines.jax.archives import load_arrays, save_arrays
from eggshard.errors import EngineError, LoweringError
from eggshard.plan.serialization import to_json
from eggshard.simulate.execution import checked

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Ranks share the machine's cores, and each would take all of them for its matrix products: set, unless they are.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
#: The variable that tells ranks that their standard input ends with the process that started them.
LIFELINE = "EGGSHARD_LIFELINE"
#: How the parts of this engine are installed.
REMEDY = "install the extra: pip install 'eggshard[mpi]'"


def mpiexec() -> Path:
    """The launcher of MPI programs: the one installed beside this Python, as MPI's wheels do, else the first on PATH.

    EngineError if mpi4py is not installed, or there is no launcher.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise EngineError(f"mpi4py is not installed; {REMEDY}")
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in beside:
        if os.access(folder / "mpiexec", os.X_OK):
            return folder / "mpiexec"
    on_path = shutil.which("mpiexec")
    if on_path is None:
        raise EngineError(f"no mpiexec beside {sys.executable} nor on the PATH; {REMEDY}")
    return Path(on_path)


def run_ranks(
    ranks: int, arguments: Sequence[str], *, timeout: float | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python *arguments`` on so many ranks of this machine, and wait for all of them.

    environment: in place of this process's own. How the ranks fared is in ``returncode``, and what they wrote in
    ``stdout`` and ``stderr``. EngineError if that takes longer than ``timeout`` seconds, after ending them all.
    """
    if ranks < 1:
        raise EngineError(f"{ranks} ranks cannot run anything; ask for at least one")
    command = [str(mpiexec()), "-n", str(ranks), sys.executable, *arguments]
    given = {**ONE_THREAD, **(os.environ if environment is None else environment), LIFELINE: "stdin"}
    # The first rank's standard input ends with this process, and the rank with that (`end_with_launcher`); MPI's
    # launcher then ends the others, as it does when it is told to stop.
    stdin, lifeline = os.pipe()
    with os.fdopen(stdin), os.fdopen(lifeline, "w"), subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise EngineError(f"{ranks} ranks did not end within {timeout} s") from None
        except BaseException:
            process.terminate()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def end_with_launcher(rank: int) -> None:
    """Have the first rank of those that `run_ranks` started end when the process that called it is gone."""
    if rank == 0 and LIFELINE in os.environ:
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def run_on_ranks(
    plan: PlanRecord, arrays: Sequence[np.ndarray], timeout: float | None = None
) -> tuple[np.ndarray, ...]:
    """One run of a plan on ranks of this machine, started for it: global arrays in, global arrays out.

    LoweringError for arrays of other types than the program's, EngineError where the ranks fail or take too long.
    """
    program = plan.program
    if len(arrays) != len(program.input_types):
        raise LoweringError(f"{program.name} takes {len(program.input_types)} arrays, got {len(arrays)}")
    given = [checked(a, t, f"input {i}") for i, (a, t) in enumerate(zip(arrays, program.input_types, strict=True))]
    with tempfile.TemporaryDirectory() as folder:
        saved, inputs, outputs = (Path(folder) / name for name in ("plan.json", "inputs.npz", "outputs.npz"))
        saved.write_text(to_json(plan))
        save_arrays(inputs, given)
        run_saved(plan.mesh.size, saved, inputs, outputs, timeout)
        return tuple(load_arrays(outputs, program.output_types, program.output_names))


def run_saved(ranks: int, plan: Path, inputs: Path, outputs: Path, timeout: float | None = None) -> None:
    """Run a saved plan on ranks of this machine, arrays in and out of files; see ``eggshard.engines.mpi.__main__``.

    EngineError with what the ranks said where they fail.
    """
    done = run_ranks(ranks, ["-m", "eggshard.engines.mpi", str(plan), str(inputs), str(outputs)], timeout=timeout)
    sys.stdout.write(done.stdout)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("eggshard: ")]
        raise EngineError(said[0].removeprefix("eggshard: ") if said else f"the ranks failed:\n{done.stderr[-2000:]}")
