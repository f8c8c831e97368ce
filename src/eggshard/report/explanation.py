"""One step explained: why it is there, what else there was, and what would have to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

from eggshard.errors import EggshardError
from eggshard.plan.naming import ProgramNames, output_names, value_names
from eggshard.plan.reasons import Alternative, Decision, Flip
from eggshard.report.tables import duration, over, render, size, what

if TYPE_CHECKING:
    from eggshard.plan.plan import Plan

#: How many ways to flip each decision are printed.
FLIPS = 3
#: Of who takes a value so many are named, and of so many the decisions are shown.
USERS, TAKERS = 6, 3


class Context:
    """What the values of a plan are called, where they come from in its program, and which steps take them."""

    def __init__(self, plan: Plan):
        self.names, self.origins = value_names(plan), ProgramNames(plan.program)
        self.users: dict[int, list[int]] = {}
        for i, step in enumerate(plan.steps):
            for v in dict.fromkeys(step.operands):
                self.users.setdefault(v, []).append(i)


def decisions_of(plan: Plan, step: int, context: Context | None = None) -> list[Decision]:
    """The decisions behind a step, the nearest first: of a reshard where to, of an op how; then what else was decided
    of the same tensor; and, of a step that communicates, how the ops work that take it so."""
    held = plan.device_program.held
    if not held:
        return []
    reshards = any(w.startswith(("reshard", "regroup")) for w in plan.steps[step].why)
    tensors = [held[v] for v in plan.steps[step].results]
    here = {str(h.placement) for h in tensors if h is not None}
    classes = dict.fromkeys(h.cls for h in tensors if h is not None)
    of_class = plan.reasons.of_class
    found = [d for c in classes for d in of_class.get(c, ())]
    found.sort(key=lambda d: ((d.kind in ("reshard", "window")) is not reshards, d.placement not in here))
    if plan.steps[step].action.messages:
        takers = _takers(plan, step, classes, context or Context(plan))
        found += [d for c in takers[:TAKERS] for d in of_class.get(c, ()) if d.kind == "op"]
    return found


def _takers(plan: Plan, step: int, classes: Iterable[int], context: Context) -> list[int]:
    """The classes of the ops that take what a step makes, or what that is converted to on the way."""
    held = plan.device_program.held
    found: dict[int, None] = {}
    seen, work = {step}, [step]
    for i in work:
        for user in dict.fromkeys(u for v in plan.steps[i].results for u in context.users.get(v, ())):
            tensors = [held[v] for v in plan.steps[user].results]
            theirs = {h.cls for h in tensors if h is not None}
            if theirs & set(classes):
                work += [user] if user not in seen else []
                seen.add(user)
            else:
                found.update(dict.fromkeys(sorted(theirs)))
    return list(found)


#: Flips at prices that differ by less from what they are, relative to them, are ties.
TIE = 1e-3


def flip_text(flip: Flip) -> str:
    """A flip in words."""
    if abs(flip.factor - 1) < TIE:
        return f"{flip.what}: a tie, any change of its price"
    times = f"{flip.factor:.3g} times its price"
    if flip.every:
        return f"{flip.what} at {times}"
    return f"{flip.what}: {duration(flip.seconds)} -> {duration(flip.becomes)} ({times})"


def why(plan: Plan, step: int, context: Context | None = None) -> list[str]:
    """Sentences: what the step makes, who takes it, the rules that led to it, and why here."""
    taken, held = plan.steps[step], plan.device_program.held
    context = context or Context(plan)
    lines = []
    for v in taken.results:
        tensor = held[v] if held else None
        if tensor is not None:
            origin = context.origins.of(tensor.value)
            lines.append(f"{context.names[v]} holds {origin}, {tensor.type}, at {tensor.placement}")
    users = list(dict.fromkeys(i for v in taken.results for i in context.users.get(v, ())))
    outputs = zip(output_names(plan), plan.device_program.outputs, strict=True)
    delivered = [name for name, v in outputs if v in taken.results]
    takers = [f"step {i} {what(plan.steps[i].action)}" for i in users[:USERS]]
    takers += [f"and {len(users) - USERS} more"] if len(users) > USERS else []
    takers += [f"output {', '.join(delivered)}"] if delivered else []
    if takers:
        lines.append("taken so by " + ", ".join(takers))
    decisions = decisions_of(plan, step, context)
    for decision in decisions[:1]:
        if decision.rules:
            lines += [f"rule {rule} made {op}" for rule, op in decision.rules]
        elif decision.kind == "op":
            lines.append("the op is the program's own: no rule made it")
        if decision.weighed:
            best = decision.next_best
            than = "" if best is None else f"; the next best costs {_more(best)}"
            lines.append(f"{decision.what}: the cheapest of {decision.weighed + 1} ways{than}")
        else:
            lines.append(f"{decision.what}: there was no other way, as it is needed so")
    notes = [w for w in taken.why if not w.startswith("reshard") and all(w != r for d in decisions for r, _ in d.rules)]
    return lines + ([f"noted: {', '.join(notes)}"] if notes else [])


def _more(alternative: Alternative) -> str:
    least = "at least " if alternative.at_least else ""
    return f"{least}{duration(alternative.change)} more" if alternative.change > 0 else "the same"


def explain_step(plan: Plan, step: int) -> str:
    """WHY, WHAT ELSE and what flips of one step. EggshardError for a step that the plan does not have."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < len(plan.steps):
        raise EggshardError(f"step {step!r}: this plan has steps 0 to {len(plan.steps) - 1}; print(plan) lists them")
    taken, types = plan.steps[step], plan.device_program.types
    received = float(plan.received[step].max())
    lines = [
        f"step {step}: {what(taken.action)}" + (f" over {over(taken.action)}" if over(taken.action) else "")
        + f" -> {' '.join(str(types[v]) for v in taken.results)} per device, {duration(plan.prices[step])}"
        + (f", {size(received)} received" if taken.action.messages else ""),
        "", "WHY", *(f"  {line}" for line in why(plan, step)),
    ]
    decisions = decisions_of(plan, step)
    if not decisions:
        lines.append(f"  {plan.reasons.note or 'nothing was decided: it is a local view, or part of another step'}")
    for decision in decisions:
        lines += ["", f"WHAT ELSE than {decision.what}  ({decision.weighed} alternatives priced)"]
        if not decision.alternatives:
            lines.append("  nothing")
            continue
        table = Table(box=None, padding=(0, 1), show_edge=False)
        table.add_column("alternative", overflow="fold")
        for name in ("more", "all else held", "own price"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("rules", overflow="fold")
        for a in decision.alternatives:
            least = ">= " if a.at_least else ""
            table.add_row(a.what, least + duration(max(0.0, a.change)), duration(max(0.0, a.held)), duration(a.own),
                          "; ".join(a.rules))
        lines += ["  " + line for line in render(table).splitlines()]
        more = decision.weighed - len(decision.alternatives)
        if more > 0:
            lines.append(f"   and {more} more, none of them cheaper all else held: only the cheapest are kept")
        best = decision.next_best
        if best is not None and best.flips:
            lines.append(f"  it would flip to {best.what} with one of")
            lines += [f"    {flip_text(flip)}" for flip in best.flips[:FLIPS]]
    if decisions and plan.reasons.note:
        lines += ["", f"note: {plan.reasons.note}"]
    return "\n".join(lines)
