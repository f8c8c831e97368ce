"""Loops whose carried arrays alternate between two buffers.

An iteration of a stencil makes less of an array than it reads, and the rest stays as it is: a stale rim, or the ends of
a domain. XLA:CPU puts such an array together by testing the index of every element, without vector code. So two
iterations are written as one: the first writes what it makes into a second array, in place, and the other back into
the first. A five-point step of 128x1024 floats on each of 8 devices takes half of the time that one padded with zeros
does, on two cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eggshard.emit.body_text import Value
from eggshard.emit.windows_text import Strip, WindowText, strips_outside
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Local, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, Crop, local_range

#: Turns from which one more, which an odd number of them takes, is worth it; steps up to which a body is written twice:
#: it is compiled twice, too, and where much is computed, how it is stored matters less.
_ODD, _STEPS = 7, 64
_CONTROL = frozenset({"case", "if", "while"})
#: The part of an array that one value has to cover.
_COVERED = 0.5


class Laid(NamedTuple):
    """A step that lays its first operand into a larger array, or replaces its ends; and where in the array its result
    begins. same: the other values are those that the array has there before the iteration."""

    step: Step
    start: tuple[int, ...]
    same: bool = False


class Assembled(NamedTuple):
    """How a body's output is put together: a value, where in the output it begins, and what is done then, in order.

    alone: nothing else is made of the value.
    """

    value: int
    start: tuple[int, ...]
    then: tuple[Laid, ...]
    alone: bool


def turns_of(plan: StepPlan, step: Step) -> int | None:
    """How often a loop runs that counts its first carried value from a constant up to another, one by one."""
    loop = step.action
    if not isinstance(loop, Loop) or not step.operands:
        return None
    start = _integer(makers_of(plan).get(step.operands[0]))
    compared, counted = (makers_of(p).get(p.outputs[0]) for p in (loop.condition, loop.body))
    comparison = _local(compared, "compare")
    if start is None or comparison is None or _local(counted, "add") is None:
        return None
    limit, by = _second(loop.condition, compared), _second(loop.body, counted)
    if by != 1 or limit is None or comparison.attributes["comparison_direction"] != "LT":
        return None
    return max(0, limit - start)


def assembled(loop: Loop, turns: int) -> dict[int, Assembled]:
    """By place the outputs of a loop's body that it puts together; none where two buffers would not pay."""
    body = loop.body
    if turns < 2 or len(body.steps) > _STEPS or loop.has_effects:
        return {}
    if turns % 2 and (turns < _ODD or not _may_run_once_more(body)):
        return {}
    uses = Counter(body.outputs)
    for step in body.steps:
        uses.update(step.operands)
    makers = makers_of(body)
    found = {}
    for place, (given, output) in enumerate(zip(body.inputs, body.outputs, strict=True)):
        one = _assembled(body, makers, uses, given, output)
        if one is not None:
            found[place] = one
    return found


def _may_run_once_more(body: StepPlan) -> bool:
    """Whether an iteration too many costs no more than its time: it sends nothing, and has no loop that might not end
    for a state that the program does not come to."""
    return not body.messages and not any(
        isinstance(step.action, Loop | Branch) or isinstance(step.action, Local) and step.action.name in _CONTROL
        for step in body.steps)


def _assembled(
    body: StepPlan, makers: Mapping[int, Step], uses: Counter[int], given: int, output: int
) -> Assembled | None:
    start, value = (0,) * body.types[output].rank, output
    then: list[Laid] = []
    while uses[value] == 1 and value in makers:
        step = makers[value]
        low = _laid_at(body, step)
        if low is None:
            break
        same = isinstance(step.action, BoxSelect) and cut_from(body, makers, step.operands[1]) == (given, start)
        then.append(Laid(step, start, same))
        start, value = tuple(a + b for a, b in zip(start, low, strict=True)), step.operands[0]
    whole, held = (body.types[v].elements for v in (output, value))
    if value not in makers or not whole > held >= _COVERED * whole:
        return None
    return Assembled(value, start, tuple(reversed(then)), uses[value] == 1)


def _laid_at(body: StepPlan, step: Step) -> tuple[int, ...] | None:
    """Where in the result of a step its first operand begins, on all devices; None of what is more than laid there."""
    action, type_ = step.action, body.types[step.operands[0]] if step.operands else None
    if type_ is None:
        return None
    if isinstance(action, BoxSelect):
        few = all(_strips(body, step, number) is not None for number in range(len(action.box)))
        return (0,) * type_.rank if few and type_.rank else None
    if isinstance(action, Crop):
        at = action.offsets[0]
        if len(set(action.offsets)) > 1 or not 0 <= at <= action.new - type_.shape[action.dim]:
            return None
        return tuple(at if d == action.dim else 0 for d in range(type_.rank))
    if pad := _local(step, "pad"):
        low, high, interior = (pad.attributes[name] for name in
                               ("edge_padding_low", "edge_padding_high", "interior_padding"))
        return None if any(interior) or min((*low, *high), default=0) < 0 else tuple(low)
    if wrap := _local(step, "wrap"):
        return tuple(wrap.attributes["lhs"] if d == wrap.attributes["dimension"] else 0 for d in range(type_.rank))
    return None


def cut_from(body: StepPlan, makers: Mapping[int, Step], value: int) -> tuple[int, tuple[int, ...]]:
    """The value that another one is a box of, and where that begins."""
    start = [0] * body.types[value].rank
    while value in makers:
        step = makers[value]
        action = step.action
        if isinstance(action, Crop) and action.cuts(body.types[step.operands[0]]):
            start[action.dim] -= action.offsets[0]
        elif (cut := _local(step, "slice")) and set(cut.attributes["strides"]) <= {1}:
            start = [a + b for a, b in zip(start, cut.attributes["start_indices"], strict=True)]
        else:
            break
        value = step.operands[0]
    return value, tuple(start)


def _strips(body: StepPlan, step: Step, number: int) -> list[Strip] | None:
    """What a `BoxSelect` replaces along one dimension of its box; None if that is over half, or all on a device."""
    action = step.action
    assert isinstance(action, BoxSelect)
    dim, window, start, stop = action.box[number]
    low, high = local_range(body.mesh, window, start, stop)
    return None if (low == high).any() else strips_outside(body.types[step.operands[0]].shape[dim], low, high)


class _Write(NamedTuple):
    """A box of the array that is written over: all of it by a value, or a strip of a box where that says so; by what
    stands so many places further along a dimension if ``shift`` is not 0."""

    start: tuple[int, ...]
    stop: tuple[int, ...]
    laid: Laid | None = None
    dim: int = 0
    strip: Strip | None = None
    shift: int = 0

    @property
    def whole(self) -> bool:
        """Whether every element is written."""
        return self.strip is None or self.strip.everywhere

    @property
    def same(self) -> bool:
        """Whether what is written is what the array has there before the iteration."""
        return self.laid is not None and self.laid.same

    def covers(self, other: _Write) -> bool:
        return all(a <= b for a, b in zip(self.start, other.start, strict=True)) and all(
            a >= b for a, b in zip(self.stop, other.stop, strict=True))

    def meets(self, other: _Write) -> bool:
        return all(max(a, c) < min(b, d) for a, b, c, d in zip(
            self.start, self.stop, other.start, other.stop, strict=True))


def written(text: WindowText, body: StepPlan, one: Assembled, values: Mapping[int, Value], array: Value) -> Value:
    """The array, which holds this output of the iteration before last, with that of this one written over it."""
    first = _box(one.start, body.types[one.value].shape)
    writes = [first]
    for laid in one.then:
        writes += _writes(body, laid)
    # What is written over later need not be written; nor what both arrays have held since the loop began.
    last = [w for i, w in enumerate(writes) if not any(v.whole and v.covers(w) for v in writes[i + 1 :])]
    kept = [w for w in last if not (w.same and w.whole and all(v is w or v.same or not v.meets(w) for v in last))]
    ends: dict[_Write, Value] = {}
    for i, w in enumerate(kept):
        if w.shift and w not in ends:
            ends |= _ends(text, array, [v for v in kept[i:] if v.shift and v.laid is w.laid])
        if w.laid is None:
            corner = [text.integer(n) for n in w.start]
            array = text.dynamic_update_slice(array, values[one.value], corner)
        elif w.shift:
            array = text.dynamic_update_slice(array, ends[w], [text.integer(n) for n in w.start])
        elif w.strip is None:
            shape = tuple(b - a for a, b in zip(w.start, w.stop, strict=True))
            filled = text.broadcast(values[w.laid.step.operands[1]], shape)
            array = text.dynamic_update_slice(array, filled, [text.integer(n) for n in w.start])
        else:
            other = values[w.laid.step.operands[1]]
            shape = body.types[w.laid.step.operands[0]].shape
            array = text.strip(array, shape, w.laid.start, w.dim, w.strip, other, in_place=True)
    return array


def _ends(text: WindowText, array: Value, writes: Sequence[_Write]) -> dict[_Write, Value]:
    """What is written over the ends of an array, read elsewhere in it.

    All of it is one value, which any of the writes waits for: else XLA:CPU would write into a copy of the array.
    """
    boxes = [[[n + w.shift * (d == w.dim) for d, n in enumerate(c)] for c in (w.start, w.stop)] for w in writes]
    pieces = [text.slice(array, start, stop) for start, stop in boxes]
    return dict(zip(writes, text.apart(text.fence(text.in_a_line(pieces)), pieces), strict=True))


def _box(start: tuple[int, ...], shape: tuple[int, ...]) -> _Write:
    return _Write(start, tuple(a + n for a, n in zip(start, shape, strict=True)))


def _writes(body: StepPlan, laid: Laid) -> Iterator[_Write]:
    """What a step writes besides its first operand."""
    step, shape = laid.step, body.types[laid.step.results[0]].shape
    inner, whole = body.types[step.operands[0]].shape, _box(laid.start, shape)

    def along(dim: int, start: int, stop: int, strip: Strip | None = None, shift: int = 0) -> _Write:
        begins, ends = list(whole.start), list(whole.stop)
        begins[dim], ends[dim] = laid.start[dim] + start, laid.start[dim] + stop
        return _Write(tuple(begins), tuple(ends), laid, dim, strip, shift)

    if isinstance(step.action, BoxSelect):
        for number, (dim, *_) in enumerate(step.action.box):
            for strip in _strips(body, step, number) or ():
                yield along(dim, strip.start, strip.stop, strip)
    elif pad := _local(step, "pad"):
        for dim, low in enumerate(pad.attributes["edge_padding_low"]):
            for start, stop in ((0, low), (low + inner[dim], shape[dim])):
                if start < stop:
                    yield along(dim, start, stop)
    elif wrap := _local(step, "wrap"):
        dim, low, high = (wrap.attributes[name] for name in ("dimension", "lhs", "rhs"))
        size = inner[dim]
        if low:
            yield along(dim, 0, low, shift=size)
        if high:
            yield along(dim, low + size, low + size + high, shift=-size)


def makers_of(plan: StepPlan) -> dict[int, Step]:
    """The steps by which values are made."""
    return {v: step for step in plan.steps for v in step.results}


def _local(step: Step | None, name: str) -> Local | None:
    """The action of a step that is an op of this name."""
    action = None if step is None else step.action
    return action if isinstance(action, Local) and action.name == name else None


def _second(plan: StepPlan, step: Step | None) -> int | None:
    """The constant second operand of a step whose first one is the plan's first input."""
    if step is None or step.operands[0] != plan.inputs[0]:
        return None
    return _integer(makers_of(plan).get(step.operands[1]))


def _integer(step: Step | None) -> int | None:
    constant = _local(step, "constant")
    if constant is None:
        return None
    array = constant.attributes["value"].array
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
