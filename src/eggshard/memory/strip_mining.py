"""Strip-mining: steps that run in a loop over strips, so that what passes between them is never whole in memory.

Compilers schedule for themselves, so steps on parts that are written out one after the other may all run at once;
iterations of a loop do not. Starting from one step, whatever can be cut alike before and after it joins the loop, as
long as the loop runs as one: no step of it needs, by way of others, what another one makes whole. The loop reads strips
of arrays from outside, and writes its results strip by strip. Its collectives move the same bytes in more messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from eggshard.memory.strips import Line, Strip, lines, narrowed
from eggshard.plan.assemble import Assembler
from eggshard.plan.control_steps import Loop
from eggshard.plan.steps import Local, Step, StepPlan
from eggshard.program.program import Attributes, Literal
from eggshard.program.types import TensorType, numpy_dtype

#: Into about how many strips loops cut.
PARTS = (2, 4, 8, 16)
#: So many steps with the largest values are tried as starts of a loop.
_STARTS = 8
_COUNTER = TensorType((), "i32")


@dataclass
class Band:
    """Steps of a program, by number, that are cut alike: the line of each."""

    program: StepPlan
    lines: dict[int, Line] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Into how many parts it could be cut at most."""
        return next(iter(self.lines.values())).results[0].length

    def made(self) -> dict[int, Strip]:
        """The values that its steps make, and how each is cut."""
        steps = self.program.steps
        return {v: s for i, line in self.lines.items() for v, s in zip(steps[i].results, line.results, strict=True)}


class Cut(NamedTuple):
    """A program of which some steps can run in strips: into how many, ascending, and the program that does."""

    parts: tuple[int, ...]
    into: Callable[[int], StepPlan]


def cuts(program: StepPlan) -> Iterator[Cut]:
    """The ways to run steps of a program, or of a loop's body, in strips."""
    for band in bands(program):
        parts = divisors(band.length)
        if parts:
            yield Cut(parts, partial(in_strips, band))
    for i, step in enumerate(program.steps):
        if isinstance(step.action, Loop):
            for cut in cuts(step.action.body):
                yield Cut(cut.parts, partial(_inside, program, i, cut))


def divisors(length: int) -> tuple[int, ...]:
    """Into how many equal parts a length is cut: for each of `PARTS` the least from it on, below its double."""
    found = (next((d for d in range(n, 2 * n) if length % d == 0), 0) for n in PARTS)
    return tuple(d for d in found if d)


def _inside(program: StepPlan, i: int, cut: Cut, parts: int) -> StepPlan:
    """The program with the body of its loop ``i`` cut."""
    step = program.steps[i]
    assert isinstance(step.action, Loop)
    loop = replace(step, action=replace(step.action, body=cut.into(parts)))
    return replace(program, steps=(*program.steps[:i], loop, *program.steps[i + 1 :]))


def bands(program: StepPlan) -> Iterator[Band]:
    """Steps that can run in one loop, grown from those with the largest values; no two bands are equal."""
    if program.has_effects:
        return
    grower = _Grower(program)
    size = {
        i: sum(program.types[v].bytes for v in (*step.operands, *step.results)) for i, step in enumerate(program.steps)
    }
    seen: set[frozenset[tuple[int, Line]]] = set()
    for i in sorted(size, key=lambda i: (-size[i], i))[:_STARTS]:
        for line in grower.lines[i]:
            for up, down in ((True, True), (False, True), (True, False), (False, False)):
                band = grower.grown(i, line, up, down)
                key = frozenset(band.lines.items())
                if key not in seen:
                    seen.add(key)
                    yield band


class _Grower:
    def __init__(self, program: StepPlan):
        self.program = program
        types = program.types
        self.lines = [
            lines(program.mesh, s.action, [types[v] for v in s.operands], [types[v] for v in s.results])
            for s in program.steps
        ]
        self.maker = {v: i for i, s in enumerate(program.steps) for v in s.results}
        self.users: dict[int, list[int]] = {}
        for i, s in enumerate(program.steps):
            for v in dict.fromkeys(s.operands):
                self.users.setdefault(v, []).append(i)

    def grown(self, start: int, line: Line, up: bool, down: bool) -> Band:
        """The band of one step, and of those before and after it that can be cut alike."""
        band = Band(self.program, {start: line})
        queue = [start]
        steps = self.program.steps
        while queue:
            i = queue.pop(0)
            if down:
                for v, strip in zip(steps[i].results, band.lines[i].results, strict=True):
                    queue += [u for u in self.users.get(v, ()) if self._joins(band, u, v, strip)]
            if up:
                for v, end in zip(steps[i].operands, band.lines[i].operands, strict=True):
                    maker = self.maker.get(v)
                    if maker is not None and end is not None and end.start is None and self._joins(band, maker, v, end):
                        queue.append(maker)
        self._settle(band, start)
        return band

    def _joins(self, band: Band, i: int, value: int, strip: Strip) -> bool:
        """Take a step into a band that it can be cut for, so that ``value`` is cut like this."""
        if i in band.lines:
            return False
        step = self.program.steps[i]
        for line in self.lines[i]:
            ends = zip((*step.operands, *step.results), (*line.operands, *line.results), strict=True)
            for end in [e for v, e in ends if v == value and e is not None]:
                found = line.at(end, strip)
                if found is not None and self._fits(band, i, found):
                    band.lines[i] = found
                    return True
        return False

    def _fits(self, band: Band, i: int, line: Line) -> bool:
        """Whether a step reads what the band makes in the strips in which it is made, and makes it as it is read."""
        step, made = self.program.steps[i], band.made()
        reads = all(v not in made or made[v] == e for v, e in zip(step.operands, line.operands, strict=True))
        return reads and all(
            e == s for v, s in zip(step.results, line.results, strict=True) for u in self.users.get(v, ())
            if u in band.lines for w, e in zip(self.program.steps[u].operands, band.lines[u].operands, strict=True)
            if w == v
        )

    def _settle(self, band: Band, start: int) -> None:
        """Keep the steps that can run in the loop of the first: those that wait for no more of other steps than it."""
        level: list[int] = []
        for i, step in enumerate(self.program.steps):
            level.append(max((
                level[p] + (p in band.lines and i not in band.lines) for v in step.operands
                if (p := self.maker.get(v, -1)) >= 0
            ), default=0))
        kept = {i for i in band.lines if level[i] == level[start]}
        band.lines = {i: line for i, line in band.lines.items() if i in kept}


def in_strips(band: Band, parts: int) -> StepPlan:
    """The program with a band's steps in a loop of so many iterations."""
    program = band.program
    out = Assembler(program.mesh)
    values = {v: out.input(program.types[v]) for v in program.inputs}

    def emit(steps: Sequence[Step]) -> None:
        for s in steps:
            made = out.again(s, tuple(values[v] for v in s.operands))
            values.update(zip(s.results, made, strict=True))

    after: set[int] = set()
    late: list[Step] = []
    early: list[Step] = []
    for i, step in enumerate(program.steps):
        if i in band.lines or any(v in after for v in step.operands):
            after.update(step.results)
            if i not in band.lines:
                late.append(step)
        else:
            early.append(step)
    emit(early)
    _emit_loop(out, band, parts, values)
    emit(late)
    return out.build(values[v] for v in program.outputs)


def _emit_loop(out: Assembler, band: Band, parts: int, values: dict[int, int]) -> None:
    program, made = band.program, band.made()
    inside = [program.steps[i] for i in sorted(band.lines)]
    needed = {v for i, s in enumerate(program.steps) if i not in band.lines for v in s.operands} | {*program.outputs}
    results = [v for v in made if v in needed]
    given = list(dict.fromkeys(v for s in inside for v in s.operands if v not in made))
    types = [_COUNTER, *(program.types[v] for v in (*results, *given))]

    body = Assembler(program.mesh)
    counter, *carried = [body.input(t) for t in types]
    whole = dict(zip((*results, *given), carried, strict=True))
    parted: dict[int, int] = {}
    cutter = _Cutter(body, counter, parts)
    for i in sorted(band.lines):
        step, line = program.steps[i], band.lines[i]
        operands = tuple(
            parted[v] if v in made else whole[v] if strip is None else cutter.cut(whole[v], strip)
            for v, strip in zip(step.operands, line.operands, strict=True)
        )
        before = [[program.types[v] for v in vs] for vs in (step.operands, step.results)]
        action = narrowed(program.mesh, step.action, line, parts, *before)
        parted.update(zip(step.results, body.again(step, operands, action), strict=True))
    put = [cutter.put(whole[v], parted[v], made[v]) for v in results]
    (following,) = body.emit(_op("add", _COUNTER), (counter, cutter.number(1)), ("in strips",))

    condition = Assembler(program.mesh)
    first = [condition.input(t) for t in types][0]
    limit = _number(condition, parts)
    less = Attributes(comparison_direction="LT", compare_type="SIGNED")
    (goes_on,) = condition.emit(Local("compare", less, (TensorType((), "i1"),)), (first, limit), ("in strips",))

    loop = Loop(condition.build((goes_on,)), body.build((following, *put, *carried[len(results) :])), parts)
    empty = [_empty(out, program.types[v]) for v in results]
    found = out.emit(loop, (_number(out, 0), *empty, *(values[v] for v in given)), (f"in {parts} strips",))
    values.update(zip(results, found[1:], strict=False))


class _Cutter:
    """Reads and writes the strips of one iteration."""

    def __init__(self, body: Assembler, counter: int, parts: int):
        self.body, self.counter, self.parts = body, counter, parts

    def number(self, value: int) -> int:
        return _number(self.body, value)

    def cut(self, value: int, strip: Strip) -> int:
        type_ = self.body.types[value]
        seen = self._seen(type_, strip)
        window = seen.with_shape(self._window(seen, strip))
        starts = self._starts(seen, strip)
        taken = Local("dynamic_slice", Attributes(slice_sizes=window.shape), (window,))
        return self._shaped(self.body.emit(taken, (self._shaped(value, seen), *starts), ("in strips",))[0],
                            strip.of(type_, self.parts))

    def put(self, whole: int, part: int, strip: Strip) -> int:
        type_ = self.body.types[whole]
        seen = self._seen(type_, strip)
        window = seen.with_shape(self._window(seen, strip))
        operands = self._shaped(whole, seen), self._shaped(part, window), *self._starts(seen, strip)
        return self._shaped(self.body.emit(_op("dynamic_update_slice", seen), operands, ("in strips",))[0], type_)

    def _seen(self, type_: TensorType, strip: Strip) -> TensorType:
        shape = type_.shape
        parts = strip.outer, shape[strip.dim] // (strip.outer * strip.inner), strip.inner
        return type_.with_shape((*shape[: strip.dim], *parts, *shape[strip.dim + 1 :]))

    def _window(self, seen: TensorType, strip: Strip) -> tuple[int, ...]:
        shape = seen.shape
        return (*shape[: strip.dim + 1], strip.length // self.parts, *shape[strip.dim + 2 :])

    def _starts(self, seen: TensorType, strip: Strip) -> list[int]:
        times = self.number(strip.length // self.parts)
        (start,) = self.body.emit(_op("multiply", _COUNTER), (self.counter, times), ("in strips",))
        if strip.start:
            (start,) = self.body.emit(_op("add", _COUNTER), (start, self.number(strip.start)), ("in strips",))
        return [start if d == strip.dim + 1 else self.number(0) for d in range(seen.rank)]

    def _shaped(self, value: int, type_: TensorType) -> int:
        if self.body.types[value] == type_:
            return value
        reshape = Local("reshape", Attributes(shape=type_.shape), (type_,))
        return self.body.emit(reshape, (value,), ("in strips",))[0]


def _op(name: str, type_: TensorType) -> Local:
    return Local(name, Attributes(), (type_,), (), float(type_.elements) if type_.rank == 0 else 0.0)


def _number(body: Assembler, value: int) -> int:
    literal = Literal(np.asarray(value, numpy_dtype("i32")))
    return body.emit(Local("constant", Attributes(value=literal), (_COUNTER,)), (), ("in strips",))[0]


def _empty(body: Assembler, type_: TensorType) -> int:
    """Memory for a result, which the loop fills."""
    zero = Literal(np.zeros((), numpy_dtype(type_.dtype)))
    scalar = type_.with_shape(())
    (value,) = body.emit(Local("constant", Attributes(value=zero), (scalar,)), (), ("in strips",))
    if not type_.rank:
        return value
    fill = Attributes(broadcast_dimensions=(), shape=type_.shape)
    return body.emit(Local("broadcast_in_dim", fill, (type_,)), (value,), ("in strips",))[0]


