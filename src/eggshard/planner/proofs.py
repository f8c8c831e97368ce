"""Plans are proved before they are handed out, where that is cheap beside planning them; a wrong one is not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from eggshard.egraph.rules import Rule
from eggshard.errors import FallbackWarning, LimitError
from eggshard.memory.prediction import memory_of
from eggshard.plan.proof import Difference
from eggshard.plan.record import PlanRecord
from eggshard.prove.laws import outside
from eggshard.prove.proving import prove


def proved(plan: PlanRecord, rules: Sequence[Rule], seconds: float, memory_limit: int | None) -> PlanRecord:
    """Return the plan, made with these rules, with what is shown of it in so many seconds (`PlanRecord.proved`).

    In place of one that computes something else than its program, warn and return the baseline; LimitError where that
    exceeds the memory limit. Where a rule does not hold over fields, although it does of numbers, nothing is shown.
    """
    if seconds <= 0:
        return plan
    proof = prove(plan, within=seconds)
    if proof.equal is not False:
        return replace(plan, proved=proof)
    assert proof.difference is not None
    for rule in rules:
        if outside(rule):
            other = prove(plan, within=seconds, exponents=True)
            if other:
                return replace(plan, proved=other)
            why = f"the rule {rule.name!r} holds of numbers, and not over a field, where plan and program differ"
            return replace(plan, proved=replace(proof, equal=None, refused=why))
    where = f"{proof.difference}{suspects(plan, proof.difference)}"
    reason = f"the plan found computes something else than its program: {where}"
    baseline = plan.baseline
    if memory_limit is not None and memory_of(baseline).peak > memory_limit:
        raise LimitError(f"{reason}; the baseline exceeds memory_limit={memory_limit} bytes per device")
    warnings.warn(f"{reason}; using the baseline plan", FallbackWarning, stacklevel=4)
    search = replace(plan.search, method="baseline", fallback=reason)
    return replace(baseline, search=search, baseline_factory=lambda: baseline,
                   calling_convention=plan.calling_convention, proved=prove(baseline, within=seconds))


def suspects(plan: PlanRecord, difference: Difference) -> str:
    """The rules that led to the steps which a wrong output depends on, in words."""
    outputs = plan.device_program.outputs
    needed = {outputs[difference.output]} if difference.output >= 0 else {*outputs}
    rules: dict[str, None] = {}
    for step in reversed(plan.steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            rules.update(dict.fromkeys(why for why in step.why if not why.startswith("reshard") and why != "view"))
    return f" (it depends on steps by {', '.join(rules)})" if rules else ""
