"""The same plan every time: digests of plans over runs, processes, seeds of Python's hashes and loads of the machine.

Two processes at a time plan the programs, each with a hash seed of its own, while other processes keep all cores busy
or not. A plan's digest covers its steps, its certificate and its notes, and nothing that was measured.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.worker import in_own_process

#: Programs of every kind that are planned in a second or so: by algebra, by windows, by rows of a loop, by layers.
PROGRAMS = (
    "issue: transpose split", "chain of 3, weights x -", "attention, sequence parallel", "MLP training, FSDP",
    "algebra: two slices of a fused product", "scan of 4 layers, FSDP", "1D .at[1:-1].set x4", "2D 5-point roll (x,y)",
)
#: Busy processes per core, and runs per process: 3 x 2 x 4 = 24 runs.
LOADS, PROCESSES, RUNS = (0, 1, 3), 2, 4
#: Seconds that the plans of one process may take, however busy the machine.
TIMEOUT = 1200.0


def run(console: Console, only: str = "") -> bool:
    """Print a row per program; true if no plan differs from another one of its program, and no clock ended a search."""
    found: dict[str, dict[str, int]] = {}
    late: set[str] = set()
    for load in LOADS:
        with busy(load * (os.cpu_count() or 1)), ThreadPoolExecutor(PROCESSES) as pool:
            seeds = [str(load * PROCESSES + i) for i in range(PROCESSES)]
            for seed, made in zip(seeds, pool.map(lambda seed: in_own_process(
                    "bench.same", only, seed, timeout=TIMEOUT), seeds), strict=True):
                if "error" in made:
                    console.print(f"load {load}, hash seed {seed}: {made['error']}", markup=False)
                    return False
                for name, digests in made["plans"].items():
                    for digest in digests:
                        found.setdefault(name, {}).setdefault(digest, 0)
                        found[name][digest] += 1
                late.update(made["late"])
    table = Table(title="digests of plans", pad_edge=False, caption=(
        f"busy processes per core: {', '.join(map(str, LOADS))}; {PROCESSES} processes at a time, {RUNS} runs each"))
    for column in ("program", "runs", "plans", "digest", ""):
        table.add_column(column, justify="right" if column in ("runs", "plans") else "left")
    for name, digests in found.items():
        table.add_row(name, str(sum(digests.values())), str(len(digests)), ", ".join(d[:12] for d in digests),
                      "the clock ended a search" if name in late else "")
    console.print(table)
    same = sum(len(digests) == 1 for digests in found.values())
    console.print(
        f"{same} of {len(found)} programs have one plan in all runs; searches that the clock ended: {len(late)}")
    return same == len(found) and not late


def plans(only: str = "", runs: int = RUNS) -> dict[str, Any]:
    """Per program the digests of its plans, and of which the clock ended a search."""
    from bench.programs import by_name, dense, reshard, stencil, use_cpu_devices

    use_cpu_devices()
    import eggshard as es

    tables = by_name([*dense.PROGRAMS, *reshard.PROGRAMS, *stencil.PROGRAMS])
    made: dict[str, list[str]] = {}
    late = set()
    for _ in range(runs):
        for name in (name for name in PROGRAMS if only in name):
            program = tables[name]
            plan = es.optimize(program.text or program.lower(), limits=es.Limits(seconds=TIMEOUT))
            made.setdefault(name, []).append(digest(plan))
            late |= {name} if plan.search.late else set()
        for name, text in others():
            if only in name:
                made.setdefault(name, []).append(hashlib.sha256(text.encode()).hexdigest())
    return {"plans": made, "late": sorted(late)}


def digest(plan: Any) -> str:
    """Of all of a plan but what was measured."""
    return hashlib.sha256(replace(plan, search=replace(plan.search, seconds={})).to_json().encode()).hexdigest()


def others() -> Iterator[tuple[str, str]]:
    """What the searches beside the planner's make: Shardy's reshards, and layouts of a kernel where Triton is here."""
    from bench.programs import by_name, models
    from eggshard import shardy

    program = by_name(models.PROGRAMS)["MLP training, FSDP"]
    yield "reshards: MLP training, FSDP", shardy.transform(program.lower().as_text(), "plan-explicit-reshards")
    if importlib.util.find_spec("triton"):
        from bench.kernel_corpus import snapshots
        from bench.programs.kernels import PROGRAMS as KERNELS, TARGETS
        from eggshard.triton import optimize

        kernel = next(k for k in KERNELS if k.name == "softmax")
        plan = optimize(snapshots(kernel, next(iter(TARGETS))).removals[0][0])
        yield "layouts: softmax", plan.text() + ("late" if plan.late else "")


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but keep cores busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main() -> None:
    """Plan in a process of this hash seed, which Python takes when it starts."""
    only, seed = sys.argv[1:3]
    if os.environ.get("PYTHONHASHSEED") != seed:
        command = [sys.executable, "-m", "bench.same", only, seed]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": seed})
    print(json.dumps(plans(only)))


if __name__ == "__main__":
    main()
