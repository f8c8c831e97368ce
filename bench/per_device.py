"""Codes under `jax.shard_map` as XLA compiles them, as they are written, and as `eggshard.optimize` plans them.

Bytes and collectives are of the compiled programs, seconds of these on this machine's virtual devices, by turns on the
same arguments. The right result is that of the code as it is written.
"""

from __future__ import annotations

import statistics
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.partition import Measured, measured
from bench.peers import kib, short
from bench.programs.per_device import programs
from eggshard.costmodel import named

OURS = "optimize"


def run(console: Console, only: str = "", seed: int = 0, model: str = "") -> bool:
    """Print a row per code; whether no plan is wrong, fell back, or has more collectives than the code."""
    table = Table(title="codes per device: wire KiB and collectives as written and planned, seconds (of the code's)",
                  caption="a plan that is wrong, fell back, or has more collectives than the code has failed",
                  pad_edge=False)
    figures = ("as written", "ours", "time")
    for name in ("code", "as written", "ours", "time", "collectives as written", "of ours", ""):
        table.add_column(name, justify="right" if name in figures else "left")
    ratios, failed = [], False
    for program in programs(seed):
        if only not in program.name:
            continue
        found = measured(program, [OURS], named(model) if model else None, seed)
        failures, slower = _failures(found), found.slower(OURS)
        ratios += [] if slower is None else [slower]
        failed |= bool(failures)
        counted = found.theirs.count.by_kind if found.theirs.count else {}
        table.add_row(*map(escape, (
            program.name, kib(found.theirs.wire_bytes), kib(found.ways[OURS].wire),
            "-" if slower is None else f"{slower:.2f}", short(counted), short(found.ways[OURS].collectives),
            "; ".join(failures))))
        print(f"{program.name}: {'; '.join(failures) or 'good'}", file=sys.stderr, flush=True)
    console.print(table)
    if ratios:
        console.print(f"{len(ratios)} codes: seconds over those as written: geometric mean "
                      f"{statistics.geometric_mean(ratios):.2f}, at worst {max(ratios):.2f}")
    return not failed


def _failures(found: Measured) -> list[str]:
    ours, written = found.ways[OURS], found.theirs.count
    more = written is not None and sum(ours.collectives.values()) > sum(written.by_kind.values())
    fell = f"fell back: {ours.fallback}" if ours.fallback else ""
    return [failure for failure in (ours.failure, fell, "more collectives than the code" if more else "") if failure]
