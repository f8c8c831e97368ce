"""Loops whose iterations are alike: one row of iterations, for any state, and what is left after all rows.

A plan runs a counted loop of the program as a loop of rows, each as many iterations of the program's, and the rest. If
a row maps any state to what so many iterations of the program map it to, rows do so however often they run: by
induction. So the state before a row, and the one after all rows, become inputs, of random elements; that a row is one
of those iterations, and that the loop begins with the program's state, is compared. Counters are run, to see how many
iterations a row and all rows are; nothing else may depend on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eggshard.ops.regions.counted_loops import Counter, find_counter, grows_by, integer, scalar
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType, is_float, numpy_dtype
from eggshard.prove.sizes.classes import Container, inner_of, items
from eggshard.simulate.simulator import run
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Local, Step, StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Rows that are counted at most.
_MOST = 1 << 12


class _Counted(NamedTuple):
    """A counted loop of the program. counts: by the places of carried integers where they begin and by how much they
    grow; what else is carried is its state."""

    op: Op
    counter: Counter
    counts: dict[int, tuple[int, int]]

    @property
    def state(self) -> list[int]:
        return [k for k in range(len(self.op.operands)) if k not in self.counts]


def rows_of(plan: PlanRecord) -> tuple[PlanRecord, int] | None:
    """The plan with a row in place of each loop of them, and how many states that makes; None without such loops."""
    made = plan
    while (found := _of_one_row(made)) is not None:
        made = found
    states = len(made.device_program.inputs) - len(plan.device_program.inputs)
    return (made, states) if states else None


def _of_one_row(plan: PlanRecord) -> PlanRecord | None:
    region, steps = plan.program.region, plan.device_program.steps
    for number, op in enumerate(region.ops):
        counted = _counted(region, op) if op.name == "while" else None
        for other, step in enumerate(steps if counted is not None else ()):
            assert counted is not None
            found = _rows(plan, counted, step)
            if found is not None:
                return _rewritten(plan, number, other, counted, found)
    return None


def _counted(region: Region, op: Op) -> _Counted | None:
    """A loop that runs while a counter is less than a number, of integers that count and a state of floats, apart."""
    counter = find_counter(*op.regions)
    if counter is None or counter.direction != "LT" or counter.limit is None:
        return None
    made = {v: o for o in region.ops for v in o.results}
    counts = {}
    for k, v in enumerate(op.operands):
        if not is_float(region.types[v].dtype):
            start, step = integer(made.get(v)), grows_by(op.regions[0], op.regions[1], k)
            if start is None or step is None:
                return None
            counts[k] = start, step
    return _Counted(op, counter, counts) if _apart(op.regions[1], counts) else None


def _apart(body: Container, counts: Collection[int]) -> bool:
    """Whether what a body makes of integers, and what of all else, do not depend on one another."""
    of_counts = _dependent(body, [v for k, v in enumerate(body.inputs) if k in counts])
    of_state = _dependent(body, [v for k, v in enumerate(body.inputs) if k not in counts])
    return not any(v in (of_state if k in counts else of_counts) for k, v in enumerate(body.outputs))


def _dependent(container: Container, on: Collection[int]) -> set[int]:
    """The values that may depend on some inputs."""
    found = set(on)
    for number, item in enumerate(items(container)):
        inner = list(inner_of((), number, item))
        if len(inner) == 2 and not inner[0].outputs:
            condition, body = inner[0].container, inner[1].container
            carried = [v in found for v in item.operands]
            while True:
                going = _dependent(condition, _marked(condition, carried))
                after = _dependent(body, _marked(body, carried))
                new = [c or v in after or condition.outputs[0] in going
                       for c, v in zip(carried, body.outputs, strict=True)]
                if new == carried:
                    break
                carried = new
            found.update(v for v, c in zip(item.results, carried, strict=True) if c)
        elif found.intersection(item.operands):
            found.update(item.results)
    return found


def _marked(container: Container, marks: Sequence[bool]) -> list[int]:
    return [v for v, mark in zip(container.inputs, marks, strict=True) if mark]


class _Rows(NamedTuple):
    """The rows that a loop of the plan runs. trips: iterations of a row. done: of all rows. ends: by the places of
    integers that it carries where they end. own: how many of those come before what the program's loop carries.
    placements: where it holds that."""

    trips: int
    done: int
    ends: dict[int, int]
    own: int
    placements: tuple[Placement, ...]


def _rows(plan: PlanRecord, counted: _Counted, step: Step) -> _Rows | None:
    """The rows that a step runs; None for a step that is anything else."""
    loop, region, device_program = step.action, plan.program.region, plan.device_program
    own = len(step.operands) - len(counted.op.operands)
    if not isinstance(loop, Loop) or not 0 <= own <= 1 or not loop.body.held:
        return None
    before, after = ([h.placement for v in values if (h := loop.body.held[v]) is not None]
                     for values in (loop.body.inputs[own:], loop.body.outputs[own:]))
    types, placements = [region.types[v] for v in counted.op.operands], tuple(before)
    if before != after or len(placements) != len(types) or any(p.partial for p in placements) or any(
        p.local_type(t) != device_program.types[v]
        for p, t, v in zip(placements, types, step.operands[own:], strict=True)
    ):
        return None
    counts = {own + k: steps for k, (_, steps) in counted.counts.items()}
    integers = [*range(own), *counts]
    state = [v for k, v in enumerate(loop.condition.inputs) if k not in integers]
    if not _apart(loop.body, integers) or loop.condition.outputs[0] in _dependent(loop.condition, state):
        return None
    starts = {k: _integer(device_program, step.operands[k]) for k in integers}
    if any(starts[own + k] != start for k, (start, _) in counted.counts.items()):
        return None
    rows = list(_run(loop, {
        k: np.array(start, numpy_dtype(device_program.types[step.operands[k]].dtype))
        for k, start in starts.items() if start is not None}))
    if len(rows) < 3 or not rows[-1] or len(rows[-1]) < len(integers):
        return None
    grown = {k: rows[1][k] - rows[0][k] for k in integers}
    if any(row[k] != rows[0][k] + n * grown[k] for n, row in enumerate(rows) for k in integers):
        return None
    limit, trips = counted.counter.limit or 0, grown[own + counted.counter.position] // counted.counter.step
    if trips < 1 or rows[-1][own + counted.counter.position] > limit:
        return None
    if any(grown[k] != trips * steps for k, steps in counts.items()):
        return None
    return _Rows(trips, trips * (len(rows) - 1), rows[-1], own, placements)


def _integer(device_program: StepPlan, value: int) -> int | None:
    """The integer that a value is by its constant."""
    made = next((s.action for s in device_program.steps if value in s.results), None)
    return scalar(made.attributes["value"]) if isinstance(made, Local) and made.name == "constant" else None


def _run(loop: Loop, starts: dict[int, np.ndarray]) -> Iterator[dict[int, int]]:
    """The integers that a loop carries before each of its iterations, and after the last; {} where devices differ."""
    places = list(starts)
    condition, body = _only(loop.condition, places, [0]), _only(loop.body, places, places)
    values = [np.broadcast_to(start, (loop.body.mesh.size,)) for start in starts.values()]
    for _ in range(_MOST):
        yield {k: int(v[0]) for k, v in zip(places, values, strict=True)}
        if not run(condition, values)[0].all():
            return
        values = run(body, values)
        if any((v != v[0]).any() for v in values):
            break
    yield {}


def _only(plan: StepPlan, inputs: Sequence[int], outputs: Sequence[int]) -> StepPlan:
    """What makes some outputs of these inputs alone, of which they are made; loops carry no more than that."""
    needed = {plan.outputs[k] for k in outputs}
    kept: list[Step] = []
    for step in reversed(plan.steps):
        if not needed.intersection(step.results):
            continue
        if isinstance(step.action, Loop):
            step = _narrow(step, needed)
        kept.append(step)
        needed.update(step.operands)
    number = {plan.inputs[k]: k for k in inputs}
    given = {v: place for place, v in enumerate(number)}
    made = {v: len(given) + k for k, v in enumerate(v for step in reversed(kept) for v in step.results)}
    use = given | made
    return replace(
        plan, inputs=tuple(range(len(given))), outputs=tuple(use[plan.outputs[k]] for k in outputs), held=(),
        types=tuple(plan.types[v] for v in use),
        steps=tuple(replace(step, operands=tuple(use[v] for v in step.operands),
                            results=tuple(use[v] for v in step.results)) for step in reversed(kept)),
    )


def _narrow(step: Step, needed: Collection[int]) -> Step:
    """A loop that carries what some of its results are made of, and no more."""
    loop = step.action
    assert isinstance(loop, Loop)
    carried = {k for k, v in enumerate(step.results) if v in needed}
    while True:
        of_each = {k: _dependent(loop.body, [v]) for k, v in enumerate(loop.body.inputs)}
        going = {k for k, v in enumerate(loop.condition.inputs)
                 if loop.condition.outputs[0] in _dependent(loop.condition, [v])}
        new = carried | going | {
            k for k, after in of_each.items() if any(loop.body.outputs[c] in after for c in carried)}
        if new == carried:
            break
        carried = new
    places = sorted(carried)
    action = replace(loop, condition=_only(loop.condition, places, [0]), body=_only(loop.body, places, places))
    return replace(step, action=action, operands=tuple(step.operands[k] for k in places),
                   results=tuple(step.results[k] for k in places))


def _rewritten(plan: PlanRecord, number: int, other: int, counted: _Counted, rows: _Rows) -> PlanRecord:
    region, device_program = plan.program.region, plan.device_program
    op, counter, counts = counted
    step, data = device_program.steps[other], counted.state
    assert isinstance(step.action, Loop)
    one = _Room(region, [region.types[op.operands[k]] for k in data])
    two = _Room(device_program, [device_program.types[step.operands[rows.own + k]] for k in data])
    rest, rest_there = {}, {}
    for k, end in rows.ends.items():
        if k >= rows.own:
            constant = next(o for o in region.ops if op.operands[k - rows.own] in o.results)
            (rest[k - rows.own],) = one.placed(constant, attributes=_with_value(constant, end))
        source = next(s for s in device_program.steps if step.operands[k] in s.results)
        assert isinstance(source.action, Local)
        (rest_there[k],) = two.placed(source, action=replace(
            source.action, attributes=_with_value(source.action, end)))
    # The program: iterations of a row on any state, and the rest of them.
    start, by = counts[counter.position]
    condition = _with_limit(op.regions[0], start + rows.trips * by)
    row = one.looped(op, {k: one.use(op.operands[k]) for k in counts} | dict(zip(data, one.states[0], strict=True)),
                     regions=(condition, op.regions[1]), attributes=op.attributes.updated(trip_count=rows.trips))
    left = -(-((counter.limit or 0) - start - rows.done * by) // by)
    results = one.looped(op, rest | dict(zip(data, one.states[1], strict=True)),
                         attributes=op.attributes.updated(trip_count=left))
    one.finish(number, dict(zip(op.results, results, strict=True)))
    # The plan: a row's steps on any state, and what follows all rows.
    body, there = step.action.body, [rows.own + k for k in data]
    values = {body.inputs[k]: two.use(step.operands[k]) for k in rows.ends}
    made = two.inlined(body, values | {body.inputs[k]: v for k, v in zip(there, two.states[0], strict=True)})
    after = rest_there | dict(zip(there, two.states[1], strict=True))
    two.finish(other, {step.results[k]: v for k, v in after.items()})
    lemmas = [
        [*(room.use(item.operands[own + k]) for k in data), *(outputs[own + k] for k in data)]
        for room, item, outputs, own in ((one, op, row, 0), (two, step, made, rows.own))
    ]
    of_state = tuple(rows.placements[k] for k in data)
    count = 2 * len(data)
    program = replace(
        plan.program, region=one.built(region.outputs, lemmas[0]), text=None, input_names=(), output_names=(),
        input_shardings=(*plan.program.input_shardings, *(None,) * count),
        output_shardings=(*plan.program.output_shardings, *(None,) * count),
    )
    return replace(plan, program=program, device_program=two.built(device_program.outputs, lemmas[1]),
                   input_placements=(*plan.input_placements, *of_state, *of_state),
                   output_placements=(*plan.output_placements, *of_state, *of_state))


def _with_value(constant: Op | Local, value: int) -> Attributes:
    """A constant's attributes with another integer."""
    array = np.array(value, constant.attributes["value"].array.dtype)
    return constant.attributes.updated(value=Literal(array))


def _with_limit(condition: Region, limit: int) -> Region:
    """A counter's condition with another limit: the one integer constant in it that it compares with."""
    compared = next(op for op in condition.ops if condition.outputs[0] in op.results).operands

    def limited(op: Op) -> Op:
        if op.name != "constant" or not {*compared}.intersection(op.results):
            return op
        return replace(op, attributes=_with_value(op, limit))

    return replace(condition, ops=tuple(map(limited, condition.ops)))


class _Room:
    """A region or device program that gets states, twice, as further inputs, and ops or steps in place of one."""

    def __init__(self, container: Container, states: Sequence[TensorType]):
        self._container, self._added = container, []  # type: tuple[Container, list[Any]]
        old, count = len(container.inputs), len(states)
        self._number = {v: v if v < old else v + 2 * count for v in range(len(container.types))}
        self._types = [*container.types[:old], *states, *states, *container.types[old:]]
        self.states = [[old + k * count + i for i in range(count)] for k in range(2)]
        self._items: list[Any] = []
        self._inputs = old + 2 * count

    def use(self, value: int) -> int:
        """A value by its new number."""
        return self._number[value]

    def _new(self, types: Sequence[TensorType]) -> tuple[int, ...]:
        self._types += types
        return tuple(range(len(self._types) - len(types), len(self._types)))

    def placed(self, item: Any, **changes: Any) -> tuple[int, ...]:
        """The results of one more op or step without operands, another with some changes."""
        results = self._new([self._container.types[v] for v in item.results])
        self._added.append(replace(item, results=results, **changes))
        return results

    def looped(self, op: Op, given: dict[int, int], **changes: Any) -> tuple[int, ...]:
        """The results of a loop that begins with other values."""
        return self.placed(op, operands=tuple(given[k] for k in range(len(given))), **changes)

    def inlined(self, body: StepPlan, values: dict[int, int]) -> list[int]:
        """The outputs of a body's steps, of these values as inputs."""
        for step in body.steps:
            results = self._new([body.types[v] for v in step.results])
            self._added.append(replace(step, operands=tuple(values[v] for v in step.operands), results=results))
            values |= dict(zip(step.results, results, strict=True))
        return [values[v] for v in body.outputs]

    def finish(self, number: int, results: dict[int, int]) -> None:
        """Put what was added in place of an op or step, whose results are others."""
        for k, item in enumerate(items(self._container)):
            if k == number:
                self._items += self._added
                self._number |= results
            else:
                self._items.append(replace(item, operands=tuple(map(self.use, item.operands)),
                                           results=tuple(map(self.use, item.results))))

    def built(self, outputs: Sequence[int], lemmas: Sequence[int]) -> Any:
        """The region or device program, with further outputs."""
        part: Any = {"ops": tuple(self._items)} if isinstance(self._container, Region) else {
            "steps": tuple(self._items), "held": ()}
        return replace(self._container, inputs=tuple(range(self._inputs)), types=tuple(self._types),
                       outputs=(*map(self.use, outputs), *lemmas), **part)
