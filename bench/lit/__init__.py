"""The peers' own test files, run through our passes and theirs: ``python -m bench lit``.

``--shardy PATH``, ``--enzyme PATH`` and ``--xla PATH`` are checkouts of the peers' repositories, of which nothing is
kept here. Shardy's files are cut into their cases, and each goes through the passes of the file's RUN lines twice;
tests that run programs are run on simulated devices. The functions of Enzyme-JAX's are planned beside what its
pipelines make of them (`fields`), and the HLO modules of XLA's beside what its partitioner does (`hlo_modules`).
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.lit import comparing, executables, fields, hlo_modules, programs
from bench.lit.cases import Case, Run, cases
from bench.lit.judging import FAILURES, OUTCOMES, Verdict, judge
from eggshard.errors import ProgramError

#: The folder of the dialect's tests in Shardy's repository, and the tool that their RUN lines call.
_SHARDY, _TOOL = "shardy/dialect/sdy", "sdy_opt"


def run(
    console: Console, seed: int = 0, only: str = "", shardy: Path | None = None, enzyme: Path | None = None,
    xla: Path | None = None, everything: bool = False,
) -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether nothing failed, and one record per run of a case. everything: whole programs, too.

    ProgramError without a checkout, or for one without tests.
    """
    if shardy is None and enzyme is None and xla is None:
        raise ProgramError("bench lit needs a checkout of a peer's repository: --shardy, --enzyme or --xla PATH")
    records: list[dict[str, Any]] = []
    if shardy is not None:
        records += _of_shardy(console, _tests(shardy, "Shardy", _SHARDY), only, everything)
    planned = ((enzyme, "Enzyme-JAX", fields, "function"), (xla, "XLA", hlo_modules, "module"))
    for checkout, whose, tests, kind in planned:
        if checkout is not None:
            found: list[comparing.Compared] = []
            for one in tests.judged(_tests(checkout, whose, tests.FOLDER), only):
                found.append(one)
                print(f"{one.name}: {one.outcome}", file=sys.stderr, flush=True)
            console.print(tests.table(found))
            records += [{kind: f.name, "outcome": f.outcome, "ours": f.ours, "peers": dict(f.wire),
                         "checked": f.checked, "why": f.why, "failed": f.outcome in comparing.FAILURES} for f in found]
    failed = [record for record in records if record["failed"]]
    for record in failed:
        console.print(": ".join(str(value) for key, value in record.items() if key != "failed"), markup=False)
    return not failed, records


def _tests(checkout: Path, whose: str, folder: str) -> Path:
    """The folder of tests in a checkout; ProgramError where it has none."""
    if not (checkout / folder).is_dir():
        raise ProgramError(f"{checkout} is no checkout of {whose}'s repository: it has no {folder}")
    return checkout / folder


def _of_shardy(console: Console, root: Path, only: str, everything: bool) -> list[dict[str, Any]]:
    """Print the tables of Shardy's tests; one record per run of a case, executable and way of a program."""
    found = [(case, run, judge(case, run)) for case in cases(root, _TOOL) if only in case.name
             for run in case.runs if run.passes]
    console.print(_table(found))
    records = [{"case": case.name, "passes": str(run), "outcome": v.outcome, "why": v.why,
                "failed": v.outcome in FAILURES} for case, run, v in found]
    ran = [(test, *executables.judge(test)) for test in executables.executables(root) if only in test.name]
    console.print(_executable_table([row[1:] for row in ran]))
    records += [{"executable": test.name, "outcome": ours.outcome, "why": ours.why, "jaxlib": theirs.outcome,
                 "failed": ours.outcome in ("wrong", "refused")} for test, ours, theirs in ran]
    if everything:
        named = (case for case in cases(root, _TOOL) if only in case.name)
        wholes = [programs.run(name, text) for name, text in programs.programs(named)]
        console.print(_whole_table(wholes))
        records += [{"program": whole.name, "way": way, "outcome": verdict.outcome, "why": verdict.why,
                     "failed": verdict.outcome != "refused"}
                    for whole in wholes for way, verdict in whole.verdicts.items()]
    return records


def _table(found: Sequence[tuple[Case, Run, Verdict]]) -> Table:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for _, run, verdict in found:
        counts[str(run).replace("sdy-", "")][verdict.outcome] += 1
    out = Table(
        title="the cases of Shardy's test files, by our passes and jaxlib's", pad_edge=False,
        caption="as checked: another text than jaxlib's, which the file's CHECK lines agree with. ours alone: jaxlib's "
        "passes fail. both refuse: or jaxlib's result is wrong. unread: jaxlib does not parse it. differs, more bytes, "
        "refused and wrong are to be 0",
    )
    for name in ("passes", "cases", *OUTCOMES):
        out.add_column(name, justify="left" if name == "passes" else "right")
    for passes, row in (*sorted(counts.items()), ("all", sum(counts.values(), Counter[str]()))):
        out.add_row(escape(passes), str(row.total()), *(str(row[o]) for o in OUTCOMES))
    return out


def _whole_table(wholes: Sequence[programs.Whole]) -> Table:
    out = Table(
        title="the cases as whole programs, on simulated devices; bytes beside XLA's", pad_edge=False,
        caption="dearer: more bytes than XLA, or of global than of shardy. refused: with an error that names the op",
    )
    columns = ("programs", "right", "wrong", "failed", "dearer", "refused", "compared with XLA", "fewer bytes than XLA")
    for name in ("way", *columns):
        out.add_column(name, justify="left" if name == "way" else "right")
    for way in programs.WAYS:
        counts = Counter(w.verdicts[way].outcome if way in w.verdicts else "right" for w in wholes)
        both = [(w.wire[way], w.wire["XLA"]) for w in wholes if way in w.wire and "XLA" in w.wire]
        figures = (*(counts[c] for c in columns[1:6]), len(both), sum(a < b - 0.5 for a, b in both))
        out.add_row(way, str(len(wholes)), *map(str, figures))
    return out


def _executable_table(ran: Sequence[tuple[Verdict, Verdict]]) -> Table:
    out = Table(title="Shardy's executable tests, on simulated devices", pad_edge=False)
    columns = ("right", "wrong", "refused", "replicas")
    for name in ("passes", "runs", *columns):
        out.add_column(name, justify="left" if name == "passes" else "right")
    for name, verdicts in (("ours", [a for a, _ in ran]), ("jaxlib's", [b for _, b in ran])):
        counts = Counter(v.outcome for v in verdicts)
        out.add_row(name, str(len(verdicts)), *(str(counts[c]) for c in columns))
    return out
