"""Loops that are proved by their bodies, for any state, and what is left after them.

A plan runs a counted loop of the program as a loop of rows, each as many iterations of the program's, and the rest. If
a row maps any state to what so many iterations of the program map it to, rows do so however often they run: by
induction. So the state before a row, and the one after all rows, become inputs, of random elements; that a row is one
of those iterations, and that the loop begins with the program's state, is compared. Counters are run, to see how many
iterations a row and all rows are. Where nothing else depends on them, one row is like all; where something does, as the
layer that a scan looks at, each iteration is compared with its counters, all of them of the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from eggshard.steps.held import Held
from eggshard.steps.steps import Local, Step, StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Rows that are counted at most, and iterations that are compared one by one.
_MOST, _ONE_BY_ONE = 1 << 12, 64


class _Counted(NamedTuple):
    """A counted loop of the program. counts: by the places of carried integers where they begin and by how much they
    grow. fixed: the places of what stays as it is; what else is carried is its state."""

    op: Op
    counter: Counter
    counts: dict[int, tuple[int, int]]
    fixed: set[int]

    @property
    def state(self) -> list[int]:
        return [k for k in range(len(self.op.operands)) if k not in self.counts and k not in self.fixed]


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
    """A loop that runs while a counter is less than a number, of integers that count and a state of floats."""
    counter = find_counter(*op.regions)
    if counter is None or counter.direction != "LT" or counter.limit is None:
        return None
    made = {v: o for o in region.ops for v in o.results}
    counts, fixed = {}, _fixed(op.regions[1])
    for k, v in enumerate(op.operands):
        if k not in fixed and not is_float(region.types[v].dtype):
            start, step = integer(made.get(v)), grows_by(op.regions[0], op.regions[1], k)
            if start is None or step is None:
                return None
            counts[k] = start, step
    counted = _Counted(op, counter, counts, fixed)
    return counted if counter.position in counts and _count_alone(op.regions[1], counts) else None


def _fixed(body: Container) -> set[int]:
    """The places of what a body leaves as it is."""
    return {k for k, (v, w) in enumerate(zip(body.inputs, body.outputs, strict=True)) if v == w}


def _count_alone(body: Container, counts: Collection[int]) -> bool:
    """Whether what a body makes of integers that count depends on nothing else."""
    of_others = _dependent(body, [v for k, v in enumerate(body.inputs) if k not in counts])
    return not any(body.outputs[k] in of_others for k in counts)


def _apart(body: Container, counts: Collection[int]) -> bool:
    """Whether what a body makes of all else does not depend on integers that count."""
    of_counts = _dependent(body, [v for k, v in enumerate(body.inputs) if k in counts])
    return not any(v in of_counts for k, v in enumerate(body.outputs) if k not in counts)


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
    """The rows that a loop of the plan runs. trips: iterations of a row. counted: by row the integers that it carries,
    by their places; after the last row, too. counts, state: the places of what the program's loop carries in the places
    of `_Counted`; placements: where the state is held. apart: no state depends on integers."""

    trips: int
    counted: list[dict[int, int]]
    counts: list[int]
    state: list[int]
    placements: tuple[Placement, ...]
    apart: bool

    @property
    def done(self) -> int:
        """Iterations of all rows."""
        return self.trips * (len(self.counted) - 1)


def _rows(plan: PlanRecord, counted: _Counted, step: Step) -> _Rows | None:
    """The rows that a step runs; None for a step that is anything else."""
    loop, region, device_program = step.action, plan.program.region, plan.device_program
    if not isinstance(loop, Loop) or not loop.body.held:
        return None
    fixed = _fixed(loop.body)
    changing = [k for k in range(len(step.operands)) if k not in fixed]
    integers = [k for k in changing if not is_float(device_program.types[step.operands[k]].dtype)]
    state, own = [k for k in changing if k not in integers], len(integers) - len(counted.counts)
    if not 0 <= own <= 1 or len(state) != len(counted.state):
        return None
    before, after = ([h.placement for k in state if (h := loop.body.held[values[k]]) is not None]
                     for values in (loop.body.inputs, loop.body.outputs))
    types, placements = [region.types[counted.op.operands[k]] for k in counted.state], tuple(before)
    if before != after or len(placements) != len(types) or any(p.partial for p in placements) or any(
        p.local_type(t) != device_program.types[step.operands[k]]
        for p, t, k in zip(placements, types, state, strict=True)
    ):
        return None
    counts = dict(zip(counted.counts, integers[own:], strict=True))
    rest = [v for k, v in enumerate(loop.condition.inputs) if k not in integers]
    if not _count_alone(loop.body, integers) or loop.condition.outputs[0] in _dependent(loop.condition, rest):
        return None
    starts = {k: _integer(device_program, step.operands[k]) for k in integers}
    if any(starts[counts[k]] != start for k, (start, _) in counted.counts.items()):
        return None
    rows = list(_run(loop, {
        k: np.array(start, numpy_dtype(device_program.types[step.operands[k]].dtype))
        for k, start in starts.items() if start is not None}))
    if len(rows) < 3 or not rows[-1] or len(rows[-1]) < len(integers):
        return None
    grown = {k: rows[1][k] - rows[0][k] for k in integers}
    if any(row[k] != rows[0][k] + n * grown[k] for n, row in enumerate(rows) for k in integers):
        return None
    counter = counts[counted.counter.position]
    limit, trips = counted.counter.limit or 0, grown[counter] // counted.counter.step
    if trips < 1 or rows[-1][counter] > limit:
        return None
    if any(grown[counts[k]] != trips * steps for k, (_, steps) in counted.counts.items()):
        return None
    apart = _apart(counted.op.regions[1], counted.counts) and _apart(loop.body, integers)
    if not apart and (trips > 1 or rows[-1][counter] < limit or len(rows) > _ONE_BY_ONE):
        return None
    return _Rows(trips, rows, [*counts.values()], state, placements, apart)


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
    op, step, data = counted.op, device_program.steps[other], counted.state
    assert isinstance(step.action, Loop)
    one = _Room(region, [region.types[op.operands[k]] for k in data])
    two = _Room(device_program, [device_program.types[step.operands[k]] for k in rows.state])
    carried = [one.given(op.operands, counted.counts, data), two.given(step.operands, rows.counted[0], rows.state)]
    made: list[int] = []
    made_there: list[int] = []
    held: list[tuple[int, Held]] = []
    for integers in rows.counted[:-1] if not rows.apart else rows.counted[:1]:
        now = {k: integers[place] for k, place in zip(counted.counts, rows.counts, strict=True)}
        before = carried[0].at(now, 0)
        body, values = step.action.body, {}
        if rows.apart:
            results = _iterations(one, counted, rows.trips, before)
        else:
            values = one.inlined(op.regions[1], before)
            results = [values[v] for v in op.regions[1].outputs]
        made += [results[k] for k in data]
        there = two.inlined(body, carried[1].at(integers, 0))
        made_there += [there[body.outputs[k]] for k in rows.state]
        held += [(there[w], h._replace(value=values[h.value]))
                 for w, h in enumerate(body.held) if h and w in there and h.value in values]
    # What follows all rows, of any state: the rest of the program's iterations.
    last = rows.counted[-1]
    ends = carried[0].at({k: last[place] for k, place in zip(counted.counts, rows.counts, strict=True)}, 1)
    left = -(-((counted.counter.limit or 0) - counted.counts[counted.counter.position][0]) // counted.counter.step)
    if left > rows.done:
        ends = dict(enumerate(one.looped(op, ends, attributes=op.attributes.updated(trip_count=left - rows.done))))
    one.finish(number, {v: ends[k] for k, v in enumerate(op.results)})
    ends = carried[1].at(last, 1)
    two.finish(other, {v: ends[k] for k, v in enumerate(step.results)})
    lemmas = [
        [*(room.use(item.operands[k]) for k in places), *results]
        for room, item, places, results in ((one, op, data, made), (two, step, rows.state, made_there))
    ]
    of_state = rows.placements
    program = replace(
        plan.program, region=one.built(region.outputs, lemmas[0]), text=None, input_names=(), output_names=(),
        input_shardings=(*plan.program.input_shardings, *(None,) * 2 * len(data)),
        output_shardings=(*plan.program.output_shardings, *(None,) * len(lemmas[0])),
    )
    repeated = len(lemmas[0]) // max(1, len(data))
    held += [(two.use(w), h._replace(value=one.use(h.value))) for w, h in enumerate(device_program.held)
             if h and h.value >= 0]
    return replace(plan, program=program, device_program=two.built(device_program.outputs, lemmas[1], dict(held)),
                   input_placements=(*plan.input_placements, *of_state * 2),
                   output_placements=(*plan.output_placements, *of_state * repeated))


def _iterations(room: _Room, counted: _Counted, trips: int, before: dict[int, int]) -> Sequence[int]:
    """What so many iterations of the program make of what is carried."""
    op, counter = counted.op, counted.counter
    condition = _with_limit(op.regions[0], counted.counts[counter.position][0] + trips * counter.step)
    return room.looped(op, before, regions=(condition, op.regions[1]),
                       attributes=op.attributes.updated(trip_count=trips))


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

    def given(self, operands: Sequence[int], counts: Collection[int], state: Sequence[int]) -> _Carried:
        """What a loop of these operands carries, counts and state in these places."""
        constants = {k: next(o for o in items(self._container) if operands[k] in o.results) for k in counts}
        return _Carried(self, operands, constants, state)

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

    def inlined(self, body: Container, carried: dict[int, int]) -> dict[int, int]:
        """What the values of a body become, whose ops or steps take these as inputs."""
        values = {v: carried[k] for k, v in enumerate(body.inputs)}
        for item in items(body):
            results = self._new([body.types[v] for v in item.results])
            self._added.append(replace(item, operands=tuple(values[v] for v in item.operands), results=results))
            values |= dict(zip(item.results, results, strict=True))
        return values

    def finish(self, number: int, results: dict[int, int]) -> None:
        """Put what was added in place of an op or step, whose results are others."""
        for k, item in enumerate(items(self._container)):
            if k == number:
                self._items += self._added
                self._number |= results
            else:
                self._items.append(replace(item, operands=tuple(map(self.use, item.operands)),
                                           results=tuple(map(self.use, item.results))))

    def built(self, outputs: Sequence[int], lemmas: Sequence[int], held: Mapping[int, Held] | None = None) -> Any:
        """The region or device program, with further outputs; held: what is known of the latter's values."""
        part: Any = {"ops": tuple(self._items)} if isinstance(self._container, Region) else {
            "steps": tuple(self._items), "held": tuple(map((held or {}).get, range(len(self._types))))}
        return replace(self._container, inputs=tuple(range(self._inputs)), types=tuple(self._types),
                       outputs=(*map(self.use, outputs), *lemmas), **part)


class _Carried(NamedTuple):
    """What a loop carries. counts: by place the constants that it begins with. state: the places of it."""

    room: _Room
    operands: Sequence[int]
    counts: dict[int, Op | Step]
    state: Sequence[int]

    def at(self, counts: dict[int, int], state: int) -> dict[int, int]:
        """By place what is carried where the counts are these, of the first or the second state."""
        values = {k: self.room.use(v) for k, v in enumerate(self.operands)}
        for k, constant in self.counts.items():
            (values[k],) = self.room.placed(constant, **_counting(constant, counts[k]))
        return values | dict(zip(self.state, self.room.states[state], strict=True))


def _counting(constant: Op | Step, value: int) -> dict[str, Any]:
    """What changes of a constant of another value."""
    if isinstance(constant, Op):
        return {"attributes": _with_value(constant, value)}
    assert isinstance(constant.action, Local)
    return {"action": replace(constant.action, attributes=_with_value(constant.action, value))}
