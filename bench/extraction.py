"""Extractors against each other, and against peers, on the selection problems of real programs.

Every one has the same seconds, in a process of its own that is ended where it takes far more. What they pick is priced
exactly, every computation and conversion once. Beside it: how the portfolio compares with exhaustive enumeration.
"""

from __future__ import annotations

import math
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.extraction_worker import OURS, PEERS
from bench.programs import BenchProgram, by_name, dense, padslice, reshard, stencil, training
from bench.selection_problems import problem_of
from bench.worker import Worker
from eggshard.selection.portfolio import extract
from eggshard.selection.portfolio.state import flow_count

#: What an extractor has for one problem; it is ended after `PATIENCE` times that, and a little.
SECONDS, PATIENCE = 10.0, 3.0
#: Programs drawn per family.
VARIANTS = 2
#: Programs compared with exhaustive enumeration: made-up problems, and problems of random programs.
MADE_UP, REAL = 500, 500
#: Programs of the fixed tables: circles of tensors, windows, training steps.
_NAMED = (
    (stencil, "2D radius 3 pad edge"),
    (padslice, "transport: extend 1,3 on 2 devices"),
    (stencil, "2D 5-point pad 0 x8 (x,-)"),
    (training, "GQA training, 1 layer, FSDP"),
)
_LAYERS = (1, 2, 4)


def programs(seed: int = 0) -> list[BenchProgram]:
    """The fixed programs, steps of some layers, and some drawn by a seed."""
    drawn = [p for family in (dense, training, reshard, stencil) for p in family.variants(seed, VARIANTS)]
    steps = [training.step_of_layers("light", n) for n in _LAYERS]
    return [*(by_name(family.PROGRAMS)[name] for family, name in _NAMED), *steps, *drawn]


def measure(chosen: Iterable[BenchProgram], seconds: float) -> list[dict[str, Any]]:
    """One record per program: its size, and what each extractor answered."""
    records = []
    with (tempfile.TemporaryDirectory() as directory,
          Worker("bench.extraction_worker", PATIENCE * seconds + 15.0) as worker):
        for program in chosen:
            print(f"{program.name} ...", file=sys.stderr)
            problem = problem_of(program)
            path = Path(directory) / "problem"
            path.write_bytes(pickle.dumps(problem))
            scale = extract(problem, methods=("greedy",)).selection.cost or 1.0
            found = {name: worker.ask({"problem": str(path), "extractor": name, "seconds": seconds, "scale": scale})
                     for name in (*OURS, *PEERS)}
            records.append({
                "program": program.name, "classes": len(problem.choices),
                "choices": sum(map(len, problem.choices)), "flows": flow_count(problem),
                "best": min((f["cost"] for f in found.values() if "cost" in f), default=math.inf),
                "extractors": found,
            })
    return records


def failures(record: dict[str, Any]) -> list[str]:
    """Plans that are none, and bounds that some plan undercuts."""
    out = []
    for name, found in record["extractors"].items():
        if found.get("wrong"):
            out.append(f"{name}: {found['wrong'][0]}")
        if found.get("bound", 0.0) > record["best"] * (1 + 1e-9):
            out.append(f"{name}: bound {found['bound']:.9g} above a plan of {record['best']:.9g}")
        if name in OURS and "error" in found:
            out.append(f"{name}: {found['error'][:100]}")
    return out


def table(records: list[dict[str, Any]], seconds: float) -> Table:
    """One row per program, one column per extractor."""
    out = Table(title=f"extraction, {seconds:g} s each: cost / best known, certified gap, seconds", pad_edge=False,
                caption="-: no plan, no bound, or not finished in time. Prices are exact: everything once")
    for name in ("program", "classes", "choices", "flows", *OURS, *PEERS):
        out.add_column(name, justify="left" if name == "program" else "right")
    for record in records:
        out.add_row(escape(record["program"][:30]), *(str(record[k]) for k in ("classes", "choices", "flows")),
                    *(_cell(record["extractors"][name], record["best"]) for name in (*OURS, *PEERS)))
    return out


def _cell(found: dict[str, Any], best: float) -> str:
    if not found.get("cost", math.inf) < math.inf:
        return "-"
    ratio = found["cost"] / best if best else 1.0
    gap = _gap(found)
    return f"{ratio:.4g} {'-' if gap is None else f'{100 * gap:.2g}%'} {found['seconds']:.1f}"


def _gap(found: dict[str, Any]) -> float | None:
    """The relative gap to the extractor's own bound; None without one."""
    cost, bound = found["cost"], found["certified"]
    return 0.0 if cost == 0 else None if bound <= 0 else max(0.0, (cost - bound) / cost)


def summary(records: list[dict[str, Any]]) -> list[str]:
    """Per extractor: how often it has the best plan known, and how often it proves it."""
    lines = []
    for name in (*OURS, *PEERS):
        found = [(r["extractors"][name], r["best"]) for r in records]
        there = [(f, best) for f, best in found if f.get("cost", math.inf) < math.inf]
        best = sum(f["cost"] <= best * (1 + 1e-4) for f, best in there)
        proved = sum((gap := _gap(f)) is not None and gap <= 1e-4 for f, _ in there)
        worst = max((f["cost"] / best for f, best in there if best), default=math.nan)
        took = sum(f["seconds"] for f, _ in there)
        lines.append(f"{name}: best plan known on {best} of {len(records)}, certified {proved}, at worst {worst:.4g} "
                     f"times the best, not finished {len(records) - len(there)}, {took:.0f} s")
    return lines


def exactness(seed: int) -> tuple[list[str], dict[str, Any]]:
    """The portfolio against exhaustive enumeration: what is wrong, and the counts."""
    from tests.selection.exhaustive import Tally, cases

    wrong, counts = [], {}
    for real, count in ((False, MADE_UP), (True, REAL)):
        tally, began = Tally(), time.perf_counter()
        for problem, best in cases(seed, count, real, tally):
            wrong += tally.take(problem, best)
        counts["encoded" if real else "made-up"] = {**vars(tally), "seconds": time.perf_counter() - began}
    return wrong, counts


def run(console: Console, *, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the table and the comparison with enumeration (not where ``only`` names programs); whether nothing is
    wrong, and the records."""
    records = measure([p for p in programs(seed) if only in p.name], SECONDS)
    console.print(table(records, SECONDS))
    for line in summary(records):
        console.print(line, markup=False)
    wrong = [f"{record['program']}: {failure}" for record in records for failure in failures(record)]
    if not only:
        differences, counts = exactness(seed)
        wrong += differences
        for kind, tally in counts.items():
            console.print(
                f"{kind} problems beside enumeration: {tally['equal']} of {tally['cases']} equal, bound above the "
                f"optimum {tally['above']}, not certified {tally['unproved']}, with circles {tally['circles']}; "
                f"{tally['too_large']} more were too large to enumerate", markup=False)
        records.append({"exactness": counts})
    for line in wrong:
        console.print(f"FAILED {line}", markup=False)
    return not wrong, records
