"""Memory: what plans are predicted to take of a device, beside the compiled program's own memory analysis.

Temporaries are what is predicted: arguments and outputs are known. Errors are relative to the analysis, and of programs
that take at least `FLOOR` bytes of temporaries in the one or the other. Then every such program is planned again under
a limit of its arguments, its outputs and 60 % of its predicted temporaries.
"""

from __future__ import annotations

import importlib
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard
from bench.peers import compile_text, kib
from bench.programs import BenchProgram
from eggshard.api import Plan
from eggshard.costmodel import WireBytes
from eggshard.emit.stablehlo import plan_text

#: Families, and how many programs to draw of each besides its own.
FAMILIES = {"training": 4, "dense": 8, "reshard": 8, "stencil": 8}
SEED = 1
FLOOR = 16 << 10
#: What is asked of the errors, and of the limit.
MEDIAN, WORST, PART = 0.15, 0.40, 0.6
#: Programs of more steps are not planned again under a limit.
STEPS = 60


@dataclass
class Row:
    """Bytes of a plan per device: temporaries as compiled and as predicted; and what a limit came to."""

    name: str
    family: str
    compiled: int
    predicted: int
    limit: str = ""

    @property
    def counts(self) -> bool:
        """Whether its temporaries are more than trivial."""
        return max(self.compiled, self.predicted) >= FLOOR

    @property
    def error(self) -> float:
        """Relative to the compiled program."""
        return abs(self.predicted - self.compiled) / max(self.compiled, 1)


def programs() -> Iterator[BenchProgram]:
    """All programs of the families, and drawn ones."""
    for family, count in FAMILIES.items():
        module = importlib.import_module(f"bench.programs.{family}")
        yield from (p for p in module.PROGRAMS if not p.extra)
        yield from module.variants(SEED, count)


def measure(program: BenchProgram, limits: bool = True) -> Row:
    """One program's figures. Bytes on the wire are the price, as in the other families; limits are met at real prices.

    Under `AlphaBeta`, as bytes on the wire alone say nothing of what else to spend for less memory.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        source = program.text if program.text is not None else program.lower()
        plan = eggshard.optimize(source, cost_model=WireBytes())
        row = Row(program.name, program.family, compiled_memory(plan)[0], plan.memory.temporaries)
        if limits and row.counts and len(plan.steps) <= STEPS:
            row.limit = under_limit(source)
    return row


def under_limit(source: object) -> str:
    """What comes of a limit of 60 % of the temporaries: met by the compiled program, proved impossible, or neither."""
    plan = eggshard.optimize(source)
    memory = plan.memory
    if memory.temporaries < FLOOR:
        return ""
    limit = memory.arguments + memory.outputs + int(PART * memory.temporaries)
    try:
        within = eggshard.optimize(source, memory_limit=limit)
    except eggshard.errors.LimitError as error:
        return "impossible" if "so that no plan can" in str(error) else "neither"
    return "met" if sum(compiled_memory(within)) <= limit else "over, compiled"


def compiled_memory(plan: Plan, platform: str = "") -> tuple[int, int, int]:
    """Temporaries, arguments and outputs of the compiled plan, per device; of its text for a platform, or for all."""
    stats = compile_text(plan_text(plan, platform)).get_compiled_memory_stats()
    return (
        stats.temp_size_in_bytes,
        stats.argument_size_in_bytes,
        stats.output_size_in_bytes - stats.alias_size_in_bytes,
    )


def run(console: Console, only: str = "") -> bool:
    """Print one row per program; true if the errors are as small as is asked, and no limit is exceeded."""
    rows = []
    for program in programs():
        if only not in program.name:
            continue
        rows.append(measure(program))
        console.print(f"{program.name}: {kib(rows[-1].compiled)} KiB", style="dim", markup=False)
    table = Table(title="memory: KiB of temporaries per device", pad_edge=False,
                  caption=f"limit: arguments, outputs and {100 * PART:.0f} % of the predicted temporaries")
    for name in ("program", "compiled", "predicted", "error %", "limit"):
        table.add_column(name, justify="left" if name in ("program", "limit") else "right")
    for row in rows:
        error = f"{100 * row.error:.0f}" if row.counts else "-"
        table.add_row(escape(f"{row.family}: {row.name}"), kib(row.compiled), kib(row.predicted), error, row.limit)
    console.print(table)
    errors = [row.error for row in rows if row.counts]
    if not errors:
        return True
    median, worst = statistics.median(errors), max(errors)
    console.print(
        f"{len(rows)} programs, {len(errors)} with at least {FLOOR >> 10} KiB of temporaries: median error "
        f"{100 * median:.1f} %, worst {100 * worst:.0f} %; over {100 * WORST:.0f} %: "
        f"{sum(e > WORST for e in errors)}"
    )
    outcomes = [row.limit for row in rows if row.limit]
    console.print("a limit of 60 %: " + ", ".join(f"{k} {outcomes.count(k)}" for k in sorted(set(outcomes))))
    return median <= MEDIAN and worst <= WORST and "over, compiled" not in outcomes
