"""Mutants of device programs: each has one fault that a planner's bug could make, and keeps every type.

A check of plans is measured by how many of them it finds. Some are no faults: a maximum taken twice, an equal operand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eggshard.ops import Literal
from eggshard.program.mesh import Mesh
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Slice,
    Step,
    StepPlan,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange

_OTHER_MONOID = {"add": "max", "max": "min", "min": "max"}
_COMMUTING = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))


class Mutant(NamedTuple):
    """A faulty device program, and what is wrong with it."""

    kind: str
    plan: StepPlan


def mutants(plan: StepPlan) -> Iterator[Mutant]:
    """All mutants of a device program, bodies of loops and branches included."""
    for number, step in enumerate(plan.steps):
        for kind, changed in itertools.chain(
            _of_action(plan.mesh, step), _of_local(plan, step), _of_operands(plan, number), _of_bodies(step)
        ):
            yield Mutant(kind, replace(plan, steps=(*plan.steps[:number], changed, *plan.steps[number + 1 :])))
        for kind, which in _dropped(step):
            without = _without(plan, number, which)
            if without is not None:
                yield Mutant(kind, without)
        if isinstance(step.action, AllReduce):
            yield Mutant("all-reduce doubled", _twice(plan, number))


def _with(step: Step, action: Action) -> Step:
    return replace(step, action=action)


def _of_action(mesh: Mesh, step: Step) -> Iterator[tuple[str, Step]]:
    action = step.action
    match action:
        case Mask():
            for by in (-1, 1):
                yield "mask off by one", _with(step, replace(action, size=action.size + by))
        case BoxSelect() if action.box:
            dim, window, low, high = action.box[0]
            for edges in ((low + 1, high), (low, high - 1)):
                yield "mask off by one", _with(step, replace(action, box=((dim, window, *edges), *action.box[1:])))
        case Crop():
            for by in (-1, 1):
                yield "halo off by one", _with(step, replace(action, offsets=tuple(o + by for o in action.offsets)))
        case HaloExchange():
            yield from ((kind, _with(step, changed)) for kind, changed in _of_halo(action))
        case CollectivePermute() if len(action.pairs) > 1:
            (a, b), *between, (c, d) = action.pairs
            yield "pair swapped", _with(step, replace(action, pairs=((a, d), *between, (c, b))))
            yield "pair dropped", _with(step, replace(action, pairs=action.pairs[1:]))
        case AllReduce():
            for over in _other_axes(mesh, action.over):
                yield "wrong axis", _with(step, replace(action, over=over))
            yield "wrong monoid", _with(step, replace(action, monoid=_OTHER_MONOID.get(action.monoid, "add")))
        case AllGather() | Slice() | ReduceScatter():
            for k, (dim, axes) in enumerate(action.moves):
                for other in [axes[::-1], *_other_axes(mesh, axes)]:
                    if other != axes and mesh.count(other) == mesh.count(axes):
                        moves = (*action.moves[:k], (dim, other), *action.moves[k + 1 :])
                        yield "wrong axis", _with(step, replace(action, moves=moves))


def _of_halo(action: HaloExchange) -> Iterator[tuple[str, HaloExchange]]:
    for k, slab in enumerate(action.rounds):
        def changed(*new: Any, k: int = k) -> HaloExchange:
            return replace(action, rounds=(*action.rounds[:k], *new, *action.rounds[k + 1 :]))

        for by in (-1, 1):
            yield "halo off by one", changed(slab._replace(source_starts=tuple(s + by for s in slab.source_starts)))
        yield "slab missing", changed()
        if len(slab.pairs) > 1:
            (a, b), (c, d), *more = slab.pairs
            yield "pair swapped", changed(slab._replace(pairs=((a, d), (c, b), *more)))


def _of_local(plan: StepPlan, step: Step) -> Iterator[tuple[str, Step]]:
    action = step.action
    if not isinstance(action, Local):
        return
    attrs, types = action.attributes, [plan.types[v] for v in step.operands]

    def updated(**changes: Any) -> Step:
        return _with(step, replace(action, attributes=attrs.updated(**changes)))

    match action.name:
        case "slice":
            bounds = list(zip(attrs["start_indices"], attrs["limit_indices"], types[0].shape, strict=True))
            for d, by in itertools.product(range(len(bounds)), (-1, 1)):
                if bounds[d][0] + by >= 0 and bounds[d][1] + by <= bounds[d][2]:
                    moved = [(a + by * (k == d), b + by * (k == d)) for k, (a, b, _) in enumerate(bounds)]
                    yield "slice offset", updated(start_indices=tuple(a for a, _ in moved),
                                                  limit_indices=tuple(b for _, b in moved))
        case "reduce":
            yield "wrong monoid", updated(monoid=_OTHER_MONOID.get(attrs["monoid"], "add"))
            (shape, reduced) = types[0].shape, attrs["dimensions"]
            for d in range(len(shape)) if len(reduced) == 1 else ():
                if d != reduced[0] and shape[d] == shape[reduced[0]]:
                    yield "wrong dimension", updated(dimensions=(d,))
        case "transpose":
            order = attrs["permutation"]
            for a, b in itertools.combinations(range(len(order)), 2):
                if types[0].shape[order[a]] == types[0].shape[order[b]]:
                    yield "wrong dimension", updated(permutation=_swapped(order, a, b))
        case "broadcast_in_dim":
            dims, shape = attrs["broadcast_dimensions"], attrs["shape"]
            for k, d in itertools.product(range(len(dims)), range(len(shape))):
                if d not in dims and shape[d] == shape[dims[k]]:
                    yield "wrong dimension", updated(broadcast_dimensions=(*dims[:k], d, *dims[k + 1 :]))
        case "concatenate":
            for a, b in itertools.combinations(range(len(types)), 2):
                if types[a] == types[b] and step.operands[a] != step.operands[b]:
                    yield "operands swapped", replace(step, operands=_swapped(step.operands, a, b))
        case "select" if step.operands[1] != step.operands[2]:
            yield "operands swapped", replace(step, operands=_swapped(step.operands, 1, 2))
        case "constant":
            yield from ((kind, updated(value=value)) for kind, value in _other_constants(attrs["value"]))
    if len(types) == 2 and types[0] == types[1] and step.operands[0] != step.operands[1]:
        if action.name not in _COMMUTING and action.name != "concatenate":
            yield "operands swapped", replace(step, operands=step.operands[::-1])


def _other_constants(literal: Literal) -> Iterator[tuple[str, Literal]]:
    value, dtype = literal.array.reshape(-1)[:1], literal.array.dtype
    if not literal.splat or dtype.kind != "f" or not np.isfinite(value[0]):
        return

    def splat(number: float) -> Literal:
        return Literal(np.broadcast_to(np.array(number, dtype), literal.array.shape))

    number = float(value[0])
    yield "scale wrong", splat(number * 2 if number else 1)
    if 0 < abs(number) < 1e-4:
        yield "small term dropped", splat(0)
    elif number and splat(number * (1 + 2e-6)) != literal:
        yield "constant times 1 + 2e-6", splat(number * (1 + 2e-6))


def _of_operands(plan: StepPlan, number: int) -> Iterator[tuple[str, Step]]:
    """An operand is the latest other value of its type that was there before."""
    step = plan.steps[number]
    before = [*plan.inputs, *(v for s in plan.steps[:number] for v in s.results)]
    for k, operand in enumerate(step.operands):
        alike = [v for v in before if plan.types[v] == plan.types[operand] and v not in step.operands]
        if alike:
            yield "stale value", replace(step, operands=(*step.operands[:k], alike[-1], *step.operands[k + 1 :]))


def _of_bodies(step: Step) -> Iterator[tuple[str, Step]]:
    action = step.action
    if isinstance(action, Loop):
        for kind, body in mutants(action.body):
            yield kind, _with(step, replace(action, body=body))
    if isinstance(action, Branch):
        for k, branch in enumerate(action.branches):
            for kind, body in mutants(branch):
                branches = (*action.branches[:k], body, *action.branches[k + 1 :])
                yield kind, _with(step, replace(action, branches=branches))


def _dropped(step: Step) -> Iterator[tuple[str, int]]:
    """Why a step may be missing, and which operand is then taken for its result."""
    match step.action:
        case Mask() | EdgeFill() | BoxSelect():
            yield "mask dropped", 0
        case AllReduce():
            yield "all-reduce missing", 0
        case KeepFirst():
            yield "keep-first missing", 0
        case Local(name="select"):
            yield "mask dropped", 1
        case Local(name="multiply" | "divide"):
            yield "scale missing", 0
        case Local(name="add" | "subtract"):
            yield "term dropped", 0


def _without(plan: StepPlan, number: int, which: int) -> StepPlan | None:
    """The plan without a step; None where its operand has another type than its result."""
    step = plan.steps[number]
    stands = dict(zip(step.results, step.operands[which : which + len(step.results)], strict=True))
    if any(plan.types[a] != plan.types[b] for a, b in stands.items()):
        return None

    def renamed(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(stands.get(v, v) for v in values)

    steps = tuple(replace(s, operands=renamed(s.operands)) for k, s in enumerate(plan.steps) if k != number)
    return replace(plan, steps=steps, outputs=renamed(plan.outputs))


def _twice(plan: StepPlan, number: int) -> StepPlan:
    step = plan.steps[number]
    new = tuple(range(len(plan.types), len(plan.types) + len(step.results)))
    steps = (*plan.steps[:number], replace(step, results=new), replace(step, operands=new), *plan.steps[number + 1 :])
    return replace(plan, steps=steps, types=(*plan.types, *(plan.types[v] for v in step.results)), held=())


def _other_axes(mesh: Mesh, axes: Sequence[str]) -> list[tuple[str, ...]]:
    others = [(name,) for name in mesh.axes if (name,) != tuple(axes)]
    return others + ([tuple(axes[1:])] if len(axes) > 1 else [])


def _swapped(items: Sequence[int], a: int, b: int) -> tuple[int, ...]:
    out = list(items)
    out[a], out[b] = out[b], out[a]
    return tuple(out)

