"""Two plans side by side: which steps they share, where tensors lie elsewhere, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from eggshard.report.tables import LONG, duration, over, render, size, what

if TYPE_CHECKING:
    from eggshard.plan.plan import Plan


class Side(NamedTuple):
    """A step of one plan: its number, what it does, the placements of its results, received bytes, seconds."""

    step: int
    what: str
    placements: str
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Difference:
    """Two plans aligned: each row has a step of the one, of the other, or of both (the same step).

    Steps are the same if they do the same over the same axes, and their results are tensors of a type at a placement.
    """

    names: tuple[str, str]
    plans: tuple[Plan, Plan]
    rows: tuple[tuple[Side | None, Side | None], ...]

    @property
    def same(self) -> int:
        """How many steps the plans share."""
        return sum(a is not None and b is not None for a, b in self.rows)

    def __str__(self) -> str:
        a, b = self.plans
        totals = Table(box=None, padding=(0, 2), show_edge=False)
        for column in ("", *self.names, "change"):
            totals.add_column(column, justify="right" if column else "left", no_wrap=True)
        for name, ours, theirs, shown in figures(a, b):
            totals.add_row(name, shown(ours), shown(theirs), changed(ours, theirs))
        table = Table(box=None, padding=(0, 1), show_edge=False)
        for column in ("", *self.names, "placement", "bytes", "seconds"):
            table.add_column(column, overflow="fold", justify="right" if column in ("bytes", "seconds") else "left")
        long = len(self.rows) > LONG
        for left, right in self.rows:
            if long and (left is not None and right is not None or not max(s.bytes for s in (left, right) if s)):
                continue
            side = left or right
            assert side is not None
            table.add_row(
                "=" if left and right else "-" if left else "+",
                f"{left.step} {left.what}" if left else "", f"{right.step} {right.what}" if right else "",
                side.placements, size(side.bytes) if side.bytes else "-", duration(side.seconds))
        shown = "; listed: collectives that only one of them has" if long else ""
        return (render(totals) + f"\n\n{self.same} of {len(a.steps)} and {len(b.steps)} steps are the same{shown}\n"
                + render(table))


def figures(a: Plan, b: Plan) -> list[tuple[str, float, float, Any]]:
    """What is compared of two plans: name, both figures, and how to print them."""
    rows: list[tuple[str, float, float, Any]] = [
        ("seconds", a.cost.total, b.cost.total, duration),
        ("  communication", a.cost.communication, b.cost.communication, duration),
        ("  compute", a.cost.compute, b.cost.compute, duration),
        ("wire bytes, busiest device", a.wire_bytes, b.wire_bytes, size),
        ("wire bytes, step by step", a.serial_bytes, b.serial_bytes, size),
        ("flops per device", a.flops, b.flops, "{:.4g}".format),
        ("steps", len(a.steps), len(b.steps), "{:.0f}".format),
    ]
    for kind in sorted({*a.collectives, *b.collectives}):
        rows.append((kind, a.collectives.get(kind, 0), b.collectives.get(kind, 0), "{:.0f}".format))
    return rows


def changed(a: float, b: float) -> str:
    """The second figure relative to the first."""
    if a == b:
        return "="
    return f"x {b / a:.3g}" if a else "-"


def sides(plan: Plan) -> list[Side]:
    """The steps of a plan as rows."""
    held, received = plan.device_program.held, plan.received
    found = []
    for i, step in enumerate(plan.steps):
        axes = over(step.action)
        tensors = [held[v] if held else None for v in step.results]
        types = plan.device_program.types
        pairs = zip(tensors, step.results, strict=True)
        where = ", ".join(f"{t.type} {t.placement}" if t else str(types[v]) for t, v in pairs)
        found.append(Side(i, what(step.action) + (f" over {axes}" if axes else ""), where, float(received[i].max()),
                          plan.prices[i]))
    return found


def difference(a: Plan, b: Plan, names: tuple[str, str] = ("first", "second")) -> Difference:
    """Align two plans of any programs; of the same one mostly."""
    left, right = sides(a), sides(b)
    rows: list[tuple[Side | None, Side | None]] = []
    for start, stop, other, end in _blocks(left, right):
        rows += [(side, None) for side in left[start:stop]] + [(None, side) for side in right[other:end]]
        if stop < len(left) and end < len(right):
            rows.append((left[stop], right[end]))
    return Difference(names, (a, b), tuple(rows))


def _blocks(left: Sequence[Side], right: Sequence[Side]) -> list[tuple[int, int, int, int]]:
    """What stands before each pair of equal steps, and behind the last: ranges of both."""
    ours, theirs = ([(s.what, s.placements) for s in some] for some in (left, right))
    found, i, j = [], 0, 0
    for block in SequenceMatcher(None, ours, theirs, autojunk=len(left) > 10 * LONG).get_matching_blocks():
        for n in range(max(block.size, 1 if block.a == len(left) else 0)):
            found.append((i, block.a + n, j, block.b + n))
            i, j = block.a + n + 1, block.b + n + 1
    return found
