"""Comparison of two plans: the steps they share, the tensors that are placed differently, and what that costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from eggshard.report.explanation import priced
from eggshard.report.tables import model_name, over, what
from eggshard.steps.nested import Place, steps_within
from eggshard.steps.steps import Local
from eggshard.tables import LONG, Shown, glued, render, size

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


#: A value of the program; of a body that value which the op with the body makes, the body's name, and its own value.
#: Of several that one op makes the first; empty where it is none.
Made = tuple[int | str, ...]


class Side(NamedTuple):
    """A step of one plan: its address, what it does, the placements of its results, received bytes and seconds of all
    its runs; and which value of the program it makes, or of which bodies in it, by which op."""

    step: str
    what: str
    placements: str
    bytes: float
    seconds: float
    value: Made
    op: str

    def same(self, other: Side) -> bool:
        """Whether both do the same, at the same placements."""
        return self.what == other.what and self.placements == other.placements


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """Two plans side by side: each row has a step of the one, of the other, or of both.

    Steps are paired that do the same over the same axes with results of the same type and placement, wherever they
    stand; and of plans of one program those that compute the same value by the same op at other placements.
    """

    names: tuple[str, str]
    plans: tuple[PlanRecord, PlanRecord]
    rows: tuple[tuple[Side | None, Side | None], ...]

    @property
    def same(self) -> int:
        """How many steps the plans share, placements included."""
        return sum(a is not None and b is not None and a.same(b) for a, b in self.rows)

    def __str__(self) -> str:
        a, b = self.plans
        totals = Table(box=None, padding=(0, 2), show_edge=False)
        for column in ("", *self.names, "change"):
            totals.add_column(column, justify="right" if column else "left", no_wrap=True)
        for name, ours, theirs, shown in figures(a, b):
            totals.add_row(name, shown(ours), shown(theirs), changed(ours, theirs))
        table = Table(box=None, padding=(0, 1), show_edge=False)
        for column in ("", *self.names, "placement", "bytes", a.unit.header):
            table.add_column(column, overflow="fold", justify="right" if column in ("bytes", a.unit.header) else "left")
        long = len(self.rows) > LONG
        for left, right in self.rows:
            both = left is not None and right is not None
            if long and (both or not max(s.bytes for s in (left, right) if s)):
                continue
            side = left or right
            assert side is not None
            same = left is not None and right is not None and left.same(right)
            where = side.placements if right is None or same or not both else f"{side.placements} / {right.placements}"
            table.add_row(
                "=" if same else "~" if both else "-" if left else "+",
                f"{left.step} {left.what}" if left else "", f"{right.step} {right.what}" if right else "",
                glued(where), size(side.bytes) if side.bytes else "-", (a if left else b).unit.text(side.seconds))
        shown = "; listed: collectives that only one of them has" if long else ""
        priced = "" if a.cost_model == b.cost_model else (
            f"\nprices are each plan's own model's: {model_name(a)}; {model_name(b)}")
        counts = [sum(row[k] is not None for row in self.rows) for k in (0, 1)]
        shared = f"{self.same} of {counts[0]} and {counts[1]} steps are the same{shown}"
        return f"{render(totals)}{priced}\n\n{shared}\n{render(table)}"


def figures(a: PlanRecord, b: PlanRecord) -> list[tuple[str, float, float, Any]]:
    """What is compared of two plans: name, both figures, and how to print them."""
    price = a.unit.text if a.unit == b.unit else "{:.4g}".format
    rows: list[tuple[str, float, float, Any]] = [
        (a.unit.header, a.cost.total, b.cost.total, price),
        ("  communication", a.cost.communication, b.cost.communication, price),
        ("  compute", a.cost.compute, b.cost.compute, price),
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


def sides(plan: PlanRecord) -> list[Side]:
    """The steps of a plan as rows, those of loops and branches after the step that they are in."""
    first = {v: op.results[0] for op in plan.program.region.ops for v in op.results}
    made: dict[str, Made] = {}
    found = []
    for place, i in steps_within(Place(plan.device_program)):
        program, step, address = place.program, place.program.steps[i], place.address_of(i)
        axes = over(step.action)
        tensors = [program.held[v] if program.held else None for v in step.results]
        types = program.types
        pairs = zip(tensors, step.results, strict=True)
        where = ", ".join(f"{t.type} {t.placement}" if t else str(types[v]) for t, v in pairs)
        value = next((t.value for t in tensors if t is not None and t.value >= 0), -1)
        if place.outer is None:
            made[address] = (first.get(value, value),) if value >= 0 else ()
        else:  # of values that the outer step makes, one of the body
            outer = made[place.outer.address_of(place.step)]
            made[address] = (*outer, place.name, value) if value >= 0 and outer else ()
        op = step.action.name if isinstance(step.action, Local) else step.action.kind
        found.append(Side(
            address, what(step.action) + (f" over {axes}" if axes else ""), where,
            place.times * float(program.received(step).max()), place.times * priced(plan, place, i), made[address], op))
    return found


def difference(a: PlanRecord, b: PlanRecord, names: tuple[str, str] = ("first", "second")) -> Difference:
    """Put two plans side by side, mostly of the same program."""
    left, right = sides(a), sides(b)
    partner: dict[int, int] = {}
    _pair(left, right, partner, lambda side: (_depth(side), side.what, side.placements, side.value))
    _pair(left, right, partner, lambda side: (_depth(side), side.what, side.placements))
    if a.program == b.program:
        _pair(left, right, partner, lambda side: (side.value, side.op) if side.value else None)
    # Steps of the second plan alone stand behind what they follow there.
    taken = {j: i for i, j in partner.items()}
    behind: dict[int, list[Side]] = {}
    last = -1
    for j, side in enumerate(right):
        if j in taken:
            last = taken[j]
        else:
            behind.setdefault(last, []).append(side)
    rows: list[tuple[Side | None, Side | None]] = [(None, side) for side in behind.get(-1, ())]
    for i, side in enumerate(left):
        rows.append((side, right[partner[i]] if i in partner else None))
        rows += [(None, other) for other in behind.get(i, ())]
    return Difference(names, (a, b), tuple(rows))


def _depth(side: Side) -> int:
    """In how many loops and branches a step is."""
    return side.step.count(".")


def _pair(
    left: Sequence[Side], right: Sequence[Side], partner: dict[int, int], key: Callable[[Side], object]
) -> None:
    """Pair steps of equal keys that have no partner yet, in order; a key of None is no key."""
    waiting: dict[object, deque[int]] = {}
    taken = set(partner.values())
    for j, side in enumerate(right):
        if j not in taken:
            waiting.setdefault(key(side), deque()).append(j)
    waiting.pop(None, None)
    for i, side in enumerate(left):
        line = waiting.get(key(side)) if i not in partner else None
        if line:
            partner[i] = line.popleft()
