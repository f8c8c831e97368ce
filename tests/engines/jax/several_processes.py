"""Programs of several JAX processes on this machine: each runs the same Python text on CPU devices of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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

def report(*words):
    with open(sys.argv[4], "a") as file:
        print(*words, file=file)
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def run_processes(text: str, processes: int = 2) -> list[str]:
    """What each process reported, by ``report``; AssertionError if one fails, or they do not end in time.

    Collectives print what they like on standard output, in the middle of a program's lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _run(text, [Path(folder) / str(i) for i in range(processes)])


def _run(text: str, files: list[Path]) -> list[str]:
    port = free_port()
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [".", *sys.path]))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _BEGINNING + text, str(i), str(len(files)), str(port), str(file)], env=env,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for i, file in enumerate(files)
    ]
    end = time.monotonic() + PATIENCE
    try:
        out = [process.communicate(timeout=max(1.0, end - time.monotonic())) for process in started]
    finally:
        for process in started:
            process.kill()
    for i, (process, (printed, errors)) in enumerate(zip(started, out, strict=True)):
        assert process.returncode == 0, f"process {i} ended with {process.returncode}:\n{printed}\n{errors[-4000:]}"
    return [file.read_text() for file in files]
