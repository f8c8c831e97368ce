"""Device programs and plans on MPI ranks, many of them in one run of ``mpiexec``."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from eggshard.api import Plan
from eggshard.engines.mpi.launching import mpiexec, run_ranks
from eggshard.errors import EngineError

WORKER = Path(__file__).with_name("worker.py")


def missing():
    """Why ranks cannot be started here; empty if they can."""
    try:
        mpiexec()
    except EngineError as error:
        return str(error)
    return ""


needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing() or "MPI is here")


def start(ranks, *arguments, timeout=120, **environment):
    """``python *arguments`` on so many ranks, which import what this process imports."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    return run_ranks(ranks, [str(a) for a in arguments], timeout=timeout, environment=given)


def run_script(folder, text, ranks=4, timeout=60):
    """A script on ranks; what became of it."""
    path = folder / "script.py"
    path.write_text(text)
    return start(ranks, path, timeout=timeout)


def run_cases(folder, cases, ranks=4, timeout=120):
    """Results of every case, in order: (device program, shards) gives ``[devices, *local shape]`` per output, and
    (plan, global arrays) gives global arrays. Each runs twice, on as many of the ranks as it has devices."""
    given, made = folder / "cases.pickle", folder / "results.pickle"
    texts = [(case.to_json() if isinstance(case, Plan) else case, arrays) for case, arrays in cases]
    given.write_bytes(pickle.dumps(texts))
    done = start(ranks, WORKER, given, made, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return pickle.loads(made.read_bytes())
