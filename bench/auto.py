"""Shardings that `eggshard.auto` chooses, against those that users write by hand and against every other choice.

All plans are made by `eggshard.optimize` under one cost model; what is compared is their cost. Where a program is
small, all ways to state its arguments are tried, evenly and by whole axes in mesh order, or as many of them, drawn by
the seed, as are asked for.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard as es
from bench.programs.choices import Open, programs
from eggshard.engines.jax.specs import partition_spec
from eggshard.planner.optimization import SOUND
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.spmd.boundaries import even_placements

#: What a choice may cost more than the best that is known: by hand, and of all.
MORE = 0.01
#: Of a plan whose cost alone is asked for.
_LIMITS = es.Limits(proof=0.0)
_AXES = (("x", 4), ("y", 2))


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


def run(console: Console, only: str = "", seed: int = 0, model: str = "", most: int = 100) -> bool:
    """Print a row per program; whether no choice is more than a hundredth above one by hand, or any other that was
    tried. most: of the ways to state a small program's arguments."""
    title = f"shardings chosen: cost under {model or 'the default model'}, of the best known"
    table = Table(title=title, pad_edge=False, caption="time: of auto, over that of optimize where all is stated")
    names = ("program", "cost", "bound", "best by hand", "", "best of all", "tried", "time", " ")
    for name in names:
        table.add_column(name, justify="left" if name in ("program", "", " ") else "right")
    rows = []
    for program in programs(seed):
        if only not in program.name:
            continue
        row = measured(program, model or None, most, seed)
        rows.append(row)
        way = min(row.hand, key=row.hand.__getitem__)
        table.add_row(*map(escape, (
            row.name, f"{1e3 * row.cost:.4g}", _of(row.bound, row.cost), _of(row.hand[way], row.cost), way,
            _of(row.best, row.cost), "-" if row.best is None else f"{row.tried[0]} of {row.tried[1]}",
            f"{row.seconds / row.stated:.1f}", "; ".join(row.failures))))
        print(f"{row.name}: {'; '.join(row.failures) or 'good'}", file=sys.stderr, flush=True)
    console.print(table)
    for line in summary(rows):
        console.print(line)
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


def measured(program: Open, model: Any, most: int, seed: int) -> Chosen:
    """The choice for a program, beside what is stated by hand and, if it is small, beside all that may be."""
    mesh = _mesh()
    row = Chosen(program.name)
    began = time.perf_counter()
    # Every result lies where it is cheapest, but for those that are fed back.
    found = es.auto(program.function, *program.arguments, mesh=mesh, carry=program.carry, cost_model=model)
    row.seconds = time.perf_counter() - began
    row.cost, row.bound = found.plan.cost.total, found.bound
    fallback = found.plan.search.fallback
    row.fallback = "" if fallback in SOUND else fallback
    began = time.perf_counter()
    for way, specs in program.hand.items():
        row.hand[way] = _stated(program, specs, mesh, model)
    row.stated = (time.perf_counter() - began) / len(program.hand)
    if program.small and most:
        ways = list(itertools.product(*(_even(mesh, a) for a in program.arguments)))
        drawn = random.Random(f"{seed} {program.name}").sample(ways, min(most, len(ways)))
        row.best, row.tried = min(_stated(program, way, mesh, model) for way in drawn), (len(drawn), len(ways))
    return row


def _stated(program: Open, specs: Sequence[P], mesh: jax.sharding.Mesh, model: Any) -> float:
    ins = tuple(NamedSharding(mesh, spec) for spec in specs)
    shapes = jax.eval_shape(program.function, *program.arguments)
    outs: list[Any] = [None] * len(jax.tree.leaves(shapes))
    for i, o in program.carry.items():
        outs[o] = ins[i]
    tree = jax.tree.unflatten(jax.tree.structure(shapes), outs)
    lowered = jax.jit(program.function, in_shardings=ins, out_shardings=tree).lower(*program.arguments)
    return es.optimize(lowered, cost_model=model, limits=_LIMITS).cost.total


def _even(mesh: jax.sharding.Mesh, argument: jax.ShapeDtypeStruct) -> list[P]:
    whole, names = Mesh.of(mesh), tuple(mesh.axis_names)
    placements = even_placements(whole, TensorType(argument.shape, mlir_dtype(argument.dtype)))
    specs = (partition_spec(p, whole, names, len(argument.shape)) for p in placements)
    return [spec for spec in specs if spec is not None]


def _mesh() -> jax.sharding.Mesh:
    names, sizes = zip(*_AXES, strict=True)
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


def _of(value: float | None, cost: float) -> str:
    """A cost, as a multiple of the choice's."""
    return "-" if value is None else f"{value / cost:.3f}"
