"""What a reader of a plan looks for first, in a sentence each: where time goes, what to change, what else would run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from eggshard.plan.naming import output_names, value_names
from eggshard.report.tables import over, what
from eggshard.tables import size

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison
    from eggshard.plan.record import PlanRecord

#: Steps that a finding names at most.
NAMED = 3
#: The share of the price below which communication is not worth a change.
LITTLE = 0.1


class Finding(NamedTuple):
    """A question, its answer, and the numbers of the plan's steps that it is about, the dearest first."""

    title: str
    text: str
    steps: tuple[int, ...] = ()


def findings(plan: PlanRecord, comparison: Comparison | None = None) -> tuple[Finding, ...]:
    """The three findings of a plan. comparison: with XLA's own program, where it was made."""
    return _where(plan), _change(plan), _beside(plan, comparison)


def _model(plan: PlanRecord) -> str:
    return str(getattr(plan.cost_model, "name", "") or type(plan.cost_model).__name__)


def _dearest(plan: PlanRecord, steps: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(steps, key=lambda i: (-plan.prices[i], i)))


def _sending(plan: PlanRecord) -> tuple[int, ...]:
    return _dearest(plan, (i for i, step in enumerate(plan.steps) if step.action.messages))


def _where(plan: PlanRecord) -> Finding:
    price, total = plan.unit.text, plan.cost.total
    sending, cost = _sending(plan), plan.cost
    steps = sending if cost.communication >= cost.compute else _dearest(
        plan, (i for i, step in enumerate(plan.steps) if not step.action.messages))
    if not total:
        return Finding("Where it goes", f"Nothing costs anything under {_model(plan)}.")
    hidden = f", {price(cost.hidden)} of it beside computing" if cost.hidden else ""
    text = (f"Of {price(total)} under {_model(plan)}, {price(cost.communication)} is communication "
            f"({cost.communication / total:.0%}){hidden}, and {price(cost.compute)} computing. ")
    text += "The dearest: " + "; ".join(_told(plan, i) for i in steps[:NAMED]) + "." if steps else ""
    return Finding("Where time goes" if plan.unit.header == "seconds" else "Where it goes", text, steps)


def _told(plan: PlanRecord, i: int) -> str:
    """A step in words, with its price."""
    step, names = plan.steps[i], value_names(plan)
    of = ", ".join(names[v] for v in step.operands[:2])
    axes = f" over {over(step.action)}" if over(step.action) else ""
    return f"step {i}, {what(step.action)}{axes} of {of}, {plan.unit.text(plan.prices[i])}"


def _change(plan: PlanRecord) -> Finding:
    """What could be stated otherwise: inputs that are gathered, or outputs that are moved, before anything else."""
    title, price, program = "What to change", plan.unit.text, plan.device_program
    sending = _sending(plan)
    if not sending:
        return Finding(title, "Nothing is sent.")
    if plan.cost.communication < LITTLE * plan.cost.total:
        return Finding(title, f"Little: without any communication the plan would cost {price(plan.cost.compute)}.")
    inputs, outputs = set(program.inputs), set(program.outputs)
    of_inputs = _dearest(plan, (i for i in sending if set(plan.steps[i].operands) <= inputs))
    of_outputs = _dearest(plan, (i for i in sending if set(plan.steps[i].results) <= outputs and i not in of_inputs))
    taken, names = sum(plan.prices[i] for i in of_inputs), value_names(plan)
    given = sum(plan.prices[i] for i in of_outputs)
    if of_inputs and taken >= max(given, LITTLE * plan.cost.communication):
        first = plan.steps[of_inputs[0]]
        where = program.held[first.results[0]] if program.held else None
        wanted = f" at {where.placement}" if where is not None else ""
        return Finding(title, (
            f"{_count(of_inputs)} of inputs as they are given, for {price(taken)}: {names[first.operands[0]]}, say, is "
            f"needed{wanted}. Given so, it costs no exchange, and the memory that it takes there."), of_inputs)
    if of_outputs and given >= LITTLE * plan.cost.communication:
        made = dict(zip(program.outputs, output_names(plan), strict=True))
        name = made[plan.steps[of_outputs[0]].results[0]]
        return Finding(title, (
            f"{_count(of_outputs)} of outputs, to where they are stated, for {price(given)}; {name}, say. State "
            "another sharding, or none, if the next reader takes it so."), of_outputs)
    if plan.search_gap > LITTLE:
        return Finding(title, (
            f"The search may have missed {plan.search_gap:.0%} of the price: a longer one may find it "
            "(eggshard.Limits)."), sending)
    best = next((d.next_best for d in sorted(plan.reasons.decisions, key=lambda d: -d.seconds) if d.next_best), None)
    other = f" The next best way of the dearest decision costs {price(best.change)} more: {best.what}." if best else ""
    return Finding(title, (
        f"What is sent lies between ops that want it at different places, under the shardings stated.{other} "
        "Try to state others: plans need shapes only."), sending)


def _count(steps: tuple[int, ...]) -> str:
    return "One exchange" if len(steps) == 1 else f"{len(steps)} exchanges"


def _beside(plan: PlanRecord, comparison: Comparison | None) -> Finding:
    title, price = "Beside the baseline", plan.unit.text
    if comparison is not None:
        title = "Beside XLA's program"
        ours, xla = comparison.plan, comparison.xla
        parts = [_ratio("the modelled time", ours.modelled_seconds, xla.modelled_seconds, price),
                 _ratio("the bytes received", ours.wire_bytes, xla.wire_bytes, size),
                 _ratio("the memory", ours.peak_bytes, xla.peak_bytes, size)]
        return Finding(title, f"Of XLA's own program, both compiled, the plan takes {', '.join(parts)}.")
    baseline = plan.baseline
    if baseline is plan:
        return Finding(title, "The plan is the baseline, the program as its shardings are propagated.")
    text = ("Of the baseline, the program as its shardings are propagated and every op resharded by itself, the plan "
            f"takes {_ratio('the price', plan.cost.total, baseline.cost.total, price)}, "
            f"{_ratio('the bytes received', plan.wire_bytes, baseline.wire_bytes, size)}.")
    if plan.calling_convention is not None:
        text += " plan.report(path, plan.compare_with_xla()) puts XLA's own program beside it."
    return Finding(title, text)


def _ratio(name: str, ours: float, theirs: float, shown: Callable[[float], str]) -> str:
    share = f"{ours / theirs:.2f} of " if theirs else ""
    return f"{share}{name} ({shown(ours)} to {shown(theirs)})"
