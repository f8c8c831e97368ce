"""Programs of users, partitioned by `eggshard.partition` and planned by `eggshard.optimize`, beside XLA's own.

Bytes and floating-point operations are of the compiled programs, seconds of these on this machine's virtual devices,
all by turns on the same arguments. The right result is that of the unsharded program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from bench.run import interleaved, placed_inputs
from eggshard.costmodel import CostModel
from eggshard.hlo.collectives import count_collectives

#: What may be computed more than by XLA.
FLOPS = 1.05
XLA = "XLA"
WAYS = ("shardy", "global", "optimize")
#: Seconds for which the programs of one row run by turns.
SPENT = 3.0


@dataclass
class Way:
    """What a way makes of a program: bytes of the busiest device, flops, collectives, the compiled program on its
    arguments; why it is nothing or wrong; and why a plan is the baseline's."""

    wire: float | None = None
    flops: float | None = None
    collectives: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    fallback: str = ""
    call: Callable[[], Any] | None = None


@dataclass
class Measured:
    """A program as XLA compiles it and by other ways; seconds are of ways that run."""

    theirs: peers.PeerResult
    ways: dict[str, Way]
    seconds: dict[str, float]

    def slower(self, way: str) -> float | None:
        """A way's seconds over XLA's."""
        known = way in self.seconds and XLA in self.seconds
        return self.seconds[way] / self.seconds[XLA] if known else None

    def more_bytes(self, way: str) -> bool:
        """Whether a way sends more than XLA."""
        return self._excess(way) > 0.5

    def fewer_bytes(self, way: str) -> bool:
        """Whether a way sends less than XLA."""
        return self._excess(way) < -0.5

    def _excess(self, way: str) -> float:
        sent, theirs = self.ways[way].wire, self.theirs.wire_bytes
        return sent - theirs if sent is not None and theirs is not None else 0.0


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


def measured(program: BenchProgram, ways: Sequence[str], model: CostModel | None = None, seed: int = 0) -> Measured:
    """Compile a program by XLA and by ``ways``, and run all by turns on inputs drawn by the seed."""
    theirs = peers.xla(program)
    lowered = program.lower()
    wanted = jax.tree.leaves(jax.jit(program.function)(*program.inputs(seed)))
    given = placed_inputs(program, seed)
    found = {way: _way(way, lowered, model, given, wanted) for way in (XLA, *ways)}
    calls = {way: made.call for way, made in found.items() if made.call}
    seconds = dict(zip(calls, map(min, interleaved([*calls.values()], SPENT)), strict=True))
    return Measured(theirs, found, seconds)


def _row(program: BenchProgram, model: CostModel | None) -> tuple[list[str], list[str]]:
    found = measured(program, WAYS, model)
    failures = [f"{way}: {found.ways[way].failure}" for way in WAYS if found.ways[way].failure]
    cells = [program.name, kib(found.theirs.wire_bytes)]
    for way in WAYS:
        made, slower = found.ways[way], found.slower(way)
        ratio = made.flops / found.theirs.flops if made.flops and found.theirs.flops else None
        cells += [kib(made.wire), "-" if ratio is None else f"{ratio:.2f}", "-" if slower is None else f"{slower:.2f}"]
        if way != "shardy":
            failures += [f"{way}: more bytes than XLA"] if found.more_bytes(way) else []
            failures += [f"{way}: more flops than XLA"] if ratio is not None and ratio > FLOPS else []
    counted = found.theirs.count.by_kind if found.theirs.count is not None else {}
    return [*cells, short(counted), short(found.ways["global"].collectives)], failures


def _way(way: str, lowered: Any, model: CostModel | None, given: Sequence[Any], wanted: Sequence[Any]) -> Way:
    fallback = ""
    try:
        if way == XLA:
            compiled = lowered.compile()
        else:
            if way == "optimize":
                plan = eggshard.optimize(lowered, cost_model=model)
                fallback = plan.search.fallback
            else:
                plan = eggshard.partition(lowered, mode=way, **({"cost_model": model} if way == "global" else {}))
            compiled = jax.jit(plan.to_jax()).lower(*given).compile()
        count = count_collectives(compiled.as_text())
    except (eggshard.EggshardError, jax.errors.JaxRuntimeError) as error:
        return Way(failure=str(error))
    analysis = compiled.cost_analysis()
    made = jax.tree.leaves(compiled(*given))
    right = all(np.allclose(a, b, 1e-3, 1e-3 * np.abs(b).max(initial=0)) for a, b in zip(made, wanted, strict=True))
    flops = (analysis[0] if isinstance(analysis, list) else analysis or {}).get("flops")
    failure = "" if right else "wrong results"
    return Way(count.wire_bytes, flops, count.by_kind, failure, fallback, lambda: compiled(*given))
