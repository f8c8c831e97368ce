"""Proofs of plans over prime fields: how many plans are proved, at what price; and of what XLA's partitioner makes.

Every program is planned under two cost models, and each plan is proved, at reduced sizes and, where it is not too
large, at full size; steps of 24 layers and an ocean model of 40 levels under the second alone. A proof ends when its
seconds are over. Programs of moderate size are compiled by XLA, too, as their authors wrote them, and what it made
is compared with the program; with its rewriting of arithmetic turned off, which rounds constants.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import eggshard as es
from bench import scale
from bench.mutants import patience
from bench.programs import BenchProgram, dense, indexing, models, padslice, reshard, stencil, training
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.frontends import load
from eggshard.hlo.partitioned import partitioned_program
from eggshard.hlo.xla_program import compile_by_xla
from eggshard.prove.equivalence import compared_programs
from eggshard.prove.sizes.shrinking import elements_of

FAMILIES = (dense, indexing, reshard, padslice, stencil, models, training)
#: Elements up to which a plan is proved at full size, too, and XLA's program is looked at.
WHOLE = 5e6
#: Runs against XLA's program: the comparators of its sorts are evaluated step by step.
XLA_RUNS = 3
#: Steps of layers that are proved, too: their kinds and how many.
LAYERS = (("light", 24), ("heavy", 24), ("scanned", 24))
_VERDICTS = {True: "equal", False: "DIFFERS", None: "refused"}
_MODELS = (("bytes", WireBytes()), ("time", AlphaBeta()))


def run(console: Console, seed: int = 0, only: str = "", seconds: int = 60, resumed: Path | None = None
        ) -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether no plan differs from its program; a record per plan and per program of XLA's.

    seconds: of the processor, for one proof. resumed: a file of records, a line for each, of programs that are passed
    over; others are added to it.
    """
    records = [json.loads(line) for line in resumed.read_text().splitlines()] if resumed and resumed.exists() else []
    done = {(r["program"], r["model"]) for r in records if "model" in r}
    try:
        for found in _plans(only, done):
            made = _prove(found, seed, seconds)
            records += made
            if resumed:
                with resumed.open("a") as file:
                    file.writelines(json.dumps(record) + "\n" for record in made)
    except KeyboardInterrupt:
        console.print("interrupted; these are the plans that were proved until then")
    rows = [r for r in records if "model" in r and only in r["program"]]
    partitioned = [r for r in records if "model" not in r and only in r["program"]]
    console.print(_plans_table(rows))
    console.print(_partitioned_table(partitioned))
    for row in rows:
        if row["verdict"] in ("DIFFERS", "refused", "not in time") or row.get("undecided"):
            console.print(f"{row['verdict']}: {row['program']} ({row['model']}): {row.get('why', '')}", markup=False)
    for row in partitioned:
        if row["verdict"] != "equal":
            console.print(f"XLA, {row['verdict']}: {row['program']}: {row['why']}", markup=False)
    return not any(row["verdict"] == "DIFFERS" for row in rows), rows + partitioned


def _prove(found: tuple[str, BenchProgram, es.Program, str, es.Plan, float], seed: int, seconds: int
           ) -> list[dict[str, Any]]:
    """What is shown of a plan, and of what XLA makes of its program."""
    family, program, source, model, plan, planning = found
    whole = elements_of(plan.program.region)
    row = {"family": family, "program": program.name, "model": model, "planning": planning, "whole": whole,
           "verdict": "not in time", "proving": float(seconds), "why": f"it takes more than {seconds} s"}
    made = [row]
    try:
        with patience(seconds):
            proof = plan.prove(seed=seed)
    except TimeoutError:
        pass
    else:
        row |= {"verdict": _VERDICTS[proof.equal], "proving": proof.seconds, "undecided": proof.undecided,
                "runs": proof.runs, "bound": proof.bound, "elements": proof.sizes, "lemmas": proof.lemmas,
                "choices": proof.choice_bound if proof.choices else 0.0,
                "why": proof.refused or str(proof.difference or "")}
    if model == "bytes" and whole <= WHOLE:
        try:
            with patience(seconds):
                row["full"] = plan.prove(seed=seed, shrink=False).seconds
        except TimeoutError:
            row["full not in time"] = True
        made.append(_of_xla(program, source, seconds))
    print(f"{program.name} ({model}): {row['verdict']} {row['why']}; planned in {planning:.2f} s, proved in "
          f"{row['proving']:.2f} s", file=sys.stderr, flush=True)
    return made


def _of_xla(program: BenchProgram, source: es.Program, seconds: int) -> dict[str, Any]:
    """What XLA's partitioner makes of a program, against the program."""
    row: dict[str, Any] = {"family": program.family, "program": program.name, "whose": "XLA"}
    try:
        executable, _ = compile_by_xla(source, flags={"xla_disable_hlo_passes": "algsimp"})
        with patience(seconds):
            proof = compared_programs(partitioned_program(executable), source, runs=XLA_RUNS)
    except TimeoutError:
        return row | {"verdict": "refused", "why": f"it takes more than {seconds} s"}
    except es.EggshardError as error:
        return row | {"verdict": "refused", "why": str(error)}
    return row | {"verdict": _VERDICTS[proof.equal], "why": proof.refused or str(proof.difference or "")}


def _plans(only: str, done: set[tuple[str, str]]
           ) -> Iterator[tuple[str, BenchProgram, es.Program, str, es.Plan, float]]:
    """Every program that was not done once under each cost model, with its family; families share some."""
    programs = {p.name: (p.family, p) for family in FAMILIES for p in family.PROGRAMS if not p.extra}
    large = [*(training.step_of_layers(kind, count) for kind, count in LAYERS), scale.program()]
    for name, model in _MODELS:
        if name == "time":
            programs |= {p.name: ("large", p) for p in large}
        for family, program in programs.values():
            if only not in program.name or (program.name, name) in done:
                continue
            source = load(program.module)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", es.EggshardWarning)
                began = time.perf_counter()
                plan = es.optimize(source, cost_model=model, limits=es.Limits(proof=0))
            yield family, program, source, name, plan, time.perf_counter() - began


def _plans_table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="plans proved over prime fields", pad_edge=False,
                caption="proof / planning: seconds, of plans proved. reduced: proved at reduced sizes; how many times "
                "fewer elements, in the median. full: at full size, up to 5 million elements. bound: the largest "
                "chance that a wrong element passes; choices: of one that bits decide, in an order of numbers or as "
                "integers. late: not proved in time; in brackets at full size")
    for name in ("family", "plans", "equal", "undecided", "refused", "DIFFERS", "late", "planning s", "proving s",
                 "median", "worst", "reduced", "fewer", "full", "median", "worst", "bound", "choices"):
        out.add_column(name, justify="left" if name == "family" else "right")
    families = list(dict.fromkeys(r["family"] for r in rows))
    for family in [*families, "all"]:
        mine = [r for r in rows if family in (r["family"], "all")]
        verdicts = Counter(r["verdict"] for r in mine)
        proved = [r for r in mine if r["verdict"] == "equal"]
        ratios = [r["proving"] / r["planning"] for r in proved]
        full = [r["full"] / r["planning"] for r in proved if "full" in r]
        fewer = [r["whole"] / r["elements"] for r in proved if r["elements"] < r["whole"]]
        out.add_row(
            family, str(len(mine)), str(verdicts["equal"]), str(sum(bool(r.get("undecided")) for r in mine)),
            *(str(verdicts[v]) for v in ("refused", "DIFFERS", "not in time")),
            f"{sum(r['planning'] for r in proved):.1f}", f"{sum(r['proving'] for r in proved):.1f}",
            f"{statistics.median(ratios):.2f}" if ratios else "-", f"{max(ratios):.1f}" if ratios else "-",
            str(len(fewer)), f"{statistics.median(fewer):.0f}" if fewer else "-",
            f"{len(full)} ({sum(r.get('full not in time', False) for r in mine)})",
            f"{statistics.median(full):.2f}" if full else "-", f"{max(full):.1f}" if full else "-",
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
