"""Peak memory of a device program: bytes of the shards alive at once, inputs and outputs included."""

from __future__ import annotations

from eggshard.plan.steps import StepPlan


def peak_bytes(plan: StepPlan) -> int:
    """The largest number of bytes alive on a device while any step runs (operands and results both counted).

    Inputs live throughout (the caller holds them); every other value from its step to its last use.
    """
    last = {v: len(plan.steps) for v in (*plan.inputs, *plan.outputs)}
    for i, step in enumerate(plan.steps):
        for v in (*step.operands, *step.results):
            last[v] = max(last.get(v, 0), i)
    alive = sum(plan.types[v].bytes for v in plan.inputs)
    peak = alive
    dying: dict[int, list[int]] = {}
    for v, i in last.items():
        dying.setdefault(i, []).append(v)
    for i, step in enumerate(plan.steps):
        alive += sum(plan.types[v].bytes for v in step.results)
        peak = max(peak, alive)
        alive -= sum(plan.types[v].bytes for v in dying.get(i, ()))
    return peak
