"""The peers: what XLA's SPMD partitioner compiles, and what Shardy's own passes plan.

``python -m bench.peers reshard|dense [--json FILE] [--only TEXT]`` prints what both do with every program of a family.
Nothing is cached and nothing is written down beforehand: every figure comes from compiling the program now.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.programs import BenchProgram, use_cpu_devices
from bench.worker import Worker
from eggshard.errors import EggshardError
from eggshard.hlo.collectives import CollectiveCount, CollectiveOp, count_collectives

_SHORT = {
    "all-gather": "AG",
    "all-reduce": "AR",
    "reduce-scatter": "RS",
    "all-to-all": "A2A",
    "collective-permute": "CP",
}
_REMATERIALIZATION = "Involuntary full rematerialization"
_SHARDY_TIMEOUT = 120.0
"""Seconds that Shardy's passes may take on one module."""


@dataclass(frozen=True)
class PeerResult:
    """What a peer makes of a program. ``count`` is None where it fails, and ``reason`` says why."""

    peer: str
    count: CollectiveCount | None
    seconds: float
    """Wall time: compiling for XLA, the passes for Shardy."""
    reason: str = ""
    flops: float | None = None
    """Floating-point operations of one device, where the back end says."""
    rematerialized: bool = False
    """XLA warned that it gathers a whole tensor to reshard it."""
    merged: CollectiveCount | None = None
    """Shardy only: ``count`` with repeated collectives on one value done once, as a later pass may."""
    unpriced: tuple[str, ...] = ()
    """Ops whose exchange with neighbours the peer leaves out of its plan; then ``count`` is too low."""
    text: str = field(default="", repr=False)
    """Compiled HLO, or the plan's module."""

    @property
    def complete(self) -> bool:
        """Whether ``count`` holds all communication of the program."""
        return self.count is not None and not self.unpriced

    @property
    def wire_bytes(self) -> float | None:
        """Bytes per device, ops one after the other; None unless the count is complete."""
        return self.count.wire_bytes if self.count is not None and self.complete else None

    @property
    def least_wire_bytes(self) -> float | None:
        """``wire_bytes`` with repeated collectives merged: the figure that a plan should beat."""
        return self.merged.wire_bytes if self.merged is not None and self.complete else self.wire_bytes

    def summary(self) -> dict[str, Any]:
        """The result as JSON values; bytes are per device."""
        count = self.count
        return {
            "peer": self.peer,
            "wire_bytes": self.wire_bytes,
            "least_wire_bytes": self.least_wire_bytes,
            "busiest_device_bytes": count.busiest_device_bytes if count else None,
            "average_wire_bytes": count.average_wire_bytes if count else None,
            "collectives": count.by_kind if count else None,
            "seconds": self.seconds,
            "flops": self.flops,
            "rematerialized": self.rematerialized,
            "unpriced": list(self.unpriced),
            "reason": self.reason,
        }


def xla(program: BenchProgram | jax.stages.Lowered | str) -> PeerResult:
    """Compile for virtual CPU devices and count what the executable communicates.

    Takes a program, a lowered function, or the text of a module whose shardings are Shardy's.
    """
    if isinstance(program, BenchProgram):
        program = program.text if program.text is not None else program.lower()
    start = time.perf_counter()
    with _captured_stderr() as printed:
        try:
            compiled = compile_text(program) if isinstance(program, str) else program.compile()
        except jax.errors.JaxRuntimeError as error:
            return PeerResult("xla", None, time.perf_counter() - start, f"{type(error).__name__}: {error}")
        seconds = time.perf_counter() - start
    rematerialized = _REMATERIALIZATION in printed[0]
    text = compiled.hlo_modules()[0].to_string() if isinstance(program, str) else compiled.as_text()
    analysis = compiled.cost_analysis() or {}
    flops = (analysis[0] if isinstance(analysis, list) else analysis).get("flops")
    try:
        count, reason = count_collectives(text), ""
    except EggshardError as error:  # a loop of unknown length, say
        count, reason = None, str(error)
    return PeerResult("xla", count, seconds, reason, flops, rematerialized, text=text)


def compile_text(text: str, flags: Mapping[str, bool] | None = None) -> Any:
    """Compile module text through the client itself, with XLA's debug options changed by ``flags``.

    The one place that uses JAX's private interfaces.
    """
    from jax.extend import backend
    from jax.interpreters import mlir as jax_mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    partitions = re.search(r"mhlo\.num_partitions\s*=\s*(\d+)", text)
    devices = int(partitions[1]) if partitions else 1
    use_cpu_devices(devices)
    assignment = np.arange(devices).reshape(1, devices)
    options = backend.get_compile_options(num_replicas=1, num_partitions=devices, device_assignment=assignment)
    options.env_option_overrides = [*options.env_option_overrides, *(flags or {}).items()]
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(text)
        device_list = _jax.DeviceList(tuple(jax.devices("cpu")[:devices]))
        return backend.get_backend("cpu").compile_and_load(module, device_list, options)


@contextmanager
def _captured_stderr() -> Iterator[list[str]]:
    """Catch what is written to file descriptor 2, where XLA's C++ writes past ``sys.stderr``.

    The list that it gives holds the text after the block.
    """
    printed: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield printed
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            log.seek(0)
            printed.append(log.read().decode(errors="replace"))


class ShardyWorker(Worker):
    """A process that runs Shardy's passes."""

    def __init__(self, timeout: float = _SHARDY_TIMEOUT) -> None:
        super().__init__("bench.shardy_plan", timeout)

    def plan(self, text: str) -> PeerResult:
        """Shardy's plan for a module's text, with its price."""
        start = time.perf_counter()
        answer = self.ask(text)
        if "error" in answer:
            return PeerResult("shardy", None, time.perf_counter() - start, answer["error"])
        ops = counted_ops(answer["ops"])
        unpriced = tuple(answer["unpriced"])
        reason = f"exchange of {', '.join(unpriced)} is not in the plan" if unpriced else ""
        first = tuple(op for op, again in zip(ops, answer["repeats"], strict=True) if not again)
        count, merged = (CollectiveCount(some, answer["devices"]) for some in (ops, first))
        seconds, plan = answer["seconds"], answer["plan"]
        return PeerResult("shardy", count, seconds, reason, merged=merged, unpriced=unpriced, text=plan)


def counted_ops(answer: Sequence[dict[str, Any]]) -> tuple[CollectiveOp, ...]:
    """Collectives from their fields as JSON values."""
    return tuple(
        CollectiveOp(**{**op, "dtypes": tuple(op["dtypes"]), "received": tuple(op["received"])}) for op in answer
    )


_worker = ShardyWorker()
atexit.register(_worker.close)


def shardy(program: BenchProgram | str) -> PeerResult:
    """Shardy's own plan for a program or module text: propagation, explicit reshards, collectives, canonicalised.

    XLA does not execute this plan; its collectives are priced by the same formulas. It runs in another process.
    """
    return _worker.plan(program.module if isinstance(program, BenchProgram) else program)


def kib(amount: float | None) -> str:
    """Bytes as KiB for a table; a dash where there is none."""
    if amount is None:
        return "-"
    return f"{amount / 1024:,.3f}" if 0 < amount < 10 * 1024 else f"{amount / 1024:,.0f}"


def short(collectives: dict[str, int]) -> str:
    """Collectives in the field's abbreviations."""
    return " ".join(f"{n if n > 1 else ''}{_SHORT.get(k, k)}" for k, n in collectives.items()) or "none"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what both peers do with every program of a family."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=main.__doc__)
    parser.add_argument("family", help="a module of bench.programs: reshard, dense, ...")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    options = parser.parse_args(arguments)
    programs: tuple[BenchProgram, ...] = importlib.import_module(f"bench.programs.{options.family}").PROGRAMS

    table = Table(title=f"{options.family}: wire KiB per device", caption="R: involuntary full rematerialization")
    for column in (
        "program",
        "XLA serial",
        "busiest",
        "XLA collectives",
        "",
        "Shardy",
        "merged",
        "Shardy plan",
        "compile s",
    ):
        table.add_column(column, justify="left" if column in ("program", "XLA collectives", "Shardy plan") else "right")
    records = []
    for program in (p for p in programs if options.only in p.name):
        ours, theirs = xla(program), shardy(program)
        table.add_row(
            program.name,
            kib(ours.wire_bytes),
            kib(ours.count.busiest_device_bytes if ours.count else None),
            ours.reason or (ours.count.summary if ours.count else ""),
            "R" if ours.rematerialized else "",
            kib(theirs.wire_bytes),
            kib(theirs.least_wire_bytes) if theirs.least_wire_bytes != theirs.wire_bytes else "",
            theirs.reason or (theirs.count.summary if theirs.count else ""),
            f"{ours.seconds:.2f}",
        )
        records.append({"program": program.name, "family": program.family, "peers": [ours.summary(), theirs.summary()]})
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
