"""One rank's part of `run_cases`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from eggshard.api import Plan
from eggshard.engines.mpi.program import MpiProgram, RankProgram
from eggshard.steps.steps import StepPlan


def run(comm, case, arrays, number):
    """The first rank's results; other ranks take part."""
    if isinstance(case, StepPlan):
        program = RankProgram(case, comm)
        first = program(*(a[comm.rank] for a in arrays))
        again = program(*(a[comm.rank] for a in arrays))
        rows = comm.gather(again)
        made = [np.stack(column) for column in zip(*rows, strict=True)] if comm.rank == 0 else None
    else:
        program = MpiProgram(case, comm)
        root = number % comm.size if number % 2 else None
        first = program.run_global(*(arrays if root in (None, comm.rank) else ()), root=root)
        again = made = program.run_global(*arrays)
        first = first if root in (None, comm.rank) else again
    for a, b in zip(first, again, strict=True):
        assert a.tobytes() == b.tobytes(), "a second run differs"
    program.free()
    return made


def main(given, made):
    comm = MPI.COMM_WORLD
    results = []
    for number, (case, arrays) in enumerate(pickle.loads(Path(given).read_bytes())):
        case = Plan.from_json(case) if isinstance(case, str) else case
        part = comm.Split(0 if comm.rank < case.mesh.size else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            results.append(run(part, case, arrays, number))
            part.Free()
    if comm.rank == 0:
        Path(made).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
