"""Programs of several JAX processes on this machine: each runs the same Python text on CPU devices of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

DEVICES = 4
#: Seconds that all processes may take together.
PATIENCE = 240.0

_BEGINNING = f"""
import sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", {DEVICES})
jax.config.update("jax_cpu_collectives_implementation", "gloo")
ME, PROCESSES = int(sys.argv[1]), int(sys.argv[2])
jax.distributed.initialize(f"127.0.0.1:{{sys.argv[3]}}", num_processes=PROCESSES, process_id=ME)
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def run_processes(text: str, processes: int = 2) -> list[str]:
    """What each process printed on standard output. AssertionError if one fails, or they do not end in time."""
    port = free_port()
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [".", *sys.path]))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _BEGINNING + text, str(i), str(processes), str(port)], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for i in range(processes)
    ]
    end = time.monotonic() + PATIENCE
    try:
        out = [process.communicate(timeout=max(1.0, end - time.monotonic())) for process in started]
    finally:
        for process in started:
            process.kill()
    for i, (process, (printed, errors)) in enumerate(zip(started, out, strict=True)):
        assert process.returncode == 0, f"process {i} ended with {process.returncode}:\n{printed}\n{errors[-4000:]}"
    # Their collectives announce themselves.
    return ["".join(line for line in printed.splitlines(True) if "[Gloo]" not in line) for printed, _ in out]
