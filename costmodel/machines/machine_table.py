"""A machine as a table for people: levels, compute, protocols. What it is exactly, its file says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from eggshard.costmodel.compute import Compute
from eggshard.costmodel.machines.topologies import Fabric
from eggshard.tables import duration, render


class Row(NamedTuple):
    """A level of a machine."""

    level: str
    units: int
    fabric: Fabric
    shared: bool
    algorithms: Sequence[str]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row's text."""
        kind = self.fabric.kind + (", shared" if self.shared else "")
        return (self.level, str(self.units or "any"), kind, rate(self.fabric.bandwidth, "B/s"),
                duration(self.fabric.latency), ", ".join(self.algorithms) or "all")


def table_of(title: str, rows: Sequence[Row], compute: Compute, protocols: Sequence[str], overlap: float) -> str:
    """The levels in a table, the inner first, and below it a line on compute and one on protocols."""
    levels = Table(box=None, padding=(0, 2), show_edge=False)
    for name, side in (("level", "left"), ("units", "right"), ("fabric", "left"), ("bandwidth", "right"),
                       ("latency", "right"), ("algorithms", "left")):
        levels.add_column(name, justify=side, no_wrap=name != "algorithms")  # type: ignore[arg-type]
    for row in rows:
        levels.add_row(*row.cells)
    rates = dict(compute.flops)
    peak = rate(rates.pop("default"), "flop/s")
    others = ", ".join(f"{dtype} {rate(r, 'flop/s')}" for dtype, r in rates.items())
    lines = [f"compute: {peak}{f' ({others})' if others else ''}; memory {rate(compute.memory, 'B/s')}"]
    if compute.ops:
        lines.append(f"figures of their own: {', '.join(compute.ops)}")
    lines.append(f"protocols: {', '.join(protocols)}")
    if overlap:
        lines.append(f"{overlap:.0%} of communication can run beside compute")
    return "\n".join((title, render(levels), *lines))


def rate(per_second: float, unit: str) -> str:
    """A rate in a readable multiple of a unit, such as 450 GB/s."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= 0.9995 * scale:
            return f"{per_second / scale:.3g} {prefix}{unit}"
    return f"{per_second:.3g} {unit}"
