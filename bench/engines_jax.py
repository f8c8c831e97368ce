"""One JAX process of `bench.engines`, alone or among others: a saved plan and its time."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np


def main(folder: Path, runs: int, devices: int, processes: int, port: int, index: int) -> None:
    """Run the folder's plan on so many devices of each process; the first writes the results and says its time."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=processes, process_id=index)
    from jax.experimental.multihost_utils import process_allgather

    from eggshard.api import Plan
    from eggshard.engines.jax.archives import load_arrays, save_arrays

    plan = Plan.from_json((folder / "plan.json").read_text())
    inputs = load_arrays(folder / "inputs.npz", plan.program.input_types)
    function = plan.to_jax()
    mesh = jax.make_mesh(tuple(plan.mesh.axes.values()), tuple(plan.mesh.axes))
    shardings = function.input_shardings(mesh)
    placed = [
        jax.make_array_from_callback(a.shape, s, lambda at, a=a: a[at]) for a, s in zip(inputs, shardings, strict=True)
    ]
    results = jax.block_until_ready(function(*placed))
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        jax.block_until_ready(function(*placed))
        seconds.append(time.perf_counter() - began)
    leaves = jax.tree.leaves(results)
    whole = [np.asarray(process_allgather(r, tiled=True) if processes > 1 else r) for r in leaves]
    if index == 0:
        save_arrays(folder / "outputs.npz", whole)
        print(json.dumps({"seconds": min(seconds)}), flush=True)
    if processes > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
