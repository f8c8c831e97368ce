"""Heat on a plate that two processes share: one makes the plan and writes it down, both load it and run it together.

Each process has four CPU devices; an exchange of rows goes from process to process where strips of both touch.

python examples/two_processes.py [--size 256] [--steps 50]
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from heat import start, step
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es

PROCESSES, DEVICES = 2, 4
#: Seconds after which the launcher gives up.
PATIENCE = 300.0


def work(process: int, port: int, size: int, steps: int, plan_file: Path) -> None:
    """What each process does."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=PROCESSES, process_id=process)
    mesh = jax.make_mesh((PROCESSES * DEVICES,), ("y",), axis_types=(AxisType.Auto,))
    strips = NamedSharding(mesh, P("y", None))

    def simulate(u: jax.Array) -> jax.Array:
        return lax.fori_loop(0, steps, lambda _, u: step(u), u)

    lowered = jax.jit(simulate, in_shardings=strips, out_shardings=strips).lower(
        jax.ShapeDtypeStruct((size, size), np.float32)
    )
    if process == 0:
        written = plan_file.with_suffix(".part")
        written.write_text(es.optimize(lowered, cost_model=es.costmodel.WireBytes()).to_json())
        written.rename(plan_file)  # whoever sees the file sees all of it
    while not plan_file.exists():
        time.sleep(0.05)
    # Refused unless it is a plan of this program for this mesh, and the one that all processes hold.
    plan = es.Plan.from_json(plan_file.read_text(), program=lowered, mesh=mesh).agreed()
    if process == 0:
        print(plan, "\n", flush=True)

    plate = start(size)  # the same on both; where it is too large for that, each makes its own rows
    u = jax.make_array_from_callback(plate.shape, strips, lambda rows: plate[rows])
    planned = plan.to_jax()
    result = jax.block_until_ready(planned(u))
    began = time.perf_counter()
    jax.block_until_ready(planned(u))
    seconds = time.perf_counter() - began

    want = np.asarray(jax.jit(simulate)(plate))  # on one device, to compare with
    rows = 0
    for shard in result.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-5, atol=1e-6)
        rows += shard.data.shape[0]
    print(f"process {process}: {rows} rows on {jax.local_device_count()} of {jax.device_count()} devices equal those "
          f"of one device; {steps} steps in {1000 * seconds:.0f} ms", flush=True)
    jax.distributed.shutdown()


def launch(size: int, steps: int) -> None:
    """Starts the processes and waits for them. SystemExit if one fails or they do not end in time."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--size", str(size), "--steps", str(steps), "--port", str(port), "--plan",
                   str(Path(folder) / "plan.json"), "--process"]
        started = [subprocess.Popen([*command, str(i)], env=env) for i in range(PROCESSES)]
        end = time.monotonic() + PATIENCE
        try:
            while any(process.poll() is None for process in started):
                if time.monotonic() > end or any(process.poll() for process in started):
                    raise SystemExit("a process failed, or they took too long; see above")
                time.sleep(0.05)
        finally:
            for process in started:
                process.kill()
                process.wait()
    if any(process.returncode for process in started):
        raise SystemExit("a process failed; see above")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="rows, and columns, of the grid")
    parser.add_argument("--steps", type=int, default=50, help="time steps")
    for name, kind in (("--process", int), ("--port", int), ("--plan", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.process is None:
        launch(given.size, given.steps)
    else:
        work(given.process, given.port, given.size, given.steps, given.plan)


if __name__ == "__main__":
    main()
