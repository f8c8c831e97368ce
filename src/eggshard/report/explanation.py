"""Explanation of one step: why it is there, what the alternatives were, and what would have to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from eggshard.costmodel.units import Unit
from eggshard.plan.naming import ProgramNames, output_names, value_names
from eggshard.plan.reasons import Alternative, Decision, Flip
from eggshard.report.tables import issued, over, what
from eggshard.report.words import sentences, with_name
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.nested import Place, located
from eggshard.tables import glued, render, size

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord
    from eggshard.steps.steps import Step

#: How many ways to flip each decision are printed.
FLIPS = 3
#: The most users of a value that are named, and the most whose decisions are shown.
USERS, TAKERS = 6, 3
#: The most steps of a body that are all listed; of longer ones only communicating steps are.
LISTED = 40


class Context:
    """What the values of a plan are called, where they come from in its program, and which steps take them.

    place: of the plan's device program, or of one within it.
    """

    def __init__(self, plan: PlanRecord, place: Place | None = None):
        self.place = place or Place(plan.device_program)
        self.names = value_names(plan, self.place.program)
        self._origins = ProgramNames(plan.program)
        self.users: dict[int, list[int]] = {}
        for i, step in enumerate(self.steps):
            for v in dict.fromkeys(step.operands):
                self.users.setdefault(v, []).append(i)
        names = output_names(plan) if self.place.outer is None else map(str, range(len(self.place.program.outputs)))
        self._outputs: dict[int, dict[int, str]] = {}
        for i, (name, v) in enumerate(zip(names, self.place.program.outputs, strict=True)):
            self._outputs.setdefault(v, {})[i] = name

    def outputs(self, values: Sequence[int]) -> list[str]:
        """The names of the outputs that some values are, in order."""
        return [name for _, name in sorted({i: n for v in values for i, n in self._outputs.get(v, {}).items()}.items())]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the program."""
        return self.place.program.steps

    def told(self, value: int, step: Step | None) -> str:
        """What a value of the program, or of a body of which this is one, is there; the step makes a shard of it."""
        if self.place.outer is None or value < 0:
            return self._origins.of(value)
        op = step.origins[0].op if step is not None and step.origins else ""
        return f"an op of {self.place.address} ({op})" if op else f"an input of {self.place.address}"


#: A problem, and a class of it.
Chosen = tuple[int, int]

def decisions_of(plan: PlanRecord, step: int, context: Context | None = None) -> list[Decision]:
    """The decisions behind a step, the nearest first: of a reshard where to, of an op how; then what else was decided
    of the same tensor; and, of a step that communicates, how the ops work that take it so."""
    context = context or Context(plan)
    taken, held = context.steps[step], context.place.program.held
    reshards = any(w.startswith(("reshard", "regroup")) for w in taken.why)
    tensors = [held[v] for v in taken.results] if held else []
    here = {str(h.placement) for h in tensors if h is not None}
    chosen = _chosen(taken)
    of_class = plan.reasons.of_class
    found = [d for c in chosen for d in of_class.get(c, ())]
    found.sort(key=lambda d: (
        d.problem != chosen[0][0], (d.kind in ("reshard", "window")) is not reshards, d.placement not in here))
    if taken.action.messages:
        takers = _takers(step, context)
        found += [d for c in takers[:TAKERS] if c not in chosen for d in of_class.get(c, ()) if d.kind == "op"]
    return found


def _chosen(step: Step) -> list[Chosen]:
    """What a step was chosen for, the innermost first."""
    return list(dict.fromkeys((origin.problem, origin.cls) for origin in step.origins))


def _takers(step: int, context: Context) -> list[Chosen]:
    """The classes of the ops that take what a step makes, or what that is converted to on the way."""
    found: dict[Chosen, None] = {}
    own = set(_chosen(context.steps[step])[:1])
    seen, work = {step}, [step]
    for i in work:
        for user in dict.fromkeys(u for v in context.steps[i].results for u in context.users.get(v, ())):
            theirs = _chosen(context.steps[user])[:1]
            if own.intersection(theirs):
                work += [user] if user not in seen else []
                seen.add(user)
            else:
                found.update(dict.fromkeys(theirs))
    return list(found)


#: Flips at prices that differ by less from what they are, relative to them, are ties.
TIE = 1e-3


def flip_text(flip: Flip, unit: Unit) -> str:
    """A flip in words."""
    if abs(flip.factor - 1) < TIE:
        return f"{flip.what}: a tie, any change of its price"
    times = f"{flip.factor:.3g} times its price"
    if flip.every:
        return f"{flip.what} at {times}"
    return f"{flip.what}: {unit.text(flip.seconds)} -> {unit.text(flip.becomes)} ({times})"


def why(plan: PlanRecord, step: int, context: Context | None = None) -> list[str]:
    """Sentences: what the step makes, who takes it, the rules that led to it, and why here."""
    context = context or Context(plan)
    taken = context.steps[step]
    decisions = decisions_of(plan, step, context)
    lines = [*_where(context.place), *_made(context, taken), *_taken_by(context, taken)]
    lines += _decided(decisions[0], plan.unit) if decisions else [_undecided(plan, taken)]
    notes = [w for w in taken.why if not w.startswith("reshard") and all(w != r for d in decisions for r, _ in d.rules)]
    return lines + ([f"noted: {sentences(notes)}"] if notes else [])


def _made(context: Context, taken: Step) -> Iterator[str]:
    """What each result of a step holds, and where that lies."""
    held = context.place.program.held
    for v in taken.results:
        tensor = held[v] if held else None
        lies = "" if tensor is None else f", {tensor.type}, at {tensor.placement}"
        if len(taken.origins) > 1 and (tensor is None or tensor.value < 0):
            op = taken.origins[0].op or "an input"
            yield f"{context.names[v]} is of a body ({op}), taken out of its loop, or manual{lies}"
        elif tensor is not None:
            yield f"{context.names[v]} holds {context.told(tensor.value, taken)}{lies}"


def _taken_by(context: Context, taken: Step) -> list[str]:
    """The steps and outputs that take a step's results, in a sentence; nothing if there are none."""
    place = context.place
    users = list(dict.fromkeys(i for v in taken.results for i in context.users.get(v, ())))
    delivered = context.outputs(taken.results)
    takers = [f"step {place.address_of(i)} {what(context.steps[i].action)}" for i in users[:USERS]]
    takers += [f"and {len(users) - USERS} more"] if len(users) > USERS else []
    end = "output" if place.outer is None else "result"
    takers += [f"{end} {', '.join(delivered)}"] if delivered else []
    return ["taken so by " + ", ".join(takers)] if takers else []


def _decided(decision: Decision, unit: Unit) -> Iterator[str]:
    """The rules behind a decision, and what was weighed."""
    if decision.rules:
        yield from (f"{op}: {with_name(rule)}" for rule, op in decision.rules)
    elif decision.kind == "op":
        yield "the op is the program's own: no rule made it"
    if decision.weighed:
        best = decision.next_best
        than = "" if best is None else f"; the next best costs {_more(best, unit)}"
        yield f"{decision.what}: the cheapest of {decision.weighed + 1} ways{than}"
    else:
        yield f"{decision.what}: there was no other way, as it is needed so"


def _where(place: Place) -> list[str]:
    """Say, for a step within a loop or branch, how often it runs and what its prices count; no lines for others."""
    if place.outer is None:
        return []
    action = place.outer.program.steps[place.step].action
    lines = [f"inside step {place.outer.address_of(place.step)} {what(action)}: runs {place.times} times in all"]
    if isinstance(action, Loop) and action.trip_count is None:
        lines.append(f"the trip count depends on data: {action.trips} are assumed")
    if isinstance(action, Branch):
        lines.append("of the branches the dearest makes the price: what others cost decides nothing else")
    return lines


def _undecided(plan: PlanRecord, step: Step) -> str:
    """Why there is no decision behind a step."""
    if "manual" in step.why:
        return "as its author wrote it for each device: nothing was to decide"
    if not plan.reasons.decisions and plan.reasons.note:
        return plan.reasons.note
    if step.origins and step.origins[0].problem < 0:
        return "done op by op: a search found nothing cheaper, or there was nothing to send, and nothing to search for"
    return "nothing was decided: it is a view of an input, or part of another step"


def _more(alternative: Alternative, unit: Unit) -> str:
    least = "at least " if alternative.at_least else ""
    return f"{least}{unit.text(alternative.change)} more" if alternative.change > 0 else "the same"


def of_what(plan: PlanRecord, decision: Decision) -> str:
    """How many alternatives were priced, and what the prices are of."""
    unit = f", in {plan.reasons.unit}" if plan.reasons.unit else ""
    runs = f", all {decision.runs} runs together" if decision.runs > 1 else ""
    count = "1 alternative" if decision.weighed == 1 else f"{decision.weighed} alternatives"
    return f"{count} priced{unit}{runs}"


def priced(plan: PlanRecord, place: Place, step: int) -> float:
    """Seconds of a step each time that it runs."""
    taken = place.program.steps[step]
    return plan._price(taken.action, *(place.program.types[v] for v in taken.operands))


def _inside(plan: PlanRecord, place: Place, step: int) -> list[str]:
    """The steps within a loop or branch, with their addresses."""
    lines = []
    for inner in place.within(step):
        steps = inner.program.steps
        shown = [i for i, s in enumerate(steps) if len(steps) <= LISTED or s.action.messages][:LISTED]
        left = f", {len(shown)} of them listed" if len(shown) < len(steps) else ""
        lines += ["", f"INSIDE {inner.address}: {len(steps)} steps, {inner.times} times{left}"]
        table = Table(box=None, padding=(0, 1), show_edge=False, show_header=False)
        for side in ("left", "left", "left", "right"):
            table.add_column(justify=side, overflow="fold")
        for i in shown:
            done = what(steps[i].action) + issued(steps[i].action)
            table.add_row(inner.address_of(i), done, over(steps[i].action) or "-",
                          plan.unit.text(priced(plan, inner, i)))
        lines += [render(table, indent=2)] if shown else []
    return lines


def explain_step(plan: PlanRecord, step: int | str) -> str:
    """WHY, WHAT ELSE and what flips of one step, by its number, or its address within a loop or branch ("3.body.5").

    EggshardError for a step that the plan does not have.
    """
    place, number = located(plan.device_program, step)
    context, types = Context(plan, place), place.program.types
    taken = context.steps[number]
    received = float(place.program.received(taken).max())
    each, price = f", {place.times} times" if place.outer else "", plan.unit.text
    lines = [
        f"step {place.address_of(number)}: {what(taken.action)}"
        + (f" over {over(taken.action)}" if over(taken.action) else "")
        + f" -> {' '.join(str(types[v]) for v in taken.results)} per device, {price(priced(plan, place, number))}"
        + (f", {size(received)} received" if taken.action.messages else "") + each,
        "", "WHY", *(f"  {line}" for line in why(plan, number, context)), *_inside(plan, place, number),
    ]
    decisions = decisions_of(plan, number, context)
    for decision in decisions:
        lines += ["", f"WHAT ELSE than {decision.what}  ({of_what(plan, decision)})"]
        if not decision.alternatives:
            lines.append("  no plan has one of them, all else held" if decision.weighed else "  nothing")
            continue
        table = Table(box=None, padding=(0, 1), show_edge=False)
        table.add_column("alternative", overflow="fold")
        for name in ("more", "all else held", "own price"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("what the rules did", overflow="fold")
        for a in decision.alternatives:
            least = ">= " if a.at_least else ""
            more = least + price(max(0.0, a.change))
            table.add_row(glued(a.what), more, price(max(0.0, a.held)), price(a.own), sentences(a.rules))
        lines.append(render(table, indent=2))
        others = decision.weighed - len(decision.alternatives)
        if others > 0:
            lines.append(f"   and {others} more, none of them cheaper all else held: only the cheapest are kept")
        best = decision.next_best
        if best is not None and best.flips:
            lines.append(f"  it would flip to {best.what} with one of")
            lines += [f"    {flip_text(flip, plan.unit)}" for flip in best.flips[:FLIPS]]
    if decisions and plan.reasons.note:
        lines += ["", f"note: {plan.reasons.note}"]
    return "\n".join(lines)
