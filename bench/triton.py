"""Layout conversions of Triton's kernels: ours against Triton's own pipeline, on kernels of our own, for each target.

``after``: Triton's passes, then our planner. ``replace``: our planner in place of Triton's removals of layout
conversions, and at the end. Of several plans the one is shown that `eggshard.triton.install` takes, by what the code
says of each (`eggshard.triton.compiler.choosing`); it is said how often that is not the cheapest, and how often it is
Triton's own kernel. Costs are modelled; everything else is counted in the assembled code, instructions as they stand
in its text. A way that fails, or falls short of Triton in a figure, is shown as such.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import triton_lit
from bench.programs.kernels import PROGRAMS, TARGETS, variants
from bench.triton_rows import WAYS, Row
from bench.worker import Worker

PLANNER = "eggshard.triton.planning:plan_layouts"
#: Kernels drawn beside the table.
VARIANTS = 6
#: For all ways of a kernel, compiled three times.
PATIENCE = 180.0
#: Figures compared with Triton's, the less the better, and by which part more is worse.
COMPARED = {
    "conversions": 0.0, "cost": 1e-9, "shared": 0.0, "barriers": 0.0, "shuffles": 0.0, "shared_loads": 0.0,
    "shared_stores": 0.0, "registers": 0.05, "spills": 0.0, "instructions": 0.0,
}
#: Those that are to be worse on no kernel.
REQUIRED = ("cost", "barriers", "shared_loads", "shared_stores", "registers")
#: A plan is to take no longer, in seconds.
LONGEST = 1.0


def run(
    console: Console, seed: int = 0, only: str = "", lit: Path | None = None, planner: str = PLANNER
) -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether nothing failed or was worse where it must not be; a record per kernel and target.

    lit: a checkout of Triton's repository, whose test files are planned instead (`bench.triton_lit`).
    """
    if lit is not None:
        return triton_lit.run(console, lit, only)
    rows = list(measure(seed, only, planner))
    console.print(table(rows))
    console.print(summary(rows))
    lines, good = verdict(rows)
    for line in lines:
        console.print(line, markup=False)
    return good, [row.json() for row in rows]


def measure(seed: int, only: str, planner: str) -> Iterable[Row]:
    """Rows of the table's kernels and those drawn from the seed, if ``only`` is in their name and target."""
    programs = [*PROGRAMS, *variants(seed, VARIANTS)]
    with Worker("bench.triton_worker", PATIENCE) as worker:
        for program in programs:
            for target in TARGETS:
                if only not in f"{program.name} {target}":
                    continue
                request = {"kernel": program.name, "target": target, "seed": seed, "count": VARIANTS,
                           "planner": planner, "ways": WAYS}
                row = _row(worker, request)
                print(f"{row.kernel} {target}{' FAILED' if row.failures else ''}", file=sys.stderr)
                yield row


def _row(worker: Worker, request: dict[str, Any]) -> Row:
    """Where the process ends, each way is tried by itself."""
    answer = worker.ask(request)
    if "error" not in answer:
        return Row.of(answer)
    row = Row(request["kernel"], request["target"])
    for way in WAYS:
        answer = worker.ask({**request, "ways": [way]})
        if "error" in answer:
            row.failures[way] = answer["error"]
            continue
        found = Row.of(answer)
        row.failures.update(found.failures)
        if way in found.figures:
            row.figures[way] = found.figures[way]
        if way == "after" and "triton" in found.figures:
            row.figures["triton"] = found.figures["triton"]
        row.compile_seconds, row.compile_processor = found.compile_seconds, found.compile_processor
    return row


_COLUMNS = {
    "conversions": "conv", "cost": "cost", "shared": "shared B", "barriers": "bar", "shuffles": "shfl",
    "shared_loads": "ld", "shared_stores": "st", "registers": "regs", "instructions": "instr",
}


def table(rows: Sequence[Row]) -> Table:
    """One row per kernel and target."""
    out = Table(
        title="layouts: Triton / planned after / planned instead", pad_edge=False,
        caption="cost: modelled cycles. shared B, bar(riers), sh(u)fl(es), shared ld and st, regs, instr: of the "
        "assembled code. gap %: of the plans. s: planning after / instead, Triton's compilation",
    )
    for name in ("kernel", "target", *_COLUMNS.values(), "gap %", "s", ""):
        left = name in ("kernel", "target", "")
        out.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        shown = [_compact(row, name) for name in _COLUMNS]
        gaps = [f.gap for way, f in row.figures.items() if way != "triton" and f.gap is not None]
        seconds = [f"{row.figures[way].seconds:.2f}" if way in row.figures else "-" for way in WAYS[1:]]
        failures = "; ".join(f"{way}: {reason}" for way, reason in row.failures.items())
        out.add_row(
            escape(row.kernel), row.target, *shown, f"{100 * max(gaps):.2f}" if gaps else "-",
            f"{' '.join(seconds)} {row.compile_seconds:.2f}", escape(failures[:40]),
        )
    return out


def _compact(row: Row, name: str) -> str:
    """The three ways' figures, once where they are the same."""
    values = [row.figures[way].figure(name) if way in row.figures else None for way in WAYS]
    shown = ["-" if value is None else f"{value:.0f}" for value in values]
    return shown[0] if len(set(shown)) == 1 else "/".join(shown)


def compare(row: Row, way: str, name: str) -> str | None:
    """``better``, ``equal`` or ``worse`` than Triton in a figure; None where there is none."""
    if way not in row.figures or "triton" not in row.figures:
        return None
    ours, theirs = row.figures[way].figure(name), row.figures["triton"].figure(name)
    if ours is None or theirs is None:
        return None
    if ours > theirs * (1 + COMPARED[name]):
        return "worse"
    return "better" if ours < theirs * (1 - min(COMPARED[name], 1e-9)) else "equal"


def summary(rows: Sequence[Row]) -> Table:
    """Per figure, on how many kernels and targets each way is better, equal and worse, and the sums."""
    out = Table(title=f"{len(rows)} kernels and targets, against Triton", pad_edge=False,
                caption="registers: worse is by more than 5 %. sums: where all ways have the figure")
    for name in ("figure", "after: better", "equal", "worse", "instead: better", "equal", "worse", "sums", "", ""):
        out.add_column(name, justify="left" if name == "figure" else "right")
    for name in COMPARED:
        cells = []
        for way in WAYS[1:]:
            found = [compare(row, way, name) for row in rows]
            cells += [str(found.count(verdict)) for verdict in ("better", "equal", "worse")]
        values = [[row.figures[way].figure(name) if way in row.figures else None for way in WAYS] for row in rows]
        whole = [v for v in values if None not in v]
        sums = [f"{sum(v[i] or 0 for v in whole):.0f}" for i in range(len(WAYS))]
        out.add_row(name.replace("_", " "), *cells, *sums)
    return out


def verdict(rows: Sequence[Row]) -> tuple[list[str], bool]:
    """The claims of a run in lines, and whether nothing failed or was worse where it must not be."""
    lines = []
    good = True
    for row in rows:
        label = f"{row.kernel} {row.target}"
        for way, reason in row.failures.items():
            good = False
            lines.append(f"FAILED {label}, {way}: {reason}")
        for way in WAYS[1:]:
            worse = [name for name in REQUIRED if compare(row, way, name) == "worse"]
            if worse:
                good = False
                lines.append(f"WORSE {label}, {way}: {', '.join(f'{name} {_compact(row, name)}' for name in worse)}")
    for way in WAYS[1:]:
        found = [(row, row.figures[way]) for row in rows if way in row.figures]
        if not found:
            continue
        proved = sum(f.gap == 0 and not f.capped for _, f in found)
        longest = [f.longest for _, f in found]
        judged = Counter(f.judged if f.judged in ("equal", "close") else "not judged" for _, f in found)
        ratios = [f.processor / row.compile_processor for row, f in found]
        taken = Counter(f.chosen for _, f in found)
        fewer = sum(f.resident < row.figures["triton"].resident for row, f in found)
        lines.append(
            f"{way}: {proved} of {len(found)} proved optimal; run by the interpreter beside Triton's: "
            f"{', '.join(f'{n} {what}' for what, n in sorted(judged.items()))}; longest plan {max(longest):.2f} s, "
            f"{sum(s > LONGEST for s in longest)} over {LONGEST:g} s; planning / Triton's compilation, processor time: "
            f"median {statistics.median(ratios):.2f}, over 1 on {sum(ratio > 1 for ratio in ratios)}")
        lines.append(
            f"{way}: taken: {', '.join(f'{n} {what}' for what, n in taken.most_common())}; plans assembled: "
            f"{sum(f.assembled for _, f in found)}; fewer blocks at once than Triton's on {fewer}")
    lines.append(f"failed: {sum(bool(row.failures) for row in rows)}")
    return lines, good
