"""Values that compilers are kept from computing again for each of their users.

XLA fuses a pointwise value into every user that reads it at other places: a stencil's level into the five slices of
the next one, those into its own five slices. Fenced, a value is computed once and read from memory. On eight stencil
programs this takes a seventh to a twentieth of the operations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Set
from itertools import accumulate

from eggshard.ops import registry
from eggshard.ops.base import Traits
from eggshard.steps.steps import Local, Mask, Resize, Slice, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

#: Ops that only cut.
_CUTTING = frozenset({"dynamic_slice", "reverse", "slice"})
#: Ops that put copies of their operand's ends beside it, or in another order.
_TURNING = frozenset({"extend", "rotate", "wrap"})
#: Ops that read their operand at other places than they write.
_MOVING = _CUTTING | _TURNING | {"concatenate", "dynamic_update_slice", "pad"}
#: Ops that write over a part of their first operand.
_UPDATES = frozenset({"dynamic_update_slice", "update_slice"})
#: Ops that compilers write with other dimensions of size 1.
_RESHAPES = frozenset({"broadcast_in_dim", "dot_general", "gather", "reshape", "scatter"})
#: Ops that give the elements of their operand other positions, each as often as it is read.
_RESHAPED = frozenset({"broadcast_in_dim", "reshape", "transpose"})
#: Pointwise ops that are read again rather than kept: no arithmetic, or a result of few bytes.
_CHEAP = frozenset({"compare", "convert", "is_finite"})


def fenced(plan: StepPlan, platform: str = "cpu") -> frozenset[int]:
    """The values to compute once on a platform.

    They are computed or put together, and more elements of them are read than they have, not all in place; or their
    elements are chosen from several arrays, and are read at other places; or, on CPUs, many instructions make an
    element, which a broadcast repeats. And what XLA gets wrong.
    """
    joints = _joints(plan)
    elements = [type_.elements for type_ in plan.types]
    #: Elements that all users together read; twice those that are put together again: each is tested for where it is.
    read = Counter[int]()
    for v in plan.outputs:
        read[v] += elements[v]
    kept: set[int] = set()
    moved: set[int] = set()
    joined: set[int] = set()
    for step in reversed(plan.steps):
        slab, cut = _slab(plan, step), _cuts(plan, step)
        pieces = _in_pieces(step) and not slab
        if pieces or slab or (_computes(step) and not cut):
            # Where another value than a constant is chosen, even a single reader tests every element that it reads.
            chosen = _local(step, _TURNING) or (
                isinstance(step.action, BoxSelect) and all(plan.types[v].rank for v in step.operands)
            )
            made = {v for v in step.results if elements[v] > 1 and (read[v] > elements[v] or chosen)}
            kept |= made & moved
        if _cuts_part(joints, step):
            continue
        for v in step.operands:
            again = 2 if pieces or (cut and step.results[0] in joined) else 1
            read[v] += again * (read[step.results[0]] if cut else elements[v])
        if pieces or cut or isinstance(step.action, Crop | Resize) or _local(step, _MOVING):
            moved.update(step.operands)
            joined.update(() if cut else step.operands)
        if slab:
            moved.add(step.operands[0])
        if platform == "cpu":  # others have products of transposed operands
            moved.update(_turned(plan, step))
    if platform == "cpu":  # others weigh that themselves
        kept |= _repeated(plan) | _updated(plan)
    return frozenset(kept | _reshaped_updates(plan) | _transformed(plan))


def written_alone(plan: StepPlan, kept: Set[int]) -> frozenset[int]:
    """The values that end in memory of their own: those that are computed once, also by way of pads by nothing."""
    uses = Counter(plan.outputs)
    for step in plan.steps:
        uses.update(step.operands)
    out = set(kept)
    for step in reversed(plan.steps):
        if _local(step, {"pad"}) and step.results[0] in out and uses[step.operands[0]] == 1:
            if plan.types[step.operands[0]] == plan.types[step.results[0]]:
                out.add(step.operands[0])
    return frozenset(out)


def _repeated(plan: StepPlan) -> set[int]:
    """What a broadcast repeats that takes many instructions, such as cosines of a row's positions."""
    out: set[int] = set()
    dear: set[int] = set()
    for step in plan.steps:
        action = step.action
        if not isinstance(action, Local) or len(step.results) != 1:
            continue
        (result,) = step.results
        if action.name == "broadcast_in_dim" and step.operands[0] in dear:
            (operand,) = step.operands
            if 1 < plan.types[operand].elements < plan.types[result].elements:
                out.add(operand)
                continue
        functions = registry.known(action.name) and Traits.FUNCTION in registry.get(action.name).traits
        if functions or (_passed_on(action) and not dear.isdisjoint(step.operands)):
            dear.add(result)
    return out


def _passed_on(action: Local) -> bool:
    """Whether compilers compute an op's operands where they compute its result."""
    return action.name in _MOVING | _RESHAPED or (registry.known(action.name) and registry.get(action.name).pointwise)


def _updated(plan: StepPlan) -> set[int]:
    """What is written over in a small part, and read by more than the next such update.

    XLA:CPU fuses the update with pointwise readers, which then test the place of every element.
    """
    slabs = [step for step in plan.steps if _slab(plan, step)]
    bases = {id(step): step.operands[:1] for step in slabs}
    read = {v for step in plan.steps for v in bases.get(id(step), step.operands)} if slabs else set()
    return {v for step in slabs for v in step.results if v in read}


def _reshaped_updates(plan: StepPlan) -> set[int]:
    """Results of updates that read what they update elsewhere, and are reshaped, or scattered.

    XLA:CPU moves a reshape by dimensions of size 1 in front of the update, which it then makes in place of what it
    still reads: ``a.at[1:-1].set(a[2:] + a[:-2])[None]`` is wrong under `jax.jit` of JAX 0.10.2.
    """
    reshaped = {v for step in plan.steps if _local(step, _RESHAPES) for v in step.operands}
    updates = [
        (step, base, update) for step in plan.steps if not reshaped.isdisjoint(step.results)
        for base, update in _updates(plan, step)
    ]
    if not updates:
        return set()
    maker = {v: step for step in plan.steps if not step.action.messages for v in step.results}
    return {v for step, base, update in updates if _reads(maker, update, base) for v in step.results}


def _updates(plan: StepPlan, step: Step) -> list[tuple[int, int]]:
    """The value that a step writes over a part of, and what it writes; nothing of other steps."""
    if _local(step, _UPDATES):
        return [(step.operands[0], step.operands[1])]
    return [(step.operands[1], step.operands[0])] if _slab(plan, step) else []


def _transformed(plan: StepPlan) -> set[int]:
    """Results of Fourier transforms.

    XLA:CPU lays out what is gathered along an inner dimension with that in front, and with it the transform that it is
    made by, which has to be in row-major order: a RET_CHECK of JAX 0.10.2.
    """
    return {v for step in plan.steps if _local(step, {"fft"}) for v in step.results}


def _reads(maker: Mapping[int, Step], value: int, source: int) -> bool:
    """Whether a value is computed from another, with nothing sent between them."""
    seen, waiting = {value}, [value]
    while waiting:
        step = maker.get(waiting.pop())
        for v in step.operands if step is not None else ():
            if v == source:
                return True
            if v not in seen:
                seen.add(v)
                waiting.append(v)
    return False


def _local(step: Step, names: Set[str]) -> bool:
    return isinstance(step.action, Local) and step.action.name in names


def _joints(plan: StepPlan) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Of each concatenation its dimension, and where its operands end along it."""
    out = {}
    for step in plan.steps:
        if isinstance(step.action, Local) and step.action.name == "concatenate":
            dim: int = step.action.attributes["dimension"]
            out[step.results[0]] = dim, tuple(accumulate(plan.types[v].shape[dim] for v in step.operands))
    return out


def _cuts_part(joints: Mapping[int, tuple[int, tuple[int, ...]]], step: Step) -> bool:
    """Whether a step is a slice within one operand of a concatenation, which compilers cut instead."""
    action = step.action
    if not (isinstance(action, Local) and action.name == "slice" and step.operands[0] in joints):
        return False
    dim, ends = joints[step.operands[0]]
    starts, limits = action.attributes["start_indices"], action.attributes["limit_indices"]
    return bisect_right(ends, starts[dim]) == bisect_left(ends, limits[dim])


def _in_pieces(step: Step) -> bool:
    """Whether a step cuts several pieces out of each operand, or writes pieces over it."""
    if isinstance(step.action, Crop):
        return len(set(step.action.offsets)) > 1
    return isinstance(step.action, BoxSelect | EdgeFill | Mask | WindowExchange)


def _slab(plan: StepPlan, step: Step) -> bool:
    """Whether a step writes over a small part of its last operand, in place."""
    return isinstance(step.action, BoxSelect) and bool(
        step.action.slab(plan.mesh, *(plan.types[v] for v in step.operands)))


def _turned(plan: StepPlan, step: Step) -> list[int]:
    """Operands of a product that compilers transpose first: they contract the last dimensions of the first operand,
    and those of the second one after its batches."""
    if not _local(step, {"dot_general"}):
        return []
    numbers = step.action.attributes["dot_dimension_numbers"]  # type: ignore[attr-defined]
    out = []
    for v, side in zip(step.operands, ("lhs", "rhs"), strict=True):
        contracted, batches = (sorted(numbers[f"{side}_{kind}_dimensions"]) for kind in ("contracting", "batching"))
        rank = plan.types[v].rank
        first = rank - len(contracted) if side == "lhs" else len(batches)
        if contracted != list(range(first, first + len(contracted))):
            out.append(v)
    return out


def _cuts(plan: StepPlan, step: Step) -> bool:
    """Whether a step only cuts: compilers read its operand in place, for every user of its result."""
    action = step.action
    if isinstance(action, Crop):
        return action.cuts(plan.types[step.operands[0]])
    return isinstance(action, Slice) or _local(step, _CUTTING)


def _computes(step: Step) -> bool:
    """Whether a step computes, or puts its operands together."""
    action = step.action
    if not isinstance(action, Local):
        return isinstance(action, Crop)
    if action.name in _MOVING:
        return action.name not in _CUTTING
    return action.name not in _CHEAP and registry.known(action.name) and registry.get(action.name).pointwise
