"""Meshes that `eggshard.auto` chooses for devices that are not here, against those that users write.

Shardings are chosen on all of them, and costs are those of plans under one cost model.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard as es
from bench.programs.choices import programs
from bench.programs.choices.definition import Open
from eggshard.engines.jax.meshes import abstract_mesh
from eggshard.planner.choosing.meshes import shape

#: What the chosen mesh may cost more than one that users write.
MORE = 0.01


@dataclass
class Meshes:
    """Figures of one program: costs in seconds of the cost model. usual: by the mesh. seconds: of the search."""

    name: str
    chosen: str = ""
    cost: float = 0.0
    usual: dict[str, float] = field(default_factory=dict)
    searched: tuple[int, int] = (0, 0)
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """What is wrong with the choice."""
        least = min(self.usual.values())
        return [f"{self.cost / least:.3f} of the best usual one"] if self.cost > (1 + MORE) * least else []


def run(console: Console, only: str = "", seed: int = 0, model: str = "", devices: int = 64) -> bool:
    """Print a row per program; whether no mesh that is chosen is a hundredth dearer than a usual one."""
    model = model or "tpu-v5e"
    table = Table(title=f"meshes of {devices} devices chosen: cost under {model}, ms, and of others over it",
                  pad_edge=False, caption="searched: meshes, of all; seconds: of auto, for all of them and the plan")
    for name in ("program", "mesh", "cost", *map(shape, usual(devices)), "searched", "seconds", " "):
        table.add_column(name, justify="left" if name in ("program", "mesh", " ") else "right")
    good = True
    for program in programs(seed):
        if only in program.name:
            row = measured(program, model, devices)
            others = (f"{cost / row.cost:.3f}" for cost in row.usual.values())
            table.add_row(*map(escape, (
                row.name, row.chosen, f"{1e3 * row.cost:.4g}", *others, f"{row.searched[0]} of {row.searched[1]}",
                f"{row.seconds:.0f}", "; ".join(row.failures))))
            print(f"{row.name}: {'; '.join(row.failures) or 'good'}", file=sys.stderr, flush=True)
            good &= not row.failures
    console.print(table)
    return good


def usual(devices: int) -> list[es.Mesh]:
    """The meshes that users write: a line, squares or nearly, and with four devices along one axis."""
    side = max(d for d in range(1, math.isqrt(devices) + 1) if devices % d == 0)
    pairs = dict.fromkeys((d, devices // d) for d in (side, 4) if devices % d == 0)
    sizes = dict.fromkeys([(devices,), *pairs, *((b, a) for a, b in pairs)])
    return [es.Mesh(zip("xy", each, strict=False)) for each in sizes]


def measured(program: Open, model: Any, devices: int) -> Meshes:
    """The mesh that is chosen, beside usual ones."""
    def auto(**where: Any) -> Any:
        return es.auto(program.function, *program.arguments, carry=program.carry, cost_model=model, **where)

    began = time.perf_counter()
    found = auto(mesh=es.AUTO, devices=devices)
    row = Meshes(program.name, shape(found.plan.mesh), found.plan.cost.total, seconds=time.perf_counter() - began)
    row.searched = sum(tried.cost is not None for tried in found.meshes), len(found.meshes)
    row.usual = {shape(mesh): auto(mesh=abstract_mesh(mesh)).plan.cost.total for mesh in usual(devices)}
    return row
