"""Joining of independent communication: halo exchanges share collective-permutes, all-reduces a latency.

This is a pass over a finished device program. What may be joined is delayed until no other step can run; all that then
wait over the same axes are independent and may become one step, where that is cheaper. Other steps keep their order,
except for those that a joint step needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eggshard.costmodel.pricing import Pricer
from eggshard.program.types import TensorType
from eggshard.spmd.sharing import cheapest_joint
from eggshard.steps.assemble import Assembler
from eggshard.steps.dependencies import Dependencies, needs_first
from eggshard.steps.nested import with_nested
from eggshard.steps.steps import Action, AllReduce, Pairs, Step, StepPlan
from eggshard.steps.window_steps import WindowExchange, pairs_of

#: Fraction of the price that joining must save, so that rounding alone is no reason.
SAVING = 1e-12

#: What steps have in common that may be joined: axes, the reduction if it is one, and element type.
Lane = tuple[tuple[str, ...], str, str]
#: The kinds of steps that may be joined.
JOINABLE = (WindowExchange, AllReduce)


def joined(plan: StepPlan, price: Pricer, kinds: tuple[type[Action], ...] = JOINABLE) -> StepPlan:
    """Join halo exchanges and all-reduces wherever the cost model prices the joint step below separate ones.

    XLA combines the all-reduces of one step into one collective. kinds: of the steps to join. Loops and branches are
    included. Returns the plan itself if there is nothing to join.
    """
    steps = tuple(_inside(step, lambda inner: joined(inner, price, kinds)) for step in plan.steps)
    if any(new is not old for new, old in zip(steps, plan.steps, strict=True)):
        plan = replace(plan, steps=steps)
    lanes = {i: _lane(plan, step) for i, step in enumerate(plan.steps) if isinstance(step.action, kinds)}
    if len(set(lanes.values())) == len(lanes):
        return plan
    order = Dependencies(plan)
    bundles = [b for waiting in _waiting(plan, order, lanes) for b in _together(plan, waiting, price) if len(b) > 1]
    return _rebuilt(plan, order, bundles, price) if bundles else plan


def _inside(step: Step, change: Callable[[StepPlan], StepPlan]) -> Step:
    """The step with the device programs inside it changed; the step itself where they stay as they are."""
    action = with_nested(step.action, change)
    return step if action is step.action else replace(step, action=action)


def _waiting(plan: StepPlan, order: Dependencies, lanes: Mapping[int, Lane]) -> Iterator[list[int]]:
    """The steps of each lane that wait at the same time, in an order in which they can be issued.

    Those go first that the longest chain of such steps depends on: the others may still be joined by some of it.
    """
    chain = [0] * len(plan.steps)
    for i in reversed(range(len(plan.steps))):
        chain[i] = max((chain[j] for j in order.after[i]), default=0) + (i in lanes)
    missing = [len(needed) for needed in order.before]
    ready = [i for i, n in enumerate(missing) if not n]
    held: dict[Lane, list[int]] = {}
    while ready or held:
        if ready:
            i = heapq.heappop(ready)
            if i in lanes:
                held.setdefault(lanes[i], []).append(i)
                continue
            done = [i]
        else:
            done = held.pop(max(held, key=lambda lane: (max(chain[i] for i in held[lane]), len(held[lane]))))
            yield done
        for j in (j for i in done for j in order.after[i]):
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, j)


def _lane(plan: StepPlan, step: Step) -> Lane:
    action = step.action
    return action.axes, action.monoid if isinstance(action, AllReduce) else "", plan.types[step.operands[0]].dtype


def _together(plan: StepPlan, waiting: Sequence[int], price: Pricer) -> list[list[int]]:
    """Which of some independent steps of one lane are issued together."""
    if isinstance(plan.steps[waiting[0]].action, WindowExchange):
        return _bundles(plan, waiting, price)
    apart = sum(_price(plan, [i], price) for i in waiting)
    return [sorted(waiting)] if _price(plan, waiting, price) < apart * (1 - SAVING) else []


def _bundles(plan: StepPlan, waiting: Sequence[int], price: Pricer) -> list[list[int]]:
    """Which of some independent exchanges are issued together; each goes to where it saves most."""
    bundles: list[tuple[list[int], float, set[Pairs]]] = []
    ways = {i: {pairs_of(loads) for loads in _exchange(plan, [i], price).travelling} for i in waiting}
    count = {i: len(_exchange(plan, [i], price).exchanges[0].offsets) for i in waiting}
    # Those that go most ways come first: others that have no way in common may both join them.
    for i in sorted(waiting, key=lambda i: (-len(ways[i]), i)):
        alone = _price(plan, [i], price)
        saved = []
        for b, (members, cost, taken) in enumerate(bundles):
            if taken & ways[i] or (_leaves_room(taken, count[i]) and _leaves_room(ways[i], count[i])):
                together = _price(plan, sorted([*members, i]), price)
                if together < (cost + alone) * (1 - SAVING):
                    saved.append((cost + alone - together, -b, together))
        if saved:
            _, b, together = max(saved)
            members, _, taken = bundles[-b]
            bundles[-b] = sorted([*members, i]), together, taken | ways[i]
        else:
            bundles.append(([i], alone, ways[i]))
    return [members for members, _, _ in bundles]


def _leaves_room(ways: Iterable[Pairs], count: int) -> bool:
    """Whether some devices send nothing in one of the permutes."""
    return any(len(pairs) < count for pairs in ways)


def _joint(plan: StepPlan, members: Sequence[int], price: Pricer) -> Action:
    """What some steps of one lane are as one step."""
    action = plan.steps[members[0]].action
    return _exchange(plan, members, price) if isinstance(action, WindowExchange) else action


def _exchange(plan: StepPlan, members: Sequence[int], price: Pricer) -> WindowExchange:
    """The exchanges of some steps as one."""
    actions = [plan.steps[i].action for i in members]
    if len(actions) == 1:
        (action,) = actions
        assert isinstance(action, WindowExchange)
        return action
    parts = [p for a in actions if isinstance(a, WindowExchange) for p in a.exchanges]
    return cheapest_joint(plan.mesh, parts, _types(plan, members), price)


def _price(plan: StepPlan, members: Sequence[int], price: Pricer) -> float:
    return price(_joint(plan, members, price), *_types(plan, members))


def _types(plan: StepPlan, members: Iterable[int]) -> list[TensorType]:
    return [plan.types[v] for i in members for v in plan.steps[i].operands]


def _rebuilt(plan: StepPlan, order: Dependencies, bundles: Iterable[Sequence[int]], price: Pricer) -> StepPlan:
    """The device program in its old order, with each bundle one step where its first stood, after what it needs."""
    bundle_of = {i: tuple(members) for members in bundles for i in members}
    assembler = Assembler(plan.mesh)
    values = {v: assembler.input(plan.types[v]) for v in plan.inputs}
    assembler.hold_as(plan, values, plan.inputs)
    done: set[int] = set()
    for first in range(len(plan.steps)):
        for members in needs_first(
            bundle_of.get(first, (first,)), lambda top: [bundle_of.get(j, (j,)) for i in top for j in order.before[i]],
            lambda top: top[0] in done,
        ):
            steps = [plan.steps[i] for i in members]
            action = steps[0].action if len(steps) == 1 else _joint(plan, members, price)
            operands = tuple(values[v] for step in steps for v in step.operands)
            why = tuple(dict.fromkeys(w for step in steps for w in step.why))
            label = ", ".join(dict.fromkeys(step.label for step in steps if step.label))
            origins = tuple(dict.fromkeys(origin for step in steps for origin in step.origins))
            made = assembler.emit(action, operands, why, label, origins)
            values.update(zip((v for step in steps for v in step.results), made, strict=True))
            assembler.hold_as(plan, values, (v for step in steps for v in step.results))
            done.update(members)
    return assembler.build([values[v] for v in plan.outputs])
