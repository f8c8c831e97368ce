"""Sequence-sharded attention on all devices of a job: started once per process by a cluster's launcher.

srun --ntasks=2 python examples/cluster.py                        # SLURM
mpirun -n 2 python examples/cluster.py                            # Open MPI
mpiexec -n 2 python examples/cluster.py --detect mpi4py           # any MPI, with mpi4py for it

JAX finds out from the launcher which process this is, how many there are, and where the first one listens. The first
one plans; the others take its plan. With --plan FILE, on a file system that all of them see, the plan is kept, and the
next job with the same program, mesh and versions starts without planning.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import sync_global_devices
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Softmax attention; ``[sequence, heads, features]``."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)


def kept_plan(file: Path, lowered: jax.stages.Lowered, mesh: jax.sharding.Mesh) -> es.Plan:
    """The plan in a file that all processes see; the first of them plans if there is none, or none for this job."""
    if jax.process_index() == 0:
        try:
            es.Plan.from_json(file.read_text(), program=lowered, mesh=mesh)
            print(f"the plan is that of {file}")
        except (FileNotFoundError, es.EggshardError) as reason:
            print(f"planning: {reason}")
            part = file.with_suffix(f".{os.getpid()}")
            part.write_text(es.optimize(lowered).to_json())
            part.replace(file)
    sync_global_devices("the plan is written")
    return es.Plan.from_json(file.read_text(), program=lowered, mesh=mesh).agreed()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--detect", choices=("slurm", "ompi", "mpi4py", "k8s"), help="ask this launcher only")
    parser.add_argument("--cpu-devices", type=int, help="run on so many CPU devices per process")
    parser.add_argument("--sequence", type=int, default=1024, help="length of the sequence")
    parser.add_argument("--plan", type=Path, help="a file in which the plan is kept")
    given = parser.parse_args(argv)
    if given.cpu_devices:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", given.cpu_devices)
    jax.distributed.initialize(cluster_detection_method=given.detect)
    me = jax.process_index()

    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    by_sequence = NamedSharding(mesh, P("x", None, None))
    shape = (given.sequence, 8, 64)

    def rows(seed: int) -> jax.Array:
        """Each process makes only what its devices hold."""
        def part(index: tuple[slice, ...]) -> np.ndarray:
            first, last, _ = index[0].indices(shape[0])
            row = [np.random.default_rng((seed, i)).standard_normal(shape[1:], np.float32) for i in range(first, last)]
            return np.stack(row)

        return jax.make_array_from_callback(shape, by_sequence, part)

    q, k, v = (rows(seed) for seed in range(3))
    began = time.perf_counter()
    if given.plan is None:
        # As jax.jit; the first process plans.
        function = es.jit(attention, out_shardings=by_sequence)
    else:
        lowered = jax.jit(attention, out_shardings=by_sequence).lower(q, k, v)
        function = kept_plan(given.plan, lowered, mesh).to_jax()
    result = jax.block_until_ready(function(q, k, v))
    seconds = time.perf_counter() - began

    theirs = jax.jit(attention, out_shardings=by_sequence)(q, k, v)
    difference = max(np.abs(np.asarray(a.data) - np.asarray(b.data)).max()
                     for a, b in zip(result.addressable_shards, theirs.addressable_shards, strict=True))
    print(f"process {me} of {jax.process_count()} with {jax.local_device_count()} of {jax.device_count()} devices: "
          f"planned, compiled and run in {seconds:.1f} s; largest difference to jax.jit {difference:.1e}", flush=True)
    if difference > 1e-4:
        raise SystemExit("the results differ")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
