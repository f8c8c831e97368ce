"""Proofs of plans over prime fields: how many plans are proved, at what price; and of what XLA's partitioner makes.

Every program is planned under two cost models, and each plan is proved, at reduced sizes and, where it is not too
large, at full size. Programs of moderate size are compiled by XLA, too, as their authors wrote them, and what it made
is compared with the program; with its rewriting of arithmetic turned off, which rounds constants.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

import eggshard as es
from bench.mutants import patience
from bench.programs import BenchProgram, dense, indexing, models, padslice, reshard, stencil, training
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.frontends import load
from eggshard.hlo.partitioned import partitioned_program
from eggshard.hlo.xla_program import compile_by_xla
from eggshard.prove.equivalence import compared_programs
from eggshard.prove.sizes.shrinking import Sizes

FAMILIES = (dense, indexing, reshard, padslice, stencil, models, training)
#: Elements of a program's values, at the sizes that it is proved at, above which a plan is left out.
MOST = 150e6
#: Elements up to which a plan is proved at full size, too, and XLA's program is looked at.
WHOLE = 5e6
#: Runs against XLA's program, and seconds for them: the comparators of its sorts are evaluated step by step.
XLA_RUNS, PATIENCE = 3, 30
_VERDICTS = {True: "equal", False: "DIFFERS", None: "refused"}
_MODELS = (("bytes", WireBytes()), ("time", AlphaBeta()))


def run(console: Console, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether no plan differs from its program; a record per plan and per program of XLA's."""
    rows: list[dict[str, Any]] = []
    partitioned: list[dict[str, Any]] = []
    try:
        for found in _plans(only):
            _prove(found, seed, rows, partitioned)
    except KeyboardInterrupt:
        console.print("interrupted; these are the plans that were proved until then")
    console.print(_plans_table(rows))
    console.print(_partitioned_table(partitioned))
    for row in rows:
        if row["verdict"] in ("DIFFERS", "refused", "left out") or row.get("undecided"):
            console.print(f"{row['verdict']}: {row['program']} ({row['model']}): {row.get('why', '')}", markup=False)
    for row in partitioned:
        if row["verdict"] != "equal":
            console.print(f"XLA, {row['verdict']}: {row['program']}: {row['why']}", markup=False)
    return not any(row["verdict"] == "DIFFERS" for row in rows), rows + partitioned


def _prove(found: tuple[BenchProgram, es.Program, str, es.Plan, float], seed: int, rows: list[dict[str, Any]],
           partitioned: list[dict[str, Any]]) -> None:
    """Append what is shown of a plan to the rows, and of what XLA makes of its program."""
    program, source, model, plan, seconds = found
    sizes = Sizes(plan)
    row = {"family": program.family, "program": program.name, "model": model, "planning": seconds,
           "whole": sizes.whole, "elements": sizes.of_run(0).elements, "verdict": "left out", "proving": 0.0}
    rows.append(row)
    if row["elements"] > MOST:
        return
    proof = plan.prove(seed=seed)
    row |= {"verdict": _VERDICTS[proof.equal], "proving": proof.seconds, "undecided": proof.undecided,
            "runs": proof.runs, "bound": proof.bound, "at full size": proof.sizes == proof.whole,
            "choices": proof.choice_bound if proof.choices else 0.0,
            "why": proof.refused or str(proof.difference or "")}
    if model == "bytes" and sizes.whole <= WHOLE:
        row["full"] = plan.prove(seed=seed, shrink=False).seconds
        partitioned.append(_of_xla(program, source))
    print(f"{program.name}: {row['verdict']} {row['why']} {row['elements']} of {row['whole']} elements, "
          f"planned in {seconds:.2f} s, proved in {proof.seconds:.2f} s", file=sys.stderr)


def _of_xla(program: BenchProgram, source: es.Program) -> dict[str, Any]:
    """What XLA's partitioner makes of a program, against the program."""
    row: dict[str, Any] = {"family": program.family, "program": program.name, "whose": "XLA"}
    try:
        executable, _ = compile_by_xla(source, flags={"xla_disable_hlo_passes": "algsimp"})
        with patience(PATIENCE):
            proof = compared_programs(partitioned_program(executable), source, runs=XLA_RUNS)
    except TimeoutError:
        return row | {"verdict": "refused", "why": f"it takes more than {PATIENCE} s"}
    except es.EggshardError as error:
        return row | {"verdict": "refused", "why": str(error)}
    return row | {"verdict": _VERDICTS[proof.equal], "why": proof.refused or str(proof.difference or "")}


def _plans(only: str) -> Iterator[tuple[BenchProgram, es.Program, str, es.Plan, float]]:
    """Every program once under each cost model; families share some."""
    programs = {p.name: p for family in FAMILIES for p in family.PROGRAMS if not p.extra and only in p.name}
    for name, model in _MODELS:
        for program in programs.values():
            source = load(program.module)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", es.EggshardWarning)
                began = time.perf_counter()
                plan = es.optimize(source, cost_model=model, limits=es.Limits(proof=0))
            yield program, source, name, plan, time.perf_counter() - began


def _plans_table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="plans proved over prime fields", pad_edge=False,
                caption="proof / planning: seconds, of plans proved. reduced: proved at reduced sizes; how many times "
                "fewer elements, in the median. full: at full size, up to 5 million elements. bound: the largest "
                "chance that a wrong element passes; choices: of one that a comparison decides. left out: more than "
                "150 million elements, even reduced")
    for name in ("family", "plans", "equal", "undecided", "refused", "DIFFERS", "left out", "planning s", "proving s",
                 "median", "worst", "reduced", "fewer", "full", "median", "worst", "bound", "choices"):
        out.add_column(name, justify="left" if name == "family" else "right")
    families = list(dict.fromkeys(r["family"] for r in rows))
    for family in [*families, "all"]:
        mine = [r for r in rows if family in (r["family"], "all")]
        verdicts = Counter(r["verdict"] for r in mine)
        proved = [r for r in mine if r["verdict"] == "equal"]
        ratios = [r["proving"] / r["planning"] for r in proved]
        full = [r["full"] / r["planning"] for r in proved if "full" in r]
        fewer = [r["whole"] / r["elements"] for r in proved if not r["at full size"]]
        out.add_row(
            family, str(len(mine)), str(verdicts["equal"]), str(sum(bool(r.get("undecided")) for r in mine)),
            *(str(verdicts[v]) for v in ("refused", "DIFFERS", "left out")),
            f"{sum(r['planning'] for r in proved):.1f}", f"{sum(r['proving'] for r in proved):.1f}",
            f"{statistics.median(ratios):.2f}" if ratios else "-", f"{max(ratios):.1f}" if ratios else "-",
            str(len(fewer)), f"{statistics.median(fewer):.0f}" if fewer else "-",
            str(len(full)), f"{statistics.median(full):.2f}" if full else "-", f"{max(full):.1f}" if full else "-",
            _chance(r["bound"] for r in proved), _chance(r["choices"] for r in proved),
        )
    return out


def _chance(chances: Iterable[float]) -> str:
    """The largest of some chances, and the median where it is another, as powers of two."""
    found = sorted(math.log2(c) for c in chances if c)
    return f"2^{found[-1]:.0f}, median 2^{statistics.median(found):.0f}" if found else "-"


def _partitioned_table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="programs as XLA's partitioner makes them, against themselves", pad_edge=False)
    for name in ("family", "programs", "equal", "DIFFERS", "refused"):
        out.add_column(name, justify="left" if name == "family" else "right")
    for family in [*dict.fromkeys(r["family"] for r in rows), "all"]:
        verdicts = Counter(r["verdict"] for r in rows if family in (r["family"], "all"))
        out.add_row(family, str(sum(verdicts.values())), *(str(verdicts[v]) for v in ("equal", "DIFFERS", "refused")))
    return out
