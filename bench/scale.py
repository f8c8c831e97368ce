"""Planning at the size of an ocean model: seconds and memory of `optimize`, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.programs import BenchProgram, fields
from bench.worker import ROOT

LEVELS, FIELDS = 40, 10
SECONDS, BYTES = 60.0, 4 << 30
"""What planning may take."""

_TIMEOUT = 300.0


def program(levels: int = LEVELS, count: int = FIELDS) -> BenchProgram:
    """``levels`` chained 2-D stencil steps of ``count`` fields that drive each other, rows on 8 devices."""
    step = fields.ocean(levels, count)
    return BenchProgram.define(
        f"{count} fields, {levels} levels", "scale", "8", ("1024x1024: x -",) * count, lambda *state: step(state),
        ("x -",) * count, known=4.0 * 1024 * 2 * levels * count,
    )  # fmt: skip


def plan_once(levels: int, count: int) -> dict[str, object]:
    """Plan in this process and say what it took; memory counts this process and those that it started."""
    import eggshard
    from eggshard.costmodel import WireBytes

    lowered = program(levels, count).lower()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        plan = eggshard.optimize(lowered, cost_model=WireBytes())
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "bytes": plan.serial_bytes,
        "collectives": plan.collectives,
        "fallback": plan.search.fallback,
        "stages": dict(plan.search.seconds),
    }


def peak_memory() -> int:
    """The most bytes that this process and its living children had resident, each at its own peak (Linux)."""
    me = os.getpid()
    tasks = Path(f"/proc/{me}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    total = 0
    for pid in (me, *children):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += 1024 * int(line.split()[1])
    return total


def run(console: Console, levels: int = LEVELS, count: int = FIELDS) -> bool:
    """Print one row; true if planning stays within `SECONDS` and `BYTES` and moves no more than is known to do."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "bench.scale", str(levels), str(count)]
    table = Table(title="planning an ocean model's shape", pad_edge=False)
    for name in ("program", "known KiB", "planned KiB", "messages", "seconds", "peak GiB", ""):
        table.add_column(name, justify="left" if name in ("program", "") else "right")
    known = program(levels, count).known or 0.0
    name, failures = f"{count} fields, {levels} levels", []
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        if found["seconds"] > SECONDS:
            failures.append(f"more than {SECONDS:g} s")
        if found["peak"] > BYTES:
            failures.append(f"more than {BYTES >> 30} GiB")
        if found["fallback"]:
            failures.append(f"fell back: {found['fallback']}")
        if found["bytes"] > known + 0.5:
            failures.append("more bytes than known")
        table.add_row(
            name, f"{known / 1024:.0f}", f"{found['bytes'] / 1024:.0f}", str(sum(found["collectives"].values())),
            f"{found['seconds']:.1f}", f"{found['peak'] / 2**30:.2f}", "; ".join(failures),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        failures.append(f"no plan within {_TIMEOUT:g} s")
        table.add_row(name, f"{known / 1024:.0f}", "-", "-", "-", "-", failures[-1])
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
        failures.append(last[0][:200])
        table.add_row(name, f"{known / 1024:.0f}", "-", "-", "-", "-", failures[-1])
    console.print(table)
    return not failures


if __name__ == "__main__":
    print(json.dumps(plan_once(int(sys.argv[1]), int(sys.argv[2]))))
