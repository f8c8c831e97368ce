"""Dependencies between the steps of a device program."""

from __future__ import annotations

from eggshard.steps.steps import StepPlan


class Dependencies:
    """Which steps come before which: those that make its operands, and of steps with effects the one before.

    before[i], after[i]: the steps that step i waits for, and those that wait for it, each in the plan's order.
    """

    def __init__(self, plan: StepPlan):
        maker = {v: i for i, step in enumerate(plan.steps) for v in step.results}
        self.before: list[tuple[int, ...]] = []
        self.after: list[list[int]] = [[] for _ in plan.steps]
        effect: tuple[int, ...] = ()
        for i, step in enumerate(plan.steps):
            needed = dict.fromkeys(maker[v] for v in step.operands if v in maker)
            if step.action.has_effects:
                needed.update(dict.fromkeys(effect))
                effect = (i,)
            self.before.append(tuple(needed))
            for j in needed:
                self.after[j].append(i)
