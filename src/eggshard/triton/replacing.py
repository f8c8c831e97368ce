"""Triton's pipeline with the planner in place of its removals of layout conversions.

Passes between the removals build on the layouts that they find, in ways that no price of layouts knows: which removals
to replace is decided by what comes out at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from eggshard.triton.pipeline import Tap


class Priced(Protocol):
    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=Priced)


def replaced(
    run: Callable[[Tap], Any], plan: Callable[[Any], P], module_of: Callable[[P], Any], enough: float
) -> P | None:
    """The cheapest plan of what ``run`` leaves with all removals replaced, all but the first, and so on.

    run: Triton's pipeline under a tap. plan: of a module; module_of: the module that a plan is put in its place with.
    The search ends at a plan that costs at most ``enough``. None where the pipeline has no removals.
    """
    best: P | None = None
    start = removals = 0

    def tap(position: int, module: Any, remove: Callable[[Any], Any]) -> Any:
        nonlocal removals
        removals = max(removals, position + 1)
        if position >= start:
            return module_of(plan(module))
        remove(module)
        return module

    while best is None or start < removals and best.cost > enough:
        final = run(tap)
        if not removals:
            return None
        found = plan(final)
        best = found if best is None or found.cost < best.cost else best
        start += 1
    return best
