"""Loop-invariant code motion: steps that do not depend on the iteration run once, before the loop.

XLA does this to the program that it is given (its while-loop-invariant code motion, and merging of equal instructions),
so a plan that left them inside would be priced for collectives that no device executes. Hoisted here, they are paid
once, on every back end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from eggshard.costmodel.pricing import FREE_OPS
from eggshard.ops import registry
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Loop
from eggshard.steps.dependencies import needs_first
from eggshard.steps.steps import Local, Slice, Step, StepPlan
from eggshard.steps.window_steps import Crop


def hoisted(program: StepPlan) -> StepPlan:
    """A device program with what is invariant taken out of its loops.

    Taken out are collectives and computations that depend on nothing but values that the loop carries unchanged, and
    what these are made of. A computation whose result is larger than its operands stays inside, unless a collective
    needs it: a loop would carry the larger value. A cut of a broadcast is larger than what was broadcast. Steps with
    effects stay, and what the condition computes, which is what back ends read trip counts from.
    """
    if not any(isinstance(step.action, Loop) for step in program.steps):
        return program
    out = Assembler(program.mesh)
    values = {v: out.input(program.types[v]) for v in program.inputs}
    for step in program.steps:
        action = step.action
        operands = tuple(values[v] for v in step.operands)
        types = [program.types[v] for v in step.operands]
        form = hoisted_loop(action, types) if isinstance(action, Loop) else action
        values.update(zip(step.results, out.again(step, operands, form), strict=True))
    out.hold_as(program, values, values)
    return out.build(values[v] for v in program.outputs)


def hoisted_loop(loop: Loop, types: Sequence[TensorType]) -> Loop | StepPlan:
    """Take loop-invariant steps out of one loop, whose carried shards have these types.

    Returns a program that runs those steps and then the loop, or the loop itself if nothing is invariant.
    """
    body = loop.body
    unchanged = [i for i, (v, w) in enumerate(zip(body.inputs, body.outputs, strict=True)) if v == w]
    ahead = Assembler(body.mesh)
    given = [ahead.input(t) for t in types]
    moved = [_move(p, unchanged, ahead, given, computed=p is body) for p in (loop.condition, body)]
    if not ahead.steps:
        return loop
    carried = list(dict.fromkeys(value for made in moved for value in made.values()))
    more = tuple(ahead.types[v] for v in carried)
    condition, body = (
        _carrying(program, {v: carried.index(value) for v, value in made.items()}, more, also)
        for program, made, also in zip((loop.condition, body), moved, (False, True), strict=True)
    )
    results = ahead.emit(Loop(condition, body, loop.trip_count), (*given, *carried), ("loop",))
    # What the loop carries unchanged is what it was: an outer loop sees that it does not change there either.
    return ahead.build(given[i] if i in unchanged else results[i] for i in range(len(given)))


def price_of_iterations(body: StepPlan, trips: int, price: Callable[[StepPlan], float]) -> float:
    """What a loop's body costs in so many iterations, what is invariant once; of one, what the program costs."""
    if trips == 1:
        return price(body)
    forever = Assembler(body.mesh)
    for v in body.inputs:
        forever.input(body.types[v])
    condition = forever.build([forever.scalar(True, "i1")])
    loop = hoisted_loop(Loop(condition, body, trips), [body.types[v] for v in body.inputs])
    if isinstance(loop, Loop):
        return trips * price(body)
    return price(loop)


def _move(
    program: StepPlan, unchanged: Iterable[int], ahead: Assembler, given: Sequence[int], computed: bool
) -> dict[int, int]:
    """Emit ahead what can be taken out of a condition or body; by its values that are used inside, those ahead.

    Only collectives and what they need, unless ``computed``.
    """
    values = {program.inputs[i]: given[i] for i in unchanged}
    #: By value known ahead the bytes of which it is made without computing.
    known = {v: program.types[v].bytes for v in values}
    makers: dict[int, Step] = {}
    out: list[Step] = []
    for step in program.steps:
        if step.action.has_effects or not known.keys() >= set(step.operands):
            continue
        placed = _only_places(program, step)
        read = sum(known[v] if placed else program.types[v].bytes for v in step.operands)
        written = sum(program.types[v].bytes for v in step.results)
        known.update((v, min(read, written) if placed else program.types[v].bytes) for v in step.results)
        makers.update(dict.fromkeys(step.results, step))
        if step.action.messages or computed and written <= read and not _is_free(step):
            out.append(step)
    for step in out:
        for needed in _needed(step, makers, values):
            operands = tuple(values[v] for v in needed.operands)
            made = ahead.again(needed, operands)
            values.update(zip(needed.results, made, strict=True))
            ahead.hold_as(program, values, needed.results)
    taken = {v for step in out for v in step.results}
    rest = [step for step in program.steps if not taken.issuperset(step.results)]
    used = {v for step in rest for v in step.operands}.union(program.outputs)
    return {v: values[v] for v in sorted(taken & used)}


def _is_free(step: Step) -> bool:
    return isinstance(step.action, Local) and step.action.name in FREE_OPS


def _only_places(program: StepPlan, step: Step) -> bool:
    """Whether a step renames, cuts or repeats elements, which compilers read in place."""
    action = step.action
    if isinstance(action, Local):
        return _is_free(step) or registry.get(action.name).read_in_place
    return isinstance(action, Slice) or isinstance(action, Crop) and action.cuts(program.types[step.operands[0]])


def _needed(step: Step, makers: Mapping[int, Step], values: Collection[int]) -> list[Step]:
    """A step after all those that it depends on, without what is there already."""
    order: dict[Step, None] = {}
    for needed in needs_first(
        step, lambda top: [makers[v] for v in top.operands if v not in values], order.__contains__
    ):
        order[needed] = None
    return list(order)


def _carrying(
    program: StepPlan, taken: Mapping[int, int], more: Sequence[TensorType], returned: bool
) -> StepPlan:
    """A condition or body that also takes the values ``more``, and uses number ``taken[v]`` of them for its value v."""
    inside = Assembler(program.mesh)
    values = {v: inside.input(program.types[v]) for v in program.inputs}
    extra = [inside.input(t) for t in more]
    values.update((v, extra[i]) for v, i in taken.items())
    inside.hold_as(program, values, values)
    for step in program.steps:
        if not all(v in values for v in step.results):
            made = inside.again(step, tuple(values[v] for v in step.operands))
            values.update((v, new) for v, new in zip(step.results, made, strict=True) if v not in values)
            inside.hold_as(program, values, step.results)
    outputs = [values[v] for v in program.outputs]
    return inside.build([*outputs, *extra] if returned else outputs)
