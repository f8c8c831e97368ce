"""``python -m bench fuzz --programs N --seed S``: drawn programs, planned and run, held against `jax.jit`.

Programs are lines of JAX source over most of what JAX lowers to StableHLO, on meshes of 1 to 5 axes with random
shardings. Inputs are whole numbers, so that most results are exact in any order and compared bit for bit. A failure is
shrunk and printed as a script.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.fuzz.worker import Checker

#: Every so many programs one is planned under other names and in another order, too.
WHOLE = 10
KINDS = ("wrong", "crash", "fallback", "bytes", "bound", "order")


def run(console: Console, *, seed: int = 0, programs: int = 200) -> bool:
    """Print a table of what was found; true if nothing was."""
    kinds: Counter[str] = Counter()
    templates: Counter[str] = Counter()
    began = time.perf_counter()
    counts = Counter[str]()
    with Checker() as checker:
        for i in range(programs):
            answer: dict[str, Any] = checker.ask({"seed": seed * 1_000_000 + i, "whole": i % WHOLE == 0})
            if "error" in answer:
                answer = {"problems": [f"crash: the process ended: {answer['error']}"], "script": ""}
            counts["refused by JAX"] += bool(answer.get("refused"))
            counts["lines"] += int(answer.get("lines", 0))
            for name in answer.get("calls", ()):
                templates[name] += 1
            kinds.update({p.split(":")[0] for p in answer["problems"]})
            if answer["problems"]:
                console.print(f"program {seed * 1_000_000 + i}: {'; '.join(answer['problems'])}", markup=False)
                console.print(answer["script"], markup=False, highlight=False)
    table = Table(
        title=f"{programs} programs from seed {seed}: {counts['lines']} lines, {len(templates)} functions of JAX"
    )
    for name in ("refused by JAX", *KINDS, "seconds a program"):
        table.add_column(name, justify="right")
    table.add_row(
        str(counts["refused by JAX"]), *(str(kinds[k]) for k in KINDS),
        f"{(time.perf_counter() - began) / max(1, programs):.2f}",
    )  # fmt: skip
    console.print(table)
    return not kinds
