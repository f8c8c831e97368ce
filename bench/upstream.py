"""What users reported of XLA, JAX, Shardy, Enzyme-JAX, Reactant and PyTorch, beside `eggshard.optimize` by default.

Bytes are of the compiled programs, seconds of these on this machine's virtual devices, by turns on the same arguments.
The right result is that of the unsharded program.
"""

from __future__ import annotations

import statistics
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.lower_bound import lower_bound
from bench.partition import XLA, Measured, measured
from bench.peers import kib, short
from bench.programs import BenchProgram
from bench.programs.upstream import programs
from eggshard.costmodel import named

OURS = "optimize"


def run(console: Console, only: str = "", seed: int = 0, model: str = "") -> bool:
    """Print a row per program; whether no plan fell back, is wrong, or sends more bytes than XLA's program."""
    table = Table(
        title="wire KiB per device, counted from compiled HLO, and seconds (of XLA's)",
        caption="bound: bytes that a device lacks, where a program only reshards. R: XLA printed 'Involuntary full "
        "rematerialization'. A plan that fell back, is wrong, or sends more than XLA has failed; where XLA itself is "
        "wrong, or fails, the last column says so",
        pad_edge=False,
    )
    figures = ("bound", "XLA", "ours", "time")
    for name in ("threads", "program", "bound", "XLA", "R", "ours", "time", "collectives of XLA", "of ours", ""):
        table.add_column(name, justify="right" if name in figures else "left")
    rows: list[Measured] = []
    failed = 0
    for program in programs(seed):
        if only in program.name or only in program.origin:
            found = measured(program, [OURS], named(model) if model else None, seed)
            failures = _failures(found)
            theirs = found.ways[XLA].failure
            told = "; ".join([*failures, *([f"XLA: {theirs[:40]}"] if theirs else [])])
            table.add_row(*map(escape, (*_cells(program, found), told)))
            rows.append(found)
            failed += bool(failures)
            print(f"{program.name}: {told or 'good'}", file=sys.stderr, flush=True)
    console.print(table)
    ratios = [ratio for found in rows if (ratio := found.slower(OURS)) is not None]
    console.print(
        f"{len(rows)} programs: fewer bytes than XLA on {sum(found.fewer_bytes(OURS) for found in rows)}, more on "
        f"{sum(found.more_bytes(OURS) for found in rows)}"
        + (f"; seconds over XLA's: geometric mean {statistics.geometric_mean(ratios):.2f}" if ratios else "")
    )
    return not failed


def _failures(found: Measured) -> list[str]:
    ours = found.ways[OURS]
    fell = f"fell back: {ours.fallback}" if ours.fallback else ""
    more = "more bytes than XLA" if found.more_bytes(OURS) else ""
    return [failure for failure in (ours.failure, fell, more) if failure]


def _cells(program: BenchProgram, found: Measured) -> list[str]:
    ours, theirs, slower = found.ways[OURS], found.theirs, found.slower(OURS)
    return [
        program.origin.replace(" ", "\n") or "own",
        program.name,
        kib(lower_bound(program.reshard).maximum if program.reshard else None),
        kib(theirs.wire_bytes),
        "R" if theirs.rematerialized else "",
        kib(ours.wire),
        "-" if slower is None else f"{slower:.2f}",
        short(theirs.count.by_kind) if theirs.count else "-",
        short(ours.collectives),
    ]
