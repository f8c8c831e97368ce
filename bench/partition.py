"""Programs of users, partitioned by `eggshard.partition` and planned by `eggshard.optimize`, beside XLA's own.

Bytes and floating-point operations are of the compiled programs, seconds of these on this machine's virtual devices,
all by turns on the same arguments. The right result is that of the unsharded program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard
from bench import peers
from bench.peers import kib, short
from bench.programs import BenchProgram
from bench.programs.users import PROGRAMS
from bench.run import interleaved
from eggshard.costmodel import CostModel
from eggshard.hlo.collectives import count_collectives

#: What may be computed more than by XLA.
FLOPS = 1.05
WAYS = ("shardy", "global", "optimize")
#: Seconds for which the programs of one row run by turns.
SPENT = 3.0


@dataclass
class Way:
    """What a way makes of a program: bytes of the busiest device, flops, collectives, the compiled program on its
    arguments; or why it is nothing."""

    wire: float | None = None
    flops: float | None = None
    collectives: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    call: Callable[[], Any] | None = None


def run(console: Console, only: str = "", model: str = "") -> bool:
    """Print a row per program; whether `global` and `optimize` are nowhere above XLA, and all results are right."""
    table = Table(
        title="wire KiB per device and flops (of XLA's), counted from compiled HLO, and seconds (of XLA's)",
        caption=f"shardy, global: modes of eggshard.partition. What sends more than XLA, or computes {FLOPS} times as "
        "much, has failed; mode=shardy is shown beside",
        pad_edge=False,
    )
    figures = [column for way in WAYS for column in (way, "flops", "time")]
    for name in ("program", "XLA", *figures, "collectives of XLA", "of global", ""):
        table.add_column(name, justify="right" if name in ("XLA", *figures) else "left")
    good = True
    for program in PROGRAMS:
        if only in program.name:
            cells, failures = _row(program, eggshard.costmodel.named(model) if model else None)
            table.add_row(*cells, escape("; ".join(failures)))
            good &= not failures
    console.print(table)
    return good


def _row(program: BenchProgram, model: CostModel | None) -> tuple[list[str], list[str]]:
    theirs = peers.xla(program)
    lowered = program.lower()
    compiled = lowered.compile()
    arrays = program.inputs(0)
    wanted = jax.tree.leaves(jax.jit(program.function)(*arrays))
    ways = {way: _way(way, lowered, model, arrays, wanted) for way in WAYS}
    failures = [f"{way}: {found.failure}" for way, found in ways.items() if found.failure]
    cells = [program.name, kib(theirs.wire_bytes)]
    given = _placed(compiled, arrays)
    calls = {"XLA": lambda: compiled(*given), **{way: found.call for way, found in ways.items() if found.call}}
    seconds = dict(zip(calls, map(min, interleaved([*calls.values()], SPENT)), strict=True))
    for way, found in ways.items():
        ratio = found.flops / theirs.flops if found.flops and theirs.flops else None
        slower = f"{seconds[way] / seconds['XLA']:.2f}" if way in seconds else "-"
        cells += [kib(found.wire), "-" if ratio is None else f"{ratio:.2f}", slower]
        if way != "shardy" and found.wire is not None and theirs.wire_bytes is not None:
            failures += [f"{way}: more bytes than XLA"] if found.wire > theirs.wire_bytes + 0.5 else []
            failures += [f"{way}: more flops than XLA"] if ratio is not None and ratio > FLOPS else []
    counted = theirs.count.by_kind if theirs.count is not None else {}
    return [*cells, short(counted), short(ways["global"].collectives)], failures


def _way(way: str, lowered: Any, model: CostModel | None, arrays: Any, wanted: Any) -> Way:
    try:
        if way == "optimize":
            function = eggshard.optimize(lowered, cost_model=model).to_jax()
        else:
            chosen = {"cost_model": model} if way == "global" else {}
            function = eggshard.partition(lowered, mode=way, **chosen).to_jax()
        given = _placed(lowered.compile(), arrays)
        compiled = jax.jit(function).lower(*given).compile()
    except eggshard.EggshardError as error:
        return Way(failure=str(error))
    count = count_collectives(compiled.as_text())
    analysis = compiled.cost_analysis()
    made = jax.tree.leaves(compiled(*given))
    right = all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(made, wanted, strict=True))
    flops = (analysis[0] if isinstance(analysis, list) else analysis or {}).get("flops")
    failure = "" if right else "wrong results"
    return Way(count.wire_bytes, flops, count.by_kind, failure, lambda: compiled(*given))


def _placed(compiled: Any, arrays: Any) -> list[Any]:
    shardings = jax.tree.leaves(compiled.input_shardings[0])
    return [jax.device_put(array, sharding) for array, sharding in zip(arrays, shardings, strict=True)]
