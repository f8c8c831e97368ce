"""``mpiexec -n 4 python -m eggshard.engines.mpi PLAN INPUTS OUTPUTS``: a saved plan on MPI ranks.

PLAN as `Plan.to_json` writes it; the first rank reads the arrays of INPUTS and writes those of OUTPUTS (``.npz``).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from eggshard.engines.jax.archives import load_arrays, save_arrays
from eggshard.engines.mpi.launching import end_with_launcher
from eggshard.engines.mpi.program import MpiProgram, together
from eggshard.errors import EggshardError
from eggshard.plan.serialization import from_json


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, on all ranks. EggshardError or OSError on all of them, about what went wrong on one."""
    parser = argparse.ArgumentParser(prog="python -m eggshard.engines.mpi", description=__doc__)
    for name in ("plan", "inputs", "outputs"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    end_with_launcher(comm.rank)
    plan = together(comm, lambda: from_json(options.plan.read_text()))
    ranks = MpiProgram(plan, comm)
    program, first = plan.program, comm.rank == 0

    def read() -> list[np.ndarray]:
        return load_arrays(options.inputs, program.input_types, program.input_names) if first else []

    results = ranks.run_global(*together(comm, read), root=0)

    def write() -> None:
        if first:
            save_arrays(options.outputs, results, program.output_names)

    together(comm, write)


if __name__ == "__main__":
    try:
        main()
    except (EggshardError, OSError) as failure:
        if MPI.COMM_WORLD.rank == 0:
            print(f"eggshard: {failure}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
