"""Planning at the size of an ocean model, and of programs in which nothing repeats: seconds and memory of `optimize`,
each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.programs import BenchProgram, fields
from bench.worker import ROOT

LEVELS, FIELDS = 40, 10
#: Programs in which nothing repeats: ops, seconds that the plan has and may take, and bytes; those of a usual run, and
#: others.
OPS, MORE = ((1_000, 60, 1 << 30),), ((20_000, 60, 1 << 30), (100_000, 600, 8 << 30))

_TIMEOUT = 900.0


class Size(NamedTuple):
    """A program and what planning it may take. arguments: as `plan_once` has them. known: bytes that are enough."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    bytes: int
    known: float | None = None


def sizes(seed: int, everything: bool) -> Iterator[Size]:
    """The ocean model's shape, and programs in which nothing repeats, drawn by the seed."""
    yield Size(f"{FIELDS} fields, {LEVELS} levels", ("ocean", str(LEVELS), str(FIELDS)), 60.0, 4 << 30, program().known)
    for number, seconds, most in (*OPS, *(MORE if everything else ())):
        yield Size(f"{number:,} ops, seed {seed}", ("irregular", str(number), str(seed), str(seconds)), seconds, most)


def program(levels: int = LEVELS, count: int = FIELDS) -> BenchProgram:
    """``levels`` chained 2-D stencil steps of ``count`` fields that drive each other, rows on 8 devices."""
    step = fields.ocean(levels, count)
    return BenchProgram.define(
        f"{count} fields, {levels} levels", "scale", "8", ("1024x1024: x -",) * count, lambda *state: step(state),
        ("x -",) * count, known=4.0 * 1024 * 2 * levels * count,
    )  # fmt: skip


def plan_once(kind: str, first: int, second: int, seconds: int = 60) -> dict[str, object]:
    """Plan in this process and say what it took; memory counts this process and those that it started.

    kind: ``ocean`` with its levels and fields, or ``irregular`` with its ops and seed. seconds: the time limit.
    """
    import eggshard
    from bench.programs.irregular import irregular

    if kind == "ocean":
        source: Any = program(first, second).lower()
        model = "wire-bytes"
    else:
        source, model = irregular(first, second), "tpu-v5e"
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        plan = eggshard.optimize(source, cost_model=model, limits=eggshard.Limits(seconds=seconds))
    took = time.perf_counter() - began
    return {
        "seconds": took,
        "peak": peak_memory(),
        "bytes": plan.serial_bytes,
        "collectives": plan.collectives,
        "fallback": plan.search.fallback,
        "of_baseline": plan.cost.total / plan.baseline.cost.total,
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


def run(console: Console, only: str = "", seed: int = 0, everything: bool = False) -> bool:
    """Print a row per program; true if none takes more than it may, nor moves more than is known to do."""
    table = Table(title="planning large programs", pad_edge=False)
    for name in ("program", "known KiB", "planned KiB", "messages", "of baseline", "seconds", "peak GiB", ""):
        table.add_column(name, justify="left" if name in ("program", "") else "right")
    good = True
    for size in sizes(seed, everything):
        if only not in size.name:
            continue
        known = "-" if size.known is None else f"{size.known / 1024:.0f}"
        try:
            cells, failures = _planned(size)
        except subprocess.TimeoutExpired:
            cells, failures = ("-",) * 5, [f"no plan within {_TIMEOUT:g} s"]
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
            cells, failures = ("-",) * 5, [last[0][:200]]
        table.add_row(size.name, known, *cells, "; ".join(failures))
        good &= not failures
    console.print(table)
    return good


def _planned(size: Size) -> tuple[tuple[str, ...], list[str]]:
    """A row's cells, and what failed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", *size.arguments], cwd=ROOT, env=environment, capture_output=True,
        text=True, timeout=_TIMEOUT, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    failures = []
    if found["seconds"] > size.seconds:
        failures.append(f"more than {size.seconds:g} s")
    if found["peak"] > size.bytes:
        failures.append(f"more than {size.bytes >> 30} GiB")
    if found["fallback"]:
        failures.append(f"fell back: {found['fallback']}")
    if size.known is not None and found["bytes"] > size.known + 0.5:
        failures.append("more bytes than known")
    return (
        f"{found['bytes'] / 1024:.0f}", str(sum(found["collectives"].values())), f"{found['of_baseline']:.2f}",
        f"{found['seconds']:.1f}", f"{found['peak'] / 2**30:.2f}",
    ), failures


if __name__ == "__main__":
    print(json.dumps(plan_once(sys.argv[1], *map(int, sys.argv[2:]))))
