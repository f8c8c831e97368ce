"""Seconds of planning over XLA's first compilation of the same program: first plan of a process, later ones, kept ones.

Every program goes through three processes: one lowers and compiles it, one reads its text and plans it before anything
else, imports of eggshard included (JAX's are not: users have it), and one plans it after another program, keeps the
plan on disk, and reads it again.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.programs.parts import KINDS
from bench.worker import in_own_process

_TIMEOUT = 600.0
#: Runs of what is warm or kept, of which the least counts.
_RUNS = 3
#: What is asked, of seconds over XLA's: in the median, and at worst.
ASKED = {"cold": (0.6, None), "warm": (0.3, 1.5), "kept": (0.05, None)}
#: Training steps of `bench.layers` beside the programs of `bench run` and those by libraries.
_LAYERS = ("light 2", "light 24", "heavy 2", "scanned 12", "experts 6",
           *(f"{kind} {count}" for kind, (_, count) in KINDS.items()))


def run(console: Console, only: str = "", seed: int = 0, variants: int = 4) -> bool:
    """Print a row per program; true if all was planned, and as fast as is asked in the median and at worst."""
    with _bytecode():
        return _table(console, only, seed, variants)


@contextmanager
def _bytecode() -> Iterator[None]:
    """Let processes find bytecode, as those of installed packages do: of a checkout Python may not write any."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        try:
            _measured("product, 2-D")  # which compiles all that planning imports
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _table(console: Console, only: str, seed: int, variants: int) -> bool:
    from bench.programs import libraries, seconds

    table = Table(title="planning", pad_edge=False, caption=(
        "cold: the first plan of a process, imports of eggshard included; warm: a later one; kept: read from the plan "
        "cache, and the program's own reading alone; each over XLA's first compilation, this run"))
    for column in ("program", "ops", "XLA s", "cold", "warm", "kept", "reading", ""):
        table.add_column(column, justify="left" if column in ("program", "") else "right")
    names = [*(n for found in seconds.names().values() for n in found), *_LAYERS, *libraries.names(),
             *seconds.variants(seed, variants)]
    ratios: dict[str, list[float]] = {kind: [] for kind in ASKED}
    good = True
    for name in names:
        if only not in name:
            continue
        found = _measured(name)
        if "error" in found:
            good = False
            table.add_row(escape(name), *["-"] * 6, escape(found["error"]))
            continue
        parts = {kind: found[kind] / found["xla"] for kind in (*ASKED, "reading")}
        for kind, all_ in ratios.items():
            all_.append(parts[kind])
        table.add_row(escape(name), str(found["ops"]), f"{found['xla']:.2f}",
                      *(f"{part:.2f}" if part >= 0.1 else f"{part:.3f}" for part in parts.values()),
                      escape(found["fallback"]))
        print(f"{name}: {', '.join(f'{kind} {part:.3f}' for kind, part in parts.items())}", file=sys.stderr, flush=True)
    console.print(table)
    for kind, all_ in ratios.items():
        if all_:
            median, worst = statistics.median(all_), max(all_)
            console.print(f"{kind}: {len(all_)} programs, over XLA's: median {median:.3f}, worst {worst:.2f}")
            most, at_worst = ASKED[kind]
            good &= median <= most and (at_worst is None or worst <= at_worst)
    return good


def _measured(name: str) -> dict[str, Any]:
    """The figures of all three processes, or the first error."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for what in ("compile", "cold", "warm"):
            found |= in_own_process("bench.planning", what, name, folder, timeout=_TIMEOUT)
            if "error" in found:
                break
    return found


def _lowered(name: str) -> Any:
    from bench import layers
    from bench.programs import libraries, seconds, use_cpu_devices

    use_cpu_devices()
    if name in libraries.names():
        return libraries.lowered(name)
    kind, _, count = name.rpartition(" ")
    return (layers.program(kind, int(count)) if name in _LAYERS else seconds.program(name)).lower()


def compiled(name: str, folder: str) -> dict[str, Any]:
    """XLA's first compilation in this process; the program's text is left in the folder."""
    lowered = _lowered(name)
    Path(folder, "program.mlir").write_text(lowered.as_text(), "utf-8")
    return {"xla": _seconds(lowered.compile)}


def cold(_: str, folder: str) -> dict[str, Any]:
    """The first plan of this process, from text, imports included."""
    import jax

    jax.config.update("jax_platforms", "cpu")

    def plan() -> None:
        import eggshard

        eggshard.optimize(Path(folder, "program.mlir"))

    return {"cold": _seconds(plan)}


def warm(name: str, folder: str) -> dict[str, Any]:
    """Later plans of this process, and kept ones."""
    import eggshard
    from bench.programs import seconds
    from eggshard.frontends import load

    eggshard.optimize(_lowered(seconds.names()["field"][0]))
    lowered = _lowered(name)
    made = min(_seconds(lambda: eggshard.optimize(lowered)) for _ in range(_RUNS - 1))
    with eggshard.config(plan_cache=Path(folder, "plans")):
        plan = eggshard.optimize(lowered)
        kept = min(_seconds(lambda: eggshard.optimize(lowered)) for _ in range(_RUNS))
    reading = min(_seconds(lambda: load(lowered)) for _ in range(_RUNS))
    return {"warm": made, "kept": kept, "reading": reading, "ops": len(plan.program.region.ops),
            "fallback": plan.search.fallback}


def _seconds(call: Callable[[], Any]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps({"compile": compiled, "cold": cold, "warm": warm}[sys.argv[1]](*sys.argv[2:])))
