"""Every rank-2 reshard of two small meshes: our routes against the best sequence of whole-axis collectives.

The best sequence is found by an independent search (`bench.lower_bound`), and every route runs on the simulator.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.lower_bound import State, best_sequence_bytes, shardings
from eggshard.costmodel import WireBytes
from eggshard.costmodel.pricing import Pricer
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, missing_elements, place
from eggshard.program.types import TensorType
from eggshard.reshard.routes import Router
from eggshard.simulate.simulator import gather_from_devices, run as simulate, scatter_to_devices
from eggshard.steps.assemble import Assembler

CASES = (({"x": 2, "y": 2, "z": 2}, 16), ({"x": 2, "y": 3, "z": 2}, 72))


@dataclass
class Tally:
    """Totals over all pairs of one mesh; bytes are serial, per device."""

    pairs: int = 0
    worse: int = 0
    better: int = 0
    at_bound: int = 0
    wrong: int = 0
    ours: float = 0.0
    best: float = 0.0
    bound: float = 0.0
    seconds: float = 0.0


def sweep(axes: dict[str, int], n: int) -> Tally:
    """All ordered pairs of different shardings of an n x n f32 tensor."""
    mesh, type_ = Mesh(axes), TensorType((n, n), "f32")
    router = Router(mesh, Pricer(WireBytes(), mesh))
    values = np.arange(n * n, dtype=np.float32).reshape(n, n)
    states = list(shardings(axes, (n, n)))
    tally = Tally()
    for source in states:
        best = best_sequence_bytes(axes, (n, n), source)
        start = placed(mesh, n, source)
        shards = scatter_to_devices(mesh, values, start)
        for target in states:
            if target == source:
                continue
            goal = placed(mesh, n, target)
            began = time.perf_counter()
            route = router.route(type_, start, goal)
            tally.seconds += time.perf_counter() - began
            assembler = Assembler(mesh, router)
            value = assembler.input(start.local_type(type_))
            for action, _ in route.steps:
                (value,) = assembler.emit(action, (value,))
            program = assembler.build([value])
            ours = program.serial_bytes
            bound = float(missing_elements(mesh, (n, n), start, goal).max()) * 4
            result = gather_from_devices(mesh, simulate(program, [shards])[0], (n, n), goal)
            tally.pairs += 1
            tally.wrong += not np.array_equal(result, values)
            tally.worse += ours > best[target] + 0.5
            tally.better += ours < best[target] - 0.5
            tally.at_bound += math.isclose(ours, bound, abs_tol=0.5)
            tally.ours, tally.best, tally.bound = tally.ours + ours, tally.best + best[target], tally.bound + bound
    return tally


def placed(mesh: Mesh, n: int, state: State) -> Placement:
    """A state of the search as a placement."""
    return place(mesh, (n, n), tuple(tuple(d) for d in state))


def run(console: Console) -> bool:
    """Print the sweep; true if no route is worse than the best sequence or wrong."""
    table = Table(title="every rank-2 reshard, serial bytes per device (f32)")
    for name in (
        "mesh",
        "shape",
        "pairs",
        "ours > best sequence",
        "ours < best",
        "at the lower bound",
        "wrong",
        "sum ours",
        "sum best",
        "sum bound",
        "ms a route",
    ):
        table.add_column(name, justify="right")
    good = True
    for axes, n in CASES:
        t = sweep(axes, n)
        good &= not t.worse and not t.wrong
        table.add_row(
            "x".join(map(str, axes.values())),
            f"{n}x{n}",
            str(t.pairs),
            str(t.worse),
            str(t.better),
            str(t.at_bound),
            str(t.wrong),
            f"{t.ours:.0f}",
            f"{t.best:.0f}",
            f"{t.bound:.0f}",
            f"{1e3 * t.seconds / t.pairs:.2f}",
        )
    console.print(table)
    return good
