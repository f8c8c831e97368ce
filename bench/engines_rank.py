"""One MPI rank of `bench.engines`: a saved plan, its time and memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpi4py import MPI

from eggshard.api import Plan
from eggshard.engines.jax.archives import load_arrays, save_arrays


def main(folder: Path, runs: int) -> None:
    """Run the folder's plan; the first rank writes the results and says what it took."""
    comm = MPI.COMM_WORLD
    plan = Plan.from_json((folder / "plan.json").read_text())
    ranks = plan.to_mpi(comm)
    inputs = load_arrays(folder / "inputs.npz", plan.program.input_types)
    seconds = []
    for _ in range(runs):
        comm.Barrier()
        results = ranks.run_global(*inputs)
        seconds.append(comm.allreduce(ranks.report.seconds, MPI.MAX))
    touched = comm.allgather(ranks.report.measured)
    if comm.rank == 0:
        save_arrays(folder / "outputs.npz", results)
        most = max(touched) if None not in touched else None
        print(json.dumps({"seconds": min(seconds), "planned": ranks.report.planned, "touched": most}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
