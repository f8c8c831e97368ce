"""Engines: the same plans on the simulator, on processes, on MPI ranks, and on JAX in one process and in two.

Wall times of the device program alone, inputs in place, best of several, as ratios to the simulator, which does all
devices' work in one process. Results are compared with the simulator's. Memory: bytes of a device's workspace as
planned, beside the pages that the engine touched of it.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard
from bench.peers import kib
from bench.programs import BenchProgram
from bench.programs.engines import PROGRAMS, variants
from bench.worker import ROOT
from eggshard.api import Plan
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.archives import load_arrays, save_arrays
from eggshard.engines.jax.verification import compare, difference, tolerance
from eggshard.engines.mpi.launching import run_ranks
from eggshard.engines.processes.launcher import Processes
from eggshard.ops.evaluate import evaluate_program
from eggshard.simulate import simulator
from eggshard.simulate.execution import gathered, scattered

#: Runs of a program on each engine, of which the quickest counts.
RUNS = 5
#: Programs drawn beside the table.
VARIANTS = 6
#: Seconds for one program on one engine, start included.
PATIENCE = 120.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Measured:
    """One program on one engine: seconds of a run, the largest difference of a result, bytes of memory per device."""

    seconds: float | None = None
    difference: float | None = None
    planned: int | None = None
    touched: float | None = None
    note: str = ""

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words."""
        if self.seconds is None:
            return [self.note]
        out = [] if self.difference is not None and self.difference <= 1 else ["differs from the simulator"]
        if self.planned is not None and self.touched is not None and abs(self.touched - self.planned) > PAGE:
            out.append(f"touched {self.touched:.0f} B of {self.planned} B")
        return out


@dataclass
class Row:
    """One program on all engines. ``difference`` of engines is relative to what rounding explains."""

    name: str
    devices: int
    simulator: float | None = None
    engines: dict[str, Measured] = field(default_factory=dict)
    error: str = ""

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words."""
        return [self.error] * bool(self.error) + [
            f"{engine}: {text}" for engine, each in self.engines.items() for text in each.failures
        ]

    def ratio(self, engine: str) -> float | None:
        """The engine's time over the simulator's."""
        seconds = self.engines[engine].seconds if engine in self.engines else None
        return None if seconds is None or not self.simulator else seconds / self.simulator


@dataclass(frozen=True)
class Case:
    """A plan, its inputs, the simulator's results, and a folder with ``plan.json`` and ``inputs.npz``."""

    plan: Plan
    inputs: tuple[np.ndarray, ...]
    want: tuple[np.ndarray, ...]
    folder: Path

    def measured(self, results: Sequence[np.ndarray], seconds: float, **memory: Any) -> Measured:
        """With the largest difference of a result, in units of what rounding explains."""
        types = self.plan.program.output_types
        off = [difference(np.asarray(g), w) for g, w in zip(results, self.want, strict=True)]
        allowed = [tolerance(t.dtype) or np.finfo(float).tiny for t in types]
        return Measured(seconds, max(d / a for d, a in zip(off, allowed, strict=True)), **memory)

    def read(self, answer: dict[str, Any]) -> Measured:
        """What a process of its own left in the folder, and said."""
        results = load_arrays(self.folder / "outputs.npz", self.plan.program.output_types)
        (self.folder / "outputs.npz").unlink()
        return self.measured(results, **answer)


def on_processes(case: Case) -> Measured:
    """One process per device, one shared segment."""
    shards = scattered(case.plan, case.inputs)
    seconds = []
    with Processes(case.plan.device_program, timeout=PATIENCE) as processes:
        for _ in range(RUNS):
            results = processes.run(shards)
            report = processes.report
            assert report is not None
            seconds.append(report.seconds)
    devices = case.plan.mesh.size
    touched = None if report.measured is None else report.measured / devices
    return case.measured(
        gathered(case.plan, results), min(seconds), planned=report.planned // devices, touched=touched
    )


def on_mpi(case: Case) -> Measured:
    """One rank per device."""
    module = ["-m", "bench.engines_rank", str(case.folder), str(RUNS)]
    done = run_ranks(case.plan.mesh.size, module, timeout=PATIENCE, environment=_environment())
    if done.returncode:
        return Measured(note=_last(done.stderr))
    return case.read(json.loads(done.stdout.splitlines()[-1]))


def on_jax(case: Case, processes: int) -> Measured | None:
    """JAX's CPU devices, as many in each process; None where they cannot be."""
    devices = case.plan.mesh.size
    if devices % processes:
        return None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bench.engines_jax", str(case.folder), str(RUNS), str(devices // processes),
               str(processes), str(port)]
    started = [
        subprocess.Popen([*command, str(i)], cwd=ROOT, env=_environment(), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for i in range(processes)
    ]  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    try:
        said = [p.communicate(timeout=max(1.0, deadline - time.monotonic())) for p in started]
    except subprocess.TimeoutExpired:
        return Measured(note=f"took more than {PATIENCE:g} s")
    finally:
        for p in started:
            p.kill()
            p.wait()
    for p, (_, errors) in zip(started, said, strict=True):
        if p.returncode:
            return Measured(note=_last(errors))
    return case.read(json.loads(said[0][0].splitlines()[-1]))


ENGINES: dict[str, Callable[[Case], Measured | None]] = {
    "processes": on_processes, "MPI": on_mpi, "JAX": partial(on_jax, processes=1),
    "JAX, 2 processes": partial(on_jax, processes=2),
}  # fmt: skip


def run(console: Console, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether every result agrees and all memory is as planned; a record per program."""
    rows = list(measure([p for p in (*PROGRAMS, *variants(seed, VARIANTS)) if only in p.name]))
    console.print(times(rows))
    console.print(memory(rows))
    for line in summary(rows):
        console.print(line, markup=False)
    return not any(row.failures for row in rows), [{**asdict(row), "failures": row.failures} for row in rows]


def measure(programs: Sequence[BenchProgram], engines: Sequence[str] = tuple(ENGINES)) -> Iterator[Row]:
    """Rows of programs on engines. What goes wrong is in the row."""
    for program in programs:
        row = Row(program.name, program.num_devices)
        try:
            with tempfile.TemporaryDirectory() as folder:
                case = _case(row, program, Path(folder))
                row.engines = {e: m for e in engines if (m := _tried(e, case)) is not None}
        except eggshard.EggshardError as error:
            row.error = f"{type(error).__name__}: {error}"
        print(f"{row.name}{' FAILED' if row.failures else ''}", file=sys.stderr)
        yield row


def _case(row: Row, program: BenchProgram, folder: Path) -> Case:
    """The plan of a program, run on the simulator, which is compared with the program itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        source = program.text if program.text is not None else program.lower()
        plan = eggshard.optimize(source, cost_model=WireBytes())
    inputs = program.inputs()
    shards = scattered(plan, inputs)
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        results = simulator.run(plan.device_program, shards)
        seconds.append(time.perf_counter() - began)
    row.simulator = min(seconds)
    want = gathered(plan, results)
    compare("simulator", want, evaluate_program(plan.program, inputs), plan.program.output_types)
    (folder / "plan.json").write_text(plan.to_json())
    save_arrays(folder / "inputs.npz", inputs)
    return Case(plan, inputs, want, folder)


def _tried(engine: str, case: Case) -> Measured | None:
    try:
        return ENGINES[engine](case)
    except (eggshard.EggshardError, OSError, ValueError) as error:
        return Measured(note=f"{type(error).__name__}: {error}"[:200])


def times(rows: Sequence[Row]) -> Table:
    """Wall times as ratios to the simulator's, and the largest difference."""
    out = Table(title="engines: wall time over the simulator's", pad_edge=False,
                caption="differs: largest difference from the simulator's results, over what rounding explains; "
                        "JAX in two processes needs an even number of devices")  # fmt: skip
    for name in ("program", "devices", *ENGINES, "differs", ""):
        out.add_column(name, justify="left" if name in ("program", "") else "right")
    for row in rows:
        ratios = (row.ratio(engine) for engine in ENGINES)
        differences = [each.difference for each in row.engines.values() if each.difference is not None]
        out.add_row(
            escape(row.name), str(row.devices), *("-" if r is None else f"{r:.2f}" for r in ratios),
            f"{max(differences):.1g}" if differences else "-", escape("; ".join(row.failures)[:120]),
        )
    return out


def memory(rows: Sequence[Row]) -> Table:
    """Bytes of a device's workspace, planned and touched."""
    owners = ("processes", "MPI")
    out = Table(title="engines: KiB of a device's workspace", pad_edge=False,
                caption="touched: pages of the engine's memory ever used, per device")  # fmt: skip
    for name in ("program", *(f"{e}, {what}" for e in owners for what in ("planned", "touched"))):
        out.add_column(name, justify="left" if name == "program" else "right")
    for row in rows:
        found = [row.engines.get(e, Measured()) for e in owners]
        out.add_row(escape(row.name), *(kib(v) for each in found for v in (each.planned, each.touched)))
    return out


def summary(rows: Sequence[Row]) -> list[str]:
    """The claims of a run in lines."""
    lines = [f"{len(rows)} programs; failures on {sum(bool(row.failures) for row in rows)}"]
    for engine in ENGINES:
        ratios = [r for r in (row.ratio(engine) for row in rows) if r is not None]
        if ratios:
            lines.append(f"{engine}: {len(ratios)} programs, median {statistics.median(ratios):.2f} of the simulator's "
                         f"time, from {min(ratios):.2f} to {max(ratios):.2f}")
    return lines + [f"FAILED {row.name}: {'; '.join(row.failures)}" for row in rows if row.failures]


def _environment() -> dict[str, str]:
    """What a process of its own needs to import the project; JAX is to have CPU devices only."""
    given = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return {**given, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or line.startswith("eggshard")]
    return (told or lines or ["ended without a word"])[-1][:200]
