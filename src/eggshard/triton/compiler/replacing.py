"""Triton's pipeline with the planner in place of its removals of layout conversions.

Passes between the removals build on the layouts that they find, in ways that no price of layouts knows: which removals
to replace is decided by what comes out at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from eggshard.triton.compiler.choosing import P
from eggshard.triton.compiler.pipeline import Tap


def replaced(run: Callable[[Tap], Any], plan: Callable[[Any], P], module_of: Callable[[P], Any]) -> Iterator[P]:
    """Plans of what ``run`` leaves with all removals replaced, with all but the first, and so on, each made when it is
    asked for.

    run: Triton's pipeline under a tap. plan: of a module; module_of: the module that a plan is put in its place with,
    if it is cheaper. None where the pipeline has no removals.
    """
    start = removals = 0

    def tap(position: int, module: Any, remove: Callable[[Any], Any]) -> Any:
        nonlocal removals
        removals = max(removals, position + 1)
        if position < start:
            remove(module)
            return module
        found = plan(module)
        return module_of(found) if found.cost < found.given_cost else module

    final = run(tap)
    while start < removals:
        yield plan(final)
        start += 1
        if start < removals:
            final = run(tap)
