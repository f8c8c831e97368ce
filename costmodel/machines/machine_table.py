"""A machine as a table for people: levels, compute, protocols. What it is exactly, its file says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from eggshard.tables import duration, render

if TYPE_CHECKING:
    from eggshard.costmodel.machines.machine import Level, Machine


def table_of(machine: Machine) -> str:
    """The machine's levels in a table, the inner first, and below it a line on compute and one on protocols."""
    levels = Table(box=None, padding=(0, 2), show_edge=False)
    for name, side in (("level", "left"), ("units", "right"), ("fabric", "left"), ("bandwidth", "right"),
                       ("latency", "right"), ("algorithms", "left")):
        levels.add_column(name, justify=side, no_wrap=name != "algorithms")  # type: ignore[arg-type]
    for level in machine.levels:
        levels.add_row(*_row(level))
    rates = dict(machine.compute.flops)
    peak = rate(rates.pop("default"), "flop/s")
    others = ", ".join(f"{dtype} {rate(r, 'flop/s')}" for dtype, r in rates.items())
    lines = [f"compute: {peak}{f' ({others})' if others else ''}; memory {rate(machine.compute.memory, 'B/s')}"]
    if machine.compute.ops:
        lines.append(f"figures of their own: {', '.join(machine.compute.ops)}")
    lines.append(f"protocols: {', '.join(protocol.name for protocol in machine.protocols)}")
    if machine.overlap:
        lines.append(f"{machine.overlap:.0%} of communication can run beside compute")
    title = f"{machine.name}{f' ({machine.origin})' if machine.origin else ''}"
    return "\n".join((title, render(levels), *lines))


def rate(per_second: float, unit: str) -> str:
    """A rate in a readable multiple of a unit, such as 450 GB/s."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= 0.9995 * scale:
            return f"{per_second / scale:.3g} {prefix}{unit}"
    return f"{per_second:.3g} {unit}"


def _row(level: Level) -> tuple[str, ...]:
    fabric = level.fabric
    return (level.name, str(level.units or "any"), fabric.kind + (", shared" if level.shared else ""),
            rate(fabric.bandwidth, "B/s"), duration(fabric.latency), ", ".join(level.algorithms) or "all")
