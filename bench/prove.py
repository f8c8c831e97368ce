"""Proofs of plans over prime fields: how many plans are proved, at what price, and which faults are found.

Every program is planned under two cost models, and each plan is proved. Faults are mutants of device programs
(`testing.plan_mutants`), a few of every kind per plan; each is judged by the proof, and by `verify` on NumPy. Those
that neither finds are mostly no faults: a maximum taken twice, a mask of zeros over zeros.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import statistics
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from testing.plan_mutants import mutants

import eggshard as es
from bench.programs import BenchProgram, dense, indexing, models, padslice, reshard, stencil, training
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.frontends import load
from eggshard.prove.sizes.shrinking import Sizes

FAMILIES = (dense, indexing, reshard, padslice, stencil, models, training)
#: Elements of a program's values, at the sizes that it is proved at, above which a plan is left out.
MOST = 150e6
#: The same of plans that are mutated; mutants of a kind per plan; seconds for one.
MUTATED, PER_KIND, PATIENCE = 5e6, 2, 8
_VERDICTS = {True: "equal", False: "DIFFERS", None: "refused"}
_FOUND = {(True, True): "both", (True, False): "proof only", (False, True): "verify only", (False, False): "neither"}


def run(console: Console, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether no plan differs from its program; a record per plan and kind of mutant."""
    rows: list[dict[str, Any]] = []
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for program, model, plan, seconds in _plans(only):
        sizes = Sizes(plan)
        row = {"family": program.family, "program": program.name, "model": model, "planning": seconds,
               "whole": sizes.whole, "elements": sizes.of_run(0).elements, "verdict": "left out", "proving": 0.0}
        rows.append(row)
        if row["elements"] > MOST:
            continue
        proof = plan.prove(seed=seed)
        row |= {"verdict": _VERDICTS[proof.equal], "proving": proof.seconds, "undecided": proof.undecided,
                "runs": proof.runs, "bound": proof.bound, "at full size": proof.sizes == proof.whole,
                "why": proof.refused or str(proof.difference or "")}
        print(f"{program.name}: {row['verdict']} {row['why']}", file=sys.stderr)
        if proof and model == "bytes" and sizes.whole < MUTATED:
            _judge(plan, found, random.Random(seed))
    console.print(_plans_table(rows))
    console.print(_mutants_table(found))
    for row in rows:
        if row["verdict"] in ("DIFFERS", "refused") or row.get("undecided"):
            console.print(f"{row['verdict']}: {row['program']} ({row['model']}): {row['why']}", markup=False)
    good = not any(row["verdict"] == "DIFFERS" for row in rows)
    return good, rows + [{"mutants": kind, **counts} for kind, counts in found.items()]


def _plans(only: str) -> Iterator[tuple[BenchProgram, str, es.Plan, float]]:
    for family in FAMILIES:
        for program in family.PROGRAMS:
            if program.extra or only not in program.name:
                continue
            source = load(program.module)
            for name, model in (("bytes", WireBytes()), ("time", AlphaBeta())):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", es.EggshardWarning)
                    began = time.perf_counter()
                    plan = es.optimize(source, cost_model=model)
                yield program, name, plan, time.perf_counter() - began


def _judge(plan: es.Plan, found: dict[str, Counter[str]], rng: random.Random) -> None:
    """Count which of the plan's mutants are found, by kind."""
    chosen, seen = list(mutants(plan.device_program)), Counter[str]()
    rng.shuffle(chosen)
    for kind, device_program in chosen:
        seen[kind] += 1
        if seen[kind] > PER_KIND:
            continue
        mutant = es.Plan.of(dataclasses.replace(plan, device_program=device_program))
        try:
            with _patience(PATIENCE):
                proof = mutant.prove()
                verdict = "ill-typed" if proof.equal is None else _FOUND[not proof.equal, _differs(mutant)]
        except es.errors.VerificationError:
            raise
        except (es.EggshardError, ValueError, IndexError):
            verdict = "ill-typed"
        except TimeoutError:
            verdict = "endless"
        found[kind][verdict] += 1


def _differs(mutant: es.Plan) -> bool:
    try:
        mutant.verify(engines=("numpy",))
    except es.errors.VerificationError:
        return True
    return False


@contextmanager
def _patience(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer: a mutated counter may never reach its limit."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _plans_table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="plans proved over prime fields", pad_edge=False,
                caption="proof / planning: seconds, of plans proved. reduced: proved at reduced sizes; how many times "
                "fewer elements, in the median. left out: more than 150 million elements, even reduced")
    for name in ("family", "plans", "equal", "undecided", "refused", "DIFFERS", "left out", "planning s", "proving s",
                 "median", "worst", "reduced", "fewer", "least runs' bound"):
        out.add_column(name, justify="left" if name == "family" else "right")
    families = list(dict.fromkeys(r["family"] for r in rows))
    for family in [*families, "all"]:
        mine = [r for r in rows if family in (r["family"], "all")]
        verdicts = Counter(r["verdict"] for r in mine)
        proved = [r for r in mine if r["verdict"] == "equal"]
        ratios = [r["proving"] / r["planning"] for r in proved]
        fewer = [r["whole"] / r["elements"] for r in proved if not r["at full size"]]
        out.add_row(
            family, str(len(mine)), str(verdicts["equal"]), str(sum(bool(r.get("undecided")) for r in mine)),
            *(str(verdicts[v]) for v in ("refused", "DIFFERS", "left out")),
            f"{sum(r['planning'] for r in proved):.1f}", f"{sum(r['proving'] for r in proved):.1f}",
            f"{statistics.median(ratios):.2f}" if ratios else "-", f"{max(ratios):.1f}" if ratios else "-",
            str(len(fewer)), f"{statistics.median(fewer):.0f}" if fewer else "-",
            f"{max((r['bound'] for r in proved), default=0):.1e}",
        )
    return out


def _mutants_table(found: dict[str, Counter[str]]) -> Table:
    out = Table(title="faults found", pad_edge=False)
    verdicts = (*_FOUND.values(), "ill-typed", "endless")
    out.add_column("kind")
    for verdict in verdicts:
        out.add_column(verdict, justify="right")
    for kind in sorted(found):
        out.add_row(kind, *(str(found[kind][v]) for v in verdicts))
    out.add_row("all", *(str(sum(c[v] for c in found.values())) for v in verdicts))
    return out
