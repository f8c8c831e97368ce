"""Shardings that `eggshard.auto` chooses, against those that users write by hand and against every other choice.

All plans are made by `eggshard.optimize` under one cost model; what is compared is their cost. Where a program is
small, all ways to state its arguments are tried, evenly and by whole axes in mesh order, or as many of them, drawn by
the seed, as are asked for. Costs are kept in a file, if one is given, and not computed again.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax.sharding import PartitionSpec as P
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard as es
from bench.cluster import choices
from bench.programs.choices import programs
from bench.programs.choices.definition import Open, make_mesh
from eggshard.engines.jax.specs import partition_spec
from eggshard.planner.optimization import SOUND
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.spmd.boundaries import even_placements

#: What a choice may cost more than the best that is known: by hand, and of all.
MORE = 0.01
#: Of a plan whose cost alone is asked for: work ends searches, and not the clock, which other work here may delay.
_LIMITS = es.Limits(seconds=3000.0, proof=0.0)
#: The name here of the model that users get without asking for one.
DEFAULT = "default"


@dataclass
class Chosen:
    """Figures of one program: costs in seconds of the cost model, and seconds of planning.

    hand: by the name of the way. best: the least of those that were tried, and how many of how many.
    """

    name: str
    cost: float = 0.0
    bound: float | None = None
    hand: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    tried: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    stated: float = 0.0
    fallback: str = ""

    @property
    def failures(self) -> list[str]:
        """What is wrong with the choice."""
        found = [f"fell back: {self.fallback}"] if self.fallback else []
        least = min(self.hand.values())
        found += [f"{self.cost / least:.3f} of the best by hand"] if self.cost > (1 + MORE) * least else []
        if self.best is not None and self.cost > (1 + MORE) * self.best:
            found.append(f"{self.cost / self.best:.3f} of the best of all")
        known = min(least, self.best or least)
        found += ["another choice is below the bound"] if self.bound and known < self.bound * (1 - 1e-6) else []
        return found


class Records:
    """What was computed, by what it is of: kept in a file, a JSON line for each, where there is one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file and file.exists() else []
        self._known: dict[str, Any] = dict(map(json.loads, lines))

    def of(self, what: str, compute: Callable[[], Any]) -> Any:
        """What is known, or is computed."""
        if what not in self._known:
            self._known[what] = compute()
            if self._file:
                with self._file.open("a") as file:
                    file.write(json.dumps((what, self._known[what])) + "\n")
        return self._known[what]


def run(
    console: Console, only: str = "", seed: int = 0, model: str = "", most: int = 100, resumed: Path | None = None,
    measured: bool = False, **where: Any,
) -> bool:  # fmt: skip
    """Print a table per model and a row per program; whether no choice is more than a hundredth above one by hand, or
    any other that was tried.

    only: parts of names, separated by commas. model: cost models separated by commas, ``default`` for that of the
    devices. most: of the ways to state a small program's arguments. resumed: a file of records, added to. measured:
    seconds instead (`bench.cluster.choices`), on so many hosts with so many devices, joined by links of a rate.
    """
    if measured:
        return choices.run(console, only, seed, model, **where)
    records, good = Records(resumed), True
    for name in filter(None, (model or DEFAULT).split(",")):
        good &= _run(console, only, seed, name, most, records)
    return good


def _run(console: Console, only: str, seed: int, model: str, most: int, records: Records) -> bool:
    title = f"shardings chosen: cost under {model}, of the best known"
    table = Table(title=title, pad_edge=False, caption="time: of auto, over that of optimize where all is stated")
    names = ("program", "cost", "bound", "best by hand", "", "best of all", "tried", "time", " ")
    for name in names:
        table.add_column(name, justify="left" if name in ("program", "", " ") else "right")
    rows = []
    for program in programs(seed):
        if not any(part in program.name for part in only.split(",")):
            continue
        row = chosen(program, model, most, seed, records)
        rows.append(row)
        way = min(row.hand, key=row.hand.__getitem__)
        table.add_row(*map(escape, (
            row.name, f"{1e3 * row.cost:.4g}", _of(row.bound, row.cost), _of(row.hand[way], row.cost), way,
            _of(row.best, row.cost), "-" if row.best is None else f"{row.tried[0]} of {row.tried[1]}",
            f"{row.seconds / row.stated:.1f}", "; ".join(row.failures))))
        print(f"{model}, {row.name}: {1e3 * row.cost:.4g} ms, by hand {1e3 * row.hand[way]:.4g} ({way}), "
              f"{row.seconds:.1f} s: {'; '.join(row.failures) or 'good'}", file=sys.stderr, flush=True)
    console.print(table)
    for line in summary(rows):
        console.print(f"{model}: {line}", soft_wrap=True)
    return not any(row.failures for row in rows)


def summary(rows: Sequence[Chosen]) -> Iterator[str]:
    """What all rows come to."""
    ratios = [row.cost / min(row.hand.values()) for row in rows]
    if ratios:
        better = sum(ratio < 0.9 for ratio in ratios)
        mean = statistics.geometric_mean(ratios)
        yield (f"{len(rows)} programs: cost over the best by hand: geometric mean {mean:.3f}, {better} better by a "
               f"tenth, at worst {max(ratios):.3f}")
    gaps = [1 - row.bound / row.cost for row in rows if row.bound]
    if gaps:
        yield f"gap to the bound of {len(gaps)}: {100 * statistics.median(gaps):.1f} % in the median"


def chosen(program: Open, model: str, most: int, seed: int, records: Records) -> Chosen:
    """The choice for a program, beside what is stated by hand and, if it is small, beside all that may be."""
    mesh, asked = make_mesh(), None if model == DEFAULT else model
    name = f"{model}: {program.name}{[a.shape for a in program.arguments]}"

    def choice() -> dict[str, Any]:
        began = time.perf_counter()
        # Every result lies where it is cheapest, but for those that are fed back.
        found = es.auto(
            program.function, *program.arguments, mesh=mesh, carry=program.carry, cost_model=asked, limits=_LIMITS
        )
        fallback = found.plan.search.fallback
        return {"cost": found.plan.cost.total, "bound": found.bound, "seconds": time.perf_counter() - began,
                "fallback": "" if fallback in SOUND else fallback}  # fmt: skip

    def plan(specs: Sequence[P]) -> tuple[float, float]:
        began = time.perf_counter()
        cost = es.optimize(stated(program, specs, mesh), cost_model=asked, limits=_LIMITS).cost.total
        return cost, time.perf_counter() - began

    def cost(specs: Sequence[P]) -> tuple[float, float]:
        """The cost of a stated plan, and the seconds that it took."""
        found, took = records.of(f"{name} {list(specs)}", lambda: plan(specs))
        return found, took

    row = Chosen(program.name, **records.of(f"{name} AUTO", choice))
    by_hand = {way: cost(specs) for way, specs in program.hand.items()}
    row.hand = {way: found for way, (found, _) in by_hand.items()}
    row.stated = statistics.mean(took for _, took in by_hand.values())
    if program.small and most:
        ways = list(itertools.product(*(_even(mesh, a) for a in program.arguments)))
        # With more asked for, those that were drawn before are among them.
        random.Random(f"{seed} {program.name}").shuffle(ways)
        row.best, row.tried = min(cost(way)[0] for way in ways[:most]), (min(most, len(ways)), len(ways))
    return row


def stated(program: Open, specs: Sequence[P], mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """A function lowered with its arguments where these specs say, and what is fed back, too."""
    ins, outs = program.shardings(specs, mesh)
    return jax.jit(program.function, in_shardings=ins, out_shardings=outs).lower(*program.arguments)


def _even(mesh: jax.sharding.Mesh, argument: jax.ShapeDtypeStruct) -> list[P]:
    whole, names = Mesh.of(mesh), tuple(mesh.axis_names)
    placements = even_placements(whole, TensorType(argument.shape, mlir_dtype(argument.dtype)))
    specs = (partition_spec(p, whole, names, len(argument.shape)) for p in placements)
    return [spec for spec in specs if spec is not None]


def _of(value: float | None, cost: float) -> str:
    """A cost, as a multiple of the choice's."""
    return "-" if value is None else f"{value / cost:.3f}"
