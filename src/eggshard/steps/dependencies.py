"""Dependencies between the steps of a device program, and the order in which they are met."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from eggshard.errors import EggshardError
from eggshard.steps.steps import StepPlan

T = TypeVar("T", bound=Hashable)


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


def needs_first(start: T, needs: Callable[[T], Iterable[T]], done: Callable[[T], bool]) -> Iterator[T]:
    """What is to be done so that ``start`` is, what it needs first (an explicit stack: programs are deep).

    EggshardError where something needs itself.
    """
    stack, waiting = [start], set[T]()
    while stack:
        top = stack[-1]
        missing = [] if done(top) else [need for need in needs(top) if not done(need)]
        if not missing:
            if not done(top):
                yield top
            stack.pop()
        elif top in waiting:
            raise EggshardError(f"{top} needs itself")
        else:
            waiting.add(top)
            stack.extend(reversed(missing))
