"""What the field examples share: XLA's partitioner and eggshard on one jitted function, side by side, and a figure."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

import eggshard as es
from eggshard.hlo.collectives import CollectiveCount, count_collectives
from eggshard.report.tables import duration, render, what
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import StepPlan
from eggshard.steps.window_steps import WindowExchange

#: Both round in float32, after fusing differently: the largest difference allowed, by the largest value of the field.
TOLERANCE = 1e-5
#: Runs of each; the fastest counts.
RUNS = 3
#: More kinds of exchanges than this are counted in the figure, but not drawn.
DRAWN = 4
#: Dimensions of a field ``[y, x]``.
LINES = ("rows", "columns")


def arguments(example: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """The examples' command line; ``example``: the path of the script, next to which its figure goes."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="rows, and columns, of the grid")
    parser.add_argument("--steps", type=int, default=100, help="time steps")
    parser.add_argument("--plot", type=Path, default=Path(example).with_suffix(".png"), help="where the figure goes")
    parser.add_argument("--no-plot", action="store_true", help="draw no figure")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Compared:
    """One function, compiled by XLA's partitioner and planned by eggshard, and what both made of the same input."""

    plan: es.Plan
    theirs: CollectiveCount
    ours: CollectiveCount
    results: tuple[np.ndarray, ...]
    difference: float


def compare(simulate: Callable[..., Any], sharding: jax.sharding.NamedSharding, *fields: np.ndarray) -> Compared:
    """Plan, compile, run, print. All fields and results lie alike. SystemExit if the results do not agree."""
    arrays = jax.device_put(fields, sharding)
    lowered = jax.jit(simulate, in_shardings=sharding, out_shardings=sharding).lower(*arrays)
    began = time.perf_counter()
    partitioned = lowered.compile()
    compiled_after = time.perf_counter() - began
    began = time.perf_counter()
    plan = es.optimize(lowered)
    planned_after = time.perf_counter() - began
    planned = jax.jit(plan.to_jax()).lower(*arrays).compile()

    theirs, ours = (count_collectives(compiled.as_text()) for compiled in (partitioned, planned))
    wanted, found = ([np.asarray(a) for a in jax.tree.leaves(c(*arrays))] for c in (partitioned, planned))
    difference = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(wanted, found, strict=True))
    seconds = _fastest((partitioned, planned), arrays)

    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("per device", "wire KiB", "collectives", "time over XLA's"):
        table.add_column(name, justify="left" if name == "per device" else "right")
    for name, counted, taken in zip(("XLA's partitioner", "eggshard"), (theirs, ours), seconds, strict=True):
        table.add_row(name, f"{counted.wire_bytes / 1024:,.1f}", counted.summary, f"{taken / seconds[0]:.2f}")
    print(render(table), "\n")
    print(_schedule(plan), "\n")
    print("the times are of virtual devices that share one CPU, whose links cost nothing; "
          f"the cost model predicts {duration(plan.cost.total)} for {getattr(plan.cost_model, 'name', 'its machine')}")
    print(f"planned in {planned_after:.1f} s, compiled by XLA in {compiled_after:.1f} s")
    print(f"largest difference between the two results: {difference:.1e} of the largest value")
    if plan.search.fallback:
        print(f"the plan is the baseline: {plan.search.fallback}")
    if not difference <= TOLERANCE:
        raise SystemExit(f"the results differ by {difference:.1e} of the largest value, allowed are {TOLERANCE:.0e}")
    return Compared(plan, theirs, ours, tuple(found), difference)


def _fastest(functions: Sequence[Callable[..., Any]], arrays: Sequence[jax.Array]) -> list[float]:
    """Seconds of each. They take turns, so that whatever else the machine does troubles both."""
    seconds = [float("inf")] * len(functions)
    for _ in range(RUNS):
        for i, function in enumerate(functions):
            began = time.perf_counter()
            jax.block_until_ready(function(*arrays))
            seconds[i] = min(seconds[i], time.perf_counter() - began)
    return seconds


def exchanges(plan: es.Plan) -> Counter[WindowExchange]:
    """The plan's exchanges of halos, and how often it runs each."""
    counted: Counter[WindowExchange] = Counter()
    for action, times in _exchanges(plan.device_program):
        counted[action] += times
    return counted


def _exchanges(program: StepPlan) -> Iterator[tuple[WindowExchange, int]]:
    for step in program.steps:
        action = step.action
        if isinstance(action, WindowExchange):
            yield action, 1
        elif isinstance(action, StepPlan):
            yield from _exchanges(action)
        elif isinstance(action, Loop):
            yield from ((inner, times * action.trips) for inner, times in _exchanges(action.body))


def _schedule(plan: es.Plan) -> str:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("times", justify="right")
    table.add_column("permutes", justify="right")
    table.add_column("exchange (per device, dimension and value)", overflow="fold")
    for action, times in exchanges(plan).items():
        table.add_row(str(times), str(action.messages), what(action))
    return render(table) if table.rows else "the plan exchanges no halos"


def sent(plan: es.Plan, action: WindowExchange) -> np.ndarray:
    """``[devices, devices]``: how many rows or columns, of all values together, one sends to another per exchange."""
    mesh = plan.mesh
    others = [axis for axis in mesh.axes if axis not in action.axes]
    place = {pair: i for i, pair in enumerate(zip(mesh.index(others), mesh.index(action.axes), strict=True))}
    out = np.zeros((mesh.size, mesh.size), int)
    for load in (load for loads in action.travelling for load in loads):
        for sender, receiver in load[0][1].pairs:
            if sender != receiver:
                for group in range(mesh.count(others)):
                    out[place[group, sender], place[group, receiver]] += sum(slab.width for _, slab in load)
    return out


def draw(path: Path, title: str, field: np.ndarray, compared: Compared) -> None:
    """The field with its tiles, what each kind of exchange sends, and how much is sent in all.

    Without matplotlib prints how to get it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no figure without matplotlib: pip install 'eggshard[examples]'")
        return
    counted = exchanges(compared.plan)
    shown = counted.most_common(DRAWN)
    figure = Figure(figsize=(13, 8 if shown else 5), layout="constrained")
    above, *below = figure.subfigures(2, 1, height_ratios=(5, 4)) if shown else (figure,)
    left, middle, right = above.subplots(1, 3, width_ratios=(2, 1, 1))
    figure.suptitle(title)

    most = np.abs(field).max()
    colours, least = ("RdBu_r", -most) if field.min() < 0 else ("magma_r", 0)
    image = left.imshow(field, origin="lower", cmap=colours, vmin=least, vmax=most)
    above.colorbar(image, ax=left)
    for dim, line in ((0, left.axhline), (1, left.axvline)):
        count = compared.plan.mesh.count(compared.plan.output_placements[0].dims[dim].axes)
        for i in range(1, count):
            line(i * field.shape[dim] / count - 0.5, color="black", linewidth=0.6, linestyle=":")
    left.set_title("the field at the end; dotted: the devices' tiles")

    both = (compared.theirs, compared.ours)
    numbers = {"collectives": [sum(c.by_kind.values()) for c in both],
               "KiB received by a device": [c.wire_bytes / 1024 for c in both]}
    for axes, (name, values) in zip((middle, right), numbers.items(), strict=True):
        bars = axes.bar(("XLA", "eggshard"), values, color=("0.6", "tab:blue"))
        axes.bar_label(bars, [f"{v:,.0f}" for v in values])
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 4 * max(*values, 1))
        axes.set_title(name)

    for panel in below:
        rest = len(counted) - len(shown)
        panel.suptitle("what is sent per exchange" + (f" ({rest} more kinds are not shown)" if rest else ""))
        for axes, (action, times) in zip(panel.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            matrix = sent(compared.plan, action)
            axes.matshow(matrix, cmap="Blues", vmin=0, vmax=2 * matrix.max())
            for sender, receiver in np.argwhere(matrix):
                axes.text(receiver, sender, matrix[sender, receiver], ha="center", va="center")
            axes.set(xlabel="to device", ylabel="from device")
            axes.xaxis.tick_bottom()
            lines = "/".join(sorted({LINES[part.dim] for part in action.exchanges}, reverse=True))
            values = len(action.exchanges)
            axes.set_title(f"{times} x {lines} of {values} value{'s' * (values > 1)}")
    figure.savefig(path, dpi=120)
    print(f"figure: {path}")
