"""Plans for machines that compute while they communicate: what hiding saves, and what choosing plans for it saves more.

Modelled times: XLA's own collectives have no timeline that could be priced. Per program the prices of the plan added
up, the schedule of that plan as it was assembled and as a list schedule orders it, the schedule of the plan that is
chosen by this time, and the bound on the time of every plan.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console
from rich.table import Table

import eggshard
from bench.programs import BenchProgram, use_cpu_devices
from eggshard.api import Plan
from eggshard.costmodel import AlphaBeta
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.schedule import scheduled
from eggshard.errors import EggshardWarning

#: Machines, with all of a collective's time hidden where something else is computed.
MACHINES = tuple(replace(model, overlap=1.0) for model in (AlphaBeta(), AlphaBeta.preset("tpu-v5p")))
#: Per family the programs' names.
PROGRAMS = {
    "dense": (
        "MLP 2-D weights, batch 1024", "attention, heads sharded, out x", "attention and MLP, out x",
        "MLP training, FSDP", "scan of 4 layers, FSDP", "transformer training, 2 layers",
    ),
    "training": (
        "GQA block, 2-D weights", "GQA block, FSDP", "GQA training, 1 layer, FSDP", "GQA training, 2 layers, 2-D",
        "mixture of experts", "MLP step, Adam, ZeRO-3", "scan of 6 GQA layers, Megatron",
    ),
    "stencil": (
        "2D 5-point roll (x,y)", "2D 5-point pad 0 x8 (x,y)", "2D 5-point pad 0 x100 fori (x,-)", "shallow water (x,y)",
        "10 fields, 2 levels",
    ),
}


def programs() -> Iterable[BenchProgram]:
    """Programs of several families."""
    for family, names in PROGRAMS.items():
        known = {p.name: p for p in importlib.import_module(f"bench.programs.{family}").PROGRAMS}
        yield from (known[name] for name in names)


def run(console: Console) -> bool:
    """Print one row per program and machine; true if every bound holds and no plan is slower than the additive one."""
    use_cpu_devices()
    table = Table(title="computing while communicating: modelled microseconds", pad_edge=False,
                  caption="sum: prices of the plan added up; its schedule: as assembled, and ordered; chosen: the plan "
                          "chosen by its schedule")
    for name in ("program", "machine", "sum", "as assembled", "ordered", "chosen", "hidden %", "bound", "search gap %",
                 ""):
        table.add_column(name, justify="left" if name in ("program", "machine", "") else "right")
    good, shorter = True, 0
    for program in programs():
        lowered = program.lower()
        for machine in MACHINES:
            price, added, chosen = _plans(lowered, machine)
            assembled = price.program(added.device_program)
            ordered = price.program(scheduled(added.device_program, price))
            failures = []
            if chosen.cost.total > ordered * (1 + 1e-9):
                failures.append("slower than the additive plan")
            whole = not (chosen.search.shared or chosen.search.capped)  # else it is of fewer plans
            if whole and chosen.search.bound > min(ordered, chosen.cost.total) * (1 + 1e-9):
                failures.append("bound above a plan")
            good &= not failures
            shorter += chosen.cost.total < ordered * (1 - 1e-3)
            share = chosen.cost.hidden / chosen.cost.communication if chosen.cost.communication else 0.0
            times = [f"{1e6 * t:.1f}" for t in (added.cost.total, assembled, ordered, chosen.cost.total)]
            table.add_row(program.name, machine.name, *times, f"{100 * share:.0f}", f"{1e6 * chosen.bound:.1f}",
                          f"{100 * chosen.search_gap:.1f}", "; ".join(failures))
    console.print(table)
    console.print(f"chosen for its schedule, another plan is faster on {shorter} of {table.row_count}")
    return good


def _plans(lowered: object, machine: AlphaBeta) -> tuple[Pricer, Plan, Plan]:
    """The machine's prices, the plan of least sum, and the plan of the fastest schedule."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        added, chosen = (eggshard.optimize(lowered, cost_model=replace(machine, overlap=f))
                         for f in (0.0, machine.overlap))
    return Pricer(machine, chosen.mesh), added, chosen
