"""Kernels of other packages, compiled as ever and with layouts planned: ``python -m bench kernels --packages PATH``.

PATH is a folder of unpacked packages, of which nothing is kept here. Their modules are imported without what they need
(`packages`), and their kernels compiled for arguments that are guessed from how they are used (`guessing`); those that
Triton does not compile so are left out. Both compilations run in turn, in a process of their own; times are the
processor's.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.kernels.packages import sources
from bench.worker import Worker
from eggshard.errors import ProgramError

TARGETS = ("sm90", "gfx942")
#: Seconds for one file's list, or for one kernel's compilations; and how many kernels of one file are compiled.
_PATIENCE, _MOST = 120.0, 4
#: What is to be none.
FAILURES = ("fails", "wrong", "worse")
#: The part by which estimated cycles may be more.
LONGER = 0.02


@dataclass
class Judged:
    """One kernel for one target.

    outcome: ``equal`` (Triton's own kernel goes on), ``improved``, ``refused`` for its code or what else went wrong,
    ``fails`` (with us alone), ``wrong`` by the interpreter, or ``worse`` by its assembled code. converts: whether
    Triton's result still converts layouts. judged: the interpreter's verdict. seconds: processor time of Triton's
    compilation. ratio: processor time of ours over that. warm: wall-clock time of ours over Triton's where Triton's
    cache has the result. given, cost: modelled cycles of Triton's kernel and of ours. cycles: those of ours over
    Triton's, estimated from the assembled code, where ours is taken.
    """

    name: str
    target: str
    outcome: str
    why: str = ""
    converts: bool = False
    judged: str = ""
    ratio: float = 0.0
    warm: float = 0.0
    cycles: float | None = None
    seconds: float = 0.0
    given: float | None = None
    cost: float | None = None


def run(
    console: Console, seed: int = 0, only: str = "", packages: Path | None = None, most: int = 300
) -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether nothing failed; a record per kernel and target.

    packages: the folder. most: how many pairs of kernels and targets; the seed draws the files that they are of.
    """
    if packages is None or not packages.is_dir():
        raise ProgramError("bench kernels needs a folder of unpacked packages: --packages PATH")
    found: list[Judged] = []
    with Worker("bench.kernels.compiling", _PATIENCE) as worker:
        for file in sources(packages, seed):
            if only not in str(file):
                continue
            listed = worker.ask({"root": str(packages), "file": str(file)})
            for name in listed.get("kernels", ())[:_MOST]:
                for target in TARGETS:
                    request = {"root": str(packages), "file": str(file), "kernel": name, "target": target}
                    if worker.ask({**request, "guess": True}) != {"good": True}:
                        break
                    answer = worker.ask(request)
                    if "error" in answer:
                        answer = {"outcome": "fails", "why": answer["error"]}
                    found.append(Judged(f"{file.relative_to(packages)}:{name}", target, **answer))
                    if (found[-1].cycles or 0.0) > 1 + LONGER:
                        found[-1].outcome = "worse"
                    print(f"{found[-1].name} {target}: {found[-1].outcome} {found[-1].why[:120]}", file=sys.stderr)
            if len(found) >= most:
                break
    console.print(table(found))
    failed = [one for one in found if one.outcome in FAILURES]
    for one in failed:
        console.print(f"{one.name} {one.target}: {one.outcome}: {one.why[:300]}", markup=False)
    return bool(found) and not failed, [asdict(one) for one in found]


def table(found: Sequence[Judged]) -> Table:
    """How many pairs have which outcome, of those that still convert layouts after Triton and of others."""
    out = Table("", "all", "that convert", title=f"{len(found)} pairs of kernels of others and targets", pad_edge=False)
    counts = [Counter(one.outcome for one in some) for some in (found, [one for one in found if one.converts])]
    for outcome in ("equal", "improved", "refused", *FAILURES):
        out.add_row(outcome, *(str(count[outcome]) for count in counts))
    out.add_row("", *(str(count.total()) for count in counts))
    judged = Counter(one.judged for one in found if one.judged)
    if found:
        ratios, warm = sorted(one.ratio for one in found if one.ratio), [one.warm for one in found if one.warm]
        converting = [one.ratio for one in found if one.ratio and one.converts]
        cycles = sorted(one.cycles for one in found if one.cycles)
        out.caption = (
            f"compilation with us, over Triton's, processor time: {statistics.median(ratios):.2f} in the median "
            f"({statistics.median(converting or [0.0]):.2f} of those that convert), {ratios[-1]:.2f} at worst; with a "
            f"warm cache {statistics.median(warm):.2f}; estimated cycles of the improved: "
            f"{statistics.geometric_mean(cycles or [1.0]):.2f} on average, {max(cycles, default=1.0):.2f} at worst; "
            f"run by the interpreter: {judged['equal']} equal, {judged.total() - judged['equal']} not run")
    return out
