"""Peak memory of a device program: bytes of the shards alive at once, inputs and outputs included."""

from __future__ import annotations

from eggshard.steps.steps import StepPlan


def peak_bytes(plan: StepPlan) -> int:
    """The largest number of bytes alive on a device while any step runs (operands and results both counted)."""
    return max(alive_bytes(plan), default=sum(plan.types[v].bytes for v in plan.inputs))


def alive_bytes(plan: StepPlan) -> list[int]:
    """Per step the bytes alive on a device while it runs, operands and results both counted.

    Inputs live throughout (the caller holds them); every other value from its step to its last use.
    """
    last = {v: len(plan.steps) for v in (*plan.inputs, *plan.outputs)}
    for i, step in enumerate(plan.steps):
        for v in (*step.operands, *step.results):
            last[v] = max(last.get(v, 0), i)
    alive = sum(plan.types[v].bytes for v in plan.inputs)
    dying: dict[int, list[int]] = {}
    for v, i in last.items():
        dying.setdefault(i, []).append(v)
    found = []
    for i, step in enumerate(plan.steps):
        alive += sum(plan.types[v].bytes for v in step.results)
        found.append(alive)
        alive -= sum(plan.types[v].bytes for v in dying.get(i, ()))
    return found
