"""Triton's own test files, planned beside its removal of layout conversions: ``python -m bench triton --lit PATH``.

PATH is a checkout of Triton's repository, or of a fork's, of which nothing is kept here. Its files are cut into their
modules. Of each that libtriton reads, Triton's pass and our plan of the same text are compared under the cost model of
its target.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.worker import Worker
from eggshard.errors import ProgramError

#: The folder of the tests in the repository, and what cuts a file into modules.
_FOLDER, _SPLIT = "test", re.compile(r"^// -----.*$", re.MULTILINE)
#: Seconds for one module.
_PATIENCE = 120.0
#: Costs closer than this part of one another are the same.
_SAME = 1e-9
#: Those that are to be none.
FAILURES = ("dearer", "kept", "refused", "unnamed", "ended")


@dataclass
class Judged:
    """What became of one module.

    outcome: ``unread`` (libtriton refuses it), ``no layouts``, ``alone`` (Triton's pass fails), ``cheaper``, ``equal``
    and ``dearer`` than Triton's, ``kept`` with a warning, ``refused``, ``unnamed`` (with an empty message), or
    ``ended`` (the process). given, triton, ours: modelled cycles. gap: what is said of the plan.
    """

    name: str
    outcome: str
    why: str = ""
    given: float | None = None
    triton: float | None = None
    ours: float | None = None
    gap: float | None = None
    seconds: float = 0.0
    triton_seconds: float = 0.0


def run(console: Console, path: Path, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the table; whether nothing failed, and one record per module. ProgramError for what is no checkout."""
    root = path / _FOLDER
    if not root.is_dir():
        raise ProgramError(f"{path} is no checkout of Triton's repository: it has no {_FOLDER}")
    found = []
    with Worker("bench.triton_lit_worker", _PATIENCE) as worker:
        for name, text in modules(root):
            if only in name:
                found.append(judged(worker, name, text))
                print(f"{name}: {found[-1].outcome} {found[-1].why[:150]}", file=sys.stderr, flush=True)
    console.print(table(found))
    failed = [one for one in found if one.outcome in FAILURES]
    for one in failed:
        console.print(f"{one.name}: {one.outcome} {one.triton} {one.ours} {one.gap} {one.why[:200]}", markup=False)
    return not failed, [asdict(one) for one in found]


def modules(root: Path) -> Iterator[tuple[str, str]]:
    """The modules of all test files: the file and the number in it, and the text."""
    for file in sorted(root.rglob("*.mlir")):
        for number, text in enumerate(_SPLIT.split(file.read_text())):
            yield f"{file.relative_to(root)}:{number}", text


def judged(worker: Worker, name: str, text: str) -> Judged:
    """What becomes of one module by Triton's pass and by ours."""
    given = worker.ask({"way": "read", "text": text})
    if "cost" not in given:
        if "error" in given:
            return Judged(name, "ended", given["error"])
        return Judged(name, "unread" if given["unread"] else "unnamed", given["unread"])
    ours, theirs = (worker.ask({"way": way, "text": text}) for way in ("ours", "triton"))
    row = Judged(name, "", given=given["cost"], triton=theirs.get("cost"), ours=ours.get("cost"), gap=ours.get("gap"),
                 seconds=ours.get("seconds", 0.0), triton_seconds=theirs.get("seconds", 0.0))
    if "error" in ours:
        row.outcome, row.why = "ended", ours["error"]
    elif "refused" in ours:
        row.outcome, row.why = "refused" if ours["refused"] else "unnamed", ours["refused"]
    elif ours["kept"]:
        row.outcome, row.why = "kept", ours["kept"]
    elif not given["laid"]:
        row.outcome = "no layouts"
    elif "error" in theirs:
        row.outcome, row.why = "alone", theirs["error"]
    else:
        assert row.ours is not None and row.triton is not None
        same = abs(row.ours - row.triton) <= _SAME * max(row.ours, row.triton)
        row.outcome = "equal" if same else "cheaper" if row.ours < row.triton else "dearer"
    return row


def table(found: list[Judged]) -> Table:
    """How many modules have which outcome."""
    counts = Counter(one.outcome for one in found)
    compared = [one for one in found if one.outcome in ("cheaper", "equal", "dearer")]
    out = Table("outcome", "modules", "", title=f"{len(found)} modules of Triton's test files", pad_edge=False)
    for outcome, count in sorted(counts.items()):
        out.add_row(outcome, str(count), "is to be 0" if outcome in FAILURES else "")
    if compared:
        times = statistics.median(one.seconds for one in compared)
        given, theirs, ours = (sum(getattr(one, name) for one in compared) for name in ("given", "triton", "ours"))
        out.caption = (f"of {len(compared)} compared, Triton's pass leaves {theirs:.6g} cycles of {given:.6g}, ours "
                       f"{ours:.6g}; {1e3 * times:.1f} ms in the median")
    return out
