"""Values that compilers are kept from computing again for each of their users.

XLA fuses a pointwise value into every user that reads it at other places: a stencil's level into the five slices of
the next one, those into its own five slices. Fenced, a value is computed once and read from memory. On eight stencil
programs this takes a seventh to a twentieth of the operations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from eggshard.ops import registry
from eggshard.steps.steps import Local, Mask, Resize, Slice, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

#: Ops that read their operand at other places than they write.
_MOVING = frozenset({"concatenate", "dynamic_slice", "dynamic_update_slice", "pad", "reverse", "slice"})
#: Pointwise ops that are read again rather than kept: no arithmetic, or a result of few bytes.
_CHEAP = frozenset({"compare", "convert", "is_finite"})
#: Steps that cut several pieces out of each operand, or write pieces over it.
_IN_PIECES = (BoxSelect, Crop, EdgeFill, Mask, WindowExchange)


def fenced(plan: StepPlan) -> frozenset[int]:
    """The values to compute once: those that are computed or put together, and have several users, not all in place."""
    moved: set[int] = set()
    joined = {step.results[0]: step for step in plan.steps if _named(step, "concatenate")}
    made = {v for step in plan.steps if _computes(plan, step) for v in step.results if plan.types[v].elements > 1}
    uses = Counter(plan.outputs)
    for step in plan.steps:
        for v in step.operands:
            uses[v] += 2 if isinstance(step.action, _IN_PIECES) else 1
        if not (_named(step, "slice") and step.operands[0] in joined and _part(plan, joined[step.operands[0]], step)):
            moved.update(_moved(step))
    return frozenset(v for v in made & moved if uses[v] > 1)


def _named(step: Step, name: str) -> bool:
    return isinstance(step.action, Local) and step.action.name == name


def _part(plan: StepPlan, joined: Step, cut: Step) -> bool:
    """Whether a slice of a concatenation lies within one of its operands, which compilers then cut instead."""
    joint, box = joined.action.attributes, cut.action.attributes
    dim = joint["dimension"]
    ends = tuple(accumulate(plan.types[v].shape[dim] for v in joined.operands))
    return bisect_right(ends, box["start_indices"][dim]) == bisect_left(ends, box["limit_indices"][dim])


def _computes(plan: StepPlan, step: Step) -> bool:
    """Whether a step computes, or puts pieces together: what only cuts, compilers read in place."""
    action = step.action
    if isinstance(action, Local):
        if action.name in _MOVING:
            return action.name not in ("dynamic_slice", "reverse", "slice")
        return action.name not in _CHEAP and registry.known(action.name) and registry.get(action.name).pointwise
    if isinstance(action, Crop):
        old = plan.types[step.operands[0]].shape[action.dim]
        return any(at > 0 or at + old < action.new for at in action.offsets)
    return isinstance(action, _IN_PIECES)


def _moved(step: Step) -> Iterator[int]:
    """The operands that a step reads at other places than it writes."""
    if isinstance(step.action, (*_IN_PIECES, Resize, Slice)) or (
        isinstance(step.action, Local) and step.action.name in _MOVING
    ):
        yield from step.operands
