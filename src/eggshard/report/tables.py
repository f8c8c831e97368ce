"""Text tables of a plan's steps, its reasons, and comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from eggshard.costmodel.machines.machine import Machine
from eggshard.costmodel.schedule import COMPUTE, Schedule
from eggshard.costmodel.units import SECONDS, Unit
from eggshard.plan.json_values import Recorded
from eggshard.plan.naming import value_names
from eggshard.report.words import sentence, sentences
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.moves import Moves, moved_axes
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
    Step,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange
from eggshard.tables import LONG, WIDTH, duration, glued, render, size

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


#: The part of a price below which what is hidden is rounding.
_ROUNDED = 1e-9

#: A step in a few words.
what: Handlers[str] = Handlers("naming in tables")


@what.handles(AllReduce, BoxExchange, Branch, CollectivePermute, DeviceNumber, Exchange, GroupCollective, KeepFirst,
              Loop, Mask, OnFirstDevice, Resize)
def _(action: Action) -> str:
    return action.kind


@what.handles(Local)
def _(action: Local) -> str:
    return action.name


@what.handles(AllGather, ReduceScatter, Slice)
def _(action: AllGather | ReduceScatter | Slice) -> str:
    return f"{action.kind} dim {_dims(action.moves)}"


@what.handles(AllToAll)
def _(action: AllToAll) -> str:
    return f"{action.kind} {_dims(action.targets)}->{_dims(action.sources)}"


@what.handles(Crop)
def _(action: Crop) -> str:
    return f"{action.kind} dim {action.dim} of {action.new}"


@what.handles(WindowExchange)
def _(action: WindowExchange) -> str:
    parts = Counter(
        f"dim {part.dim}: " + ", ".join(f"{n} from {side}" for side, n in part.sides.items())
        for part in action.exchanges
    )
    return f"{action.kind} " + "; ".join(part if n == 1 else f"{part} ({n} values)" for part, n in parts.items())


@what.handles(BoxSelect)
def _(action: BoxSelect) -> str:
    return f"{action.kind} " + ", ".join(f"dim {dim} [{start}:{stop}]" for dim, _, start, stop in action.box)


@what.handles(EdgeFill)
def _(action: EdgeFill) -> str:
    return f"{action.kind} dim {action.dim}: {action.mode}"


def _dims(moves: Moves) -> str:
    return ",".join(str(d) for d, _ in moves)


def over(action: Action) -> str:
    """The axes that a step communicates over, or takes its position from."""
    if isinstance(action, BoxSelect):
        return ",".join(dict.fromkeys(a for _, window, _, _ in action.box for a in window.axes))
    if isinstance(action, EdgeFill):
        return ",".join(action.window.axes)
    return ",".join(action.axes or moved_axes(getattr(action, "moves", ())) or getattr(action, "over", ()))


def summary(plan: PlanRecord) -> str:
    """What the plan is of, its length, its cost, and how it was found, in a few words."""
    steps = "1 step" if len(plan.steps) == 1 else f"{len(plan.steps)} steps"
    return f"{plan.program.name}: {steps}, {plan.unit.text(plan.cost.total)}, {plan.search.method}"


def headline(plan: PlanRecord) -> str:
    """What the plan is of and sends, what that takes, and how good that is: a line each."""
    c = plan.collectives
    kinds = ", ".join(f"{n} {k}" for k, n in c.items()) or "no communication"
    how = f"search: {plan.search.method}" + (", exact" if plan.search.exact else ", sums may be reassociated")
    price = plan.unit.text
    counted = "" if plan.unit == SECONDS else f"; {sum(c.values())} collectives, {plan.flops:.4g} flops per device"
    hidden = f" - {price(plan.cost.hidden)} hidden" if plan.cost.hidden > _ROUNDED * plan.cost.total else ""
    lines = [
        f"plan of {plan.program.name} on {dict(plan.mesh.axes)} for {priced_for(plan)}: {kinds}",
        f"received by the busiest device {size(plan.wire_bytes)} (step by step {size(plan.serial_bytes)})",
        f"{price(plan.cost.total)} = {price(plan.cost.communication)} communication + "
        f"{price(plan.cost.compute)} compute{hidden}{counted}",
        *certified(plan),
        how,
    ]
    if plan.search.late:
        lines.append(f"the clock ended the search ({', '.join(plan.search.late)}): more time may give another plan")
    if plan.search.fallback:
        lines.append(f"FALLBACK to the baseline: {plan.search.fallback}")
    return "\n".join(fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def certified(plan: PlanRecord) -> Iterator[str]:
    """What is known of how much cheaper another plan might be, and, where that is less, one of those searched."""
    if plan.cost.total and not plan.bound:  # not searched for: 100 % would say nothing
        yield "no bound"
        return
    gap, within = (None if part is None else f"{100 * part:.2f} %" for part in (plan.gap, plan.search_gap))
    yield f"gap {gap} to the cheapest of what the rewrites derive" if gap else "gap unknown"
    if gap != within:
        yield f"within the search {within} to the cheapest of {plan.certificate}"


def folded(plan: PlanRecord) -> list[range]:
    """The steps of each row of a plan's table: in long plans, steps in a row that send nothing are one row."""
    rows: list[range] = []
    for i, step in enumerate(plan.steps):
        if len(plan.steps) > LONG and i and not step.action.messages and not plan.steps[i - 1].action.messages:
            rows[-1] = range(rows[-1].start, i + 1)
        else:
            rows.append(range(i, i + 1))
    return rows


def columns_of(plan: PlanRecord) -> tuple[tuple[str, Literal["left", "right"]], ...]:
    """The columns of a plan's table by name, and on which side they are aligned."""
    return (
        ("step", "left"), ("what", "left"), ("over", "left"), ("operands", "left"), ("result (per device)", "left"),
        ("bytes", "right"), (plan.unit.header, "right"), ("why", "left"),
    )


def plan_table(plan: PlanRecord) -> str:
    """Step, what, over which axes, local result, bytes per device, seconds, why."""
    table = Table(box=None, padding=(0, 1), show_edge=False)
    for name, side in columns_of(plan):
        table.add_column(name, justify=side, no_wrap=side == "right", overflow="fold" if side == "left" else "ellipsis")
    for row in table_rows(plan):
        table.add_row(*map(glued, row))
    return headline(plan) + "\n" + render(table)


def table_rows(plan: PlanRecord) -> list[tuple[str, ...]]:
    """The cells of a plan's table."""
    rows: list[tuple[str, ...]] = []
    received = plan.received
    types, names = plan.device_program.types, value_names(plan)
    for row in folded(plan):
        i, step = row.start, plan.steps[row.start]
        if len(row) > 1:
            seconds = sum(plan.prices[j] for j in row)
            rows.append((f"{i}-{row[-1]}", f"{len(row)} local steps", "-", "", "", "-", plan.unit.text(seconds), ""))
            continue
        rows.append((
            str(i), what(step.action) + issued(step.action), over(step.action) or "-",
            " ".join(names[v] for v in step.operands),
            " ".join(f"%{v}:{'x'.join(map(str, types[v].shape)) or 'scalar'} {types[v].dtype}" for v in step.results),
            size(float(received[i].max())) if step.action.messages else "-", plan.unit.text(plan.prices[i]),
            sentences(step.why),
        ))
    return rows


def issued(action: Action) -> str:
    """The collectives of a step that are not told by its name: those of a loop's runs, or of an exchange."""
    if action.collectives in ({}, {action.kind: 1}):
        return ""
    times = f"{action.trips} times, " if isinstance(action, Loop) else ""
    return f" ({times}{', '.join(f'{n} {kind}' for kind, n in action.collectives.items())})"


def schedule_table(schedule: Schedule, steps: Sequence[Step], unit: Unit = SECONDS) -> str:
    """Step, what, on which resources, when it starts and ends, by which step it is awaited, what computing hides."""
    table = Table(box=None, padding=(0, 1), show_edge=False)
    for name in ("step", "what", "on"):
        table.add_column(name, overflow="fold")
    for name in ("start", "end", "awaited by", "hidden"):
        table.add_column(name, justify="right", no_wrap=True)
    for i, (step, work) in enumerate(zip(steps, schedule.work, strict=True)):
        resources = (*([COMPUTE] if work.computing or not work.channels else []), *work.channels)
        user = schedule.awaited[i]
        table.add_row(
            str(i), what(step.action), ", ".join(resources), unit.text(schedule.starts[i]), unit.text(schedule.ends[i]),
            "end" if user is None else str(user), unit.text(schedule.hidden[i]) if work.channels else "-",
        )
    held = ", ".join(f"{name} {unit.text(seconds)}" for name, seconds in schedule.busy.items())
    return (f"schedule: {unit.text(schedule.makespan)}; longest chain of steps {unit.text(schedule.critical_path)}; "
            f"held: {held}\n") + render(table)


def explain(plan: PlanRecord) -> str:
    """The plan's table, the rules that led to it, the search, and the baseline beside it."""
    compared = {"this plan": plan} if plan.baseline is plan else {"this plan": plan, "baseline": plan.baseline}
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("")
    for name in compared:
        table.add_column(name, justify="right")
    table.add_row("wire bytes, busiest device", *(size(p.wire_bytes) for p in compared.values()))
    table.add_row("wire bytes, step by step", *(size(p.serial_bytes) for p in compared.values()))
    table.add_row("collectives", *(str(sum(p.collectives.values())) for p in compared.values()))
    table.add_row(plan.unit.header, *(p.unit.text(p.cost.total) for p in compared.values()))
    if any(p.cost.hidden > _ROUNDED * p.cost.total for p in compared.values()):
        table.add_row("communication hidden", *(p.unit.text(p.cost.hidden) for p in compared.values()))
    table.add_row("flops per device", *(f"{p.flops:.4g}" for p in compared.values()))
    s = plan.search
    lines = [plan_table(plan), "", render(table), "",
             f"searched {s.classes} e-classes with {s.nodes} e-nodes; bound {plan.unit.text(plan.bound)}"]
    if s.seconds:
        lines.append("time: " + ", ".join(f"{k} {duration(v)}" for k, v in s.seconds.items()))
    used = sorted({w for step in plan.steps for w in step.why if w in s.rules})
    lines += ["rules used:" if used else "rules used: none", *(f"  {name}: {sentence(name)}" for name in used)]
    lines += _methods(plan)
    if plan.cost.hidden > _ROUNDED * plan.cost.total:
        lines += ["", schedule_table(plan.schedule, plan.steps, plan.unit)]
    return "\n".join(lines)


#: What the methods of selection do that left notes (`Search.notes`), by the word that a note begins with.
METHODS = {
    "greedy": "every tensor the cheapest way, one after the other",
    "seeds": "plans known beforehand, such as that of propagation",
    "local": "a few choices changed at a time",
    "cheap": "what every plan pays at least, found without a solver",
    "affordable": "choices that a cheaper plan may have; the others are left out",
    "dual": "dual ascent: nearly the linear program's bound, without a solver",
    "once": "dual ascent among all plans that compute nothing twice",
    "shards": "the integer program in which a tensor may be computed at several places",
    "recombine": "the integer program of the choices of the best plans",
    "ring": "equal layers planned as one",
    "memory": "the price or the change of steps that keeps the plan within its limit",
    "solver": "it failed; what was found before stands",
}


def _methods(plan: PlanRecord) -> list[str]:
    """The notes of a search under a line that explains them; the first of each method says what it is."""
    if not plan.search.notes:
        return []
    unit = plan.unit.name if plan.unit.each == 1 else f"units of {1 / plan.unit.each:g} {plan.unit.name}"
    weighted = "weighted " if plan._price.overlap else ""
    lines = [f"methods in turn, in {weighted}{unit} (cost: of the cheapest plan known by then; bound: no plan, or none "
             "of those named, costs less):"]
    explained = set()
    for note in plan.search.notes:
        method = note.partition(":")[0].partition(" ")[0]
        known = method in METHODS and method not in explained
        explained.add(method)
        lines.append(f"  {note}" + (f"  ({METHODS[method]})" if known else ""))
    return lines


def priced_for(plan: PlanRecord) -> str:
    """The plan's cost model by name, with the origin of a machine."""
    model = plan.cost_model
    if isinstance(model, Machine):
        return f"{model.name} ({model.origin})" if model.origin else model.name
    return model.name if isinstance(model, Recorded) else type(model).__name__


def model_name(plan: PlanRecord) -> str:
    """The plan's cost model as it shows itself, or by its class."""
    model = plan.cost_model
    return type(model).__name__ if type(model).__repr__ is object.__repr__ else str(model)
