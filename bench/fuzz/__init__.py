"""``python -m bench fuzz --programs N --seed S``: drawn programs, planned and run, held against `jax.jit`.

Programs are lines of JAX source over most of what JAX lowers to StableHLO, on meshes of 1 to 5 axes with random
shardings. Inputs are whole numbers, so that most results are exact in any order and compared bit for bit. A failure is
shrunk and printed as a script; ``--start`` goes on with a run from its program of that number.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.fuzz.worker import Checker

#: Every so many programs one is planned under other names and in another order, too.
WHOLE = 10
#: A process checks so many programs; then its caches of compiled programs are worth another start.
RENEWED = 200
#: Programs between two lines on how far a run is.
PROGRESS = 100
#: Programs of a seed are numbered from this many times the seed.
OF_A_SEED = 1_000_000
KINDS = ("wrong", "crash", "fallback", "bytes", "bound", "order")
#: What is counted of JAX itself, and is no failure: by kind, its name in the table. Refused ones have no kind.
JAX = {"refused": "refused by JAX", "reference": "wrong by XLA", "simplified": "fewer bytes by XLA",
       "moved": "moved by propagation"}


def run(console: Console, *, seed: int = 0, programs: int = 200, start: int = 0, jobs: int = 1) -> bool:
    """Print a table of what was found; true if nothing was."""
    kinds: Counter[str] = Counter()
    templates: Counter[str] = Counter()
    began = time.perf_counter()
    counts = Counter[str]()
    for done, (number, answer) in enumerate(_answers(range(start, start + programs), seed, jobs), 1):
        counts["refused"] += bool(answer.get("refused"))
        counts["lines"] += int(answer.get("lines", 0))
        templates.update(answer.get("calls", ()))
        found = {p.split(":")[0] for p in answer["problems"]}
        kinds.update(found.difference(JAX))
        counts.update(found.intersection(JAX))
        if answer["problems"]:
            console.print(f"program {number}: {'; '.join(answer['problems'])}", markup=False)
            console.print(answer["script"], markup=False, highlight=False)
        if done % PROGRESS == 0:
            figures = {k: kinds[k] for k in KINDS} | {name: counts[k] for k, name in JAX.items()}
            shown = ", ".join(f"{count} {name}" for name, count in figures.items())
            each = (time.perf_counter() - began) / done
            console.print(f"{done} of {programs}, from {start} of seed {seed}: {shown}; {each:.2f} s a program",
                          markup=False, highlight=False)  # fmt: skip
    table = Table(
        title=f"{programs} programs from {start} of seed {seed}: {counts['lines']} lines, "
        f"{len(templates)} functions of JAX"
    )
    for name in (*JAX.values(), *KINDS, "seconds a program"):
        table.add_column(name, justify="right")
    table.add_row(
        *(str(counts[k]) for k in JAX), *(str(kinds[k]) for k in KINDS),
        f"{(time.perf_counter() - began) / max(1, programs):.2f}",
    )  # fmt: skip
    console.print(table)
    return not kinds


def _answers(numbers: range, seed: int, jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What is found of every program, in order, by ``jobs`` processes at a time."""
    own = threading.local()
    checkers: list[Checker] = []

    def checked(i: int) -> dict[str, Any]:
        if not hasattr(own, "checker"):
            own.checker, own.asked = Checker(), 0
            checkers.append(own.checker)
        own.asked += 1
        if own.asked % RENEWED == 0:
            own.checker.close()
        return _checked(own.checker, {"seed": seed * OF_A_SEED + i, "whole": i % WHOLE == 0})

    pool = ThreadPoolExecutor(jobs)
    try:
        for i, answer in zip(numbers, pool.map(checked, numbers), strict=True):
            yield seed * OF_A_SEED + i, answer
    finally:
        pool.shutdown(cancel_futures=True)
        for checker in checkers:
            checker.close()


def _checked(checker: Checker, request: dict[str, Any]) -> dict[str, Any]:
    """A program's problems, with a script of it if there are any.

    The end of its process is one, unless JAX alone ends it.
    """
    answer: dict[str, Any] = checker.ask(request)
    if "error" in answer:
        alone = checker.ask({**request, "reference": True})
        if "error" in alone or alone["refused"]:
            return {"problems": [], "refused": True}
        answer = {"problems": [f"crash: the process ended: {answer['error']}"]}
    elif answer["problems"]:
        answer |= checker.ask({**request, "script": "shrunk"})
    if answer["problems"] and "script" not in answer:
        answer |= {"script": "", **checker.ask({**request, "script": "drawn"})}
    return answer
