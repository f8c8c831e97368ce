"""Strip-mining of device programs: a loop over strips replaces steps whose intermediate arrays would fill memory.

Compilers schedule for themselves, so steps on parts written out in sequence may all run at once; iterations of a loop
do not. Starting from one step, every step before or after it that can be cut alike joins the loop, as long as no step
in the loop needs, through steps outside, the whole of what another one makes. The loop reads strips of outside arrays
and writes its results strip by strip. Its collectives move the same bytes in more messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from eggshard.memory.strips.spans import even, passes
from eggshard.memory.strips.strip_ops import COUNTER, Writer
from eggshard.memory.strips.strip_steps import StripSteps, before_strips
from eggshard.memory.strips.strips import Line, Strip, lines
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Step, StepPlan

#: Approximate numbers of strips that are tried for a loop (`python -m bench memory`).
PARTS = (2, 4, 8, 16)
#: How many times the bytes of its operands a step's results take so that readers rather make them again than hold them.
_LARGER = 2
#: The number of steps, those with the largest values in bytes, that are tried as starts of a loop.
_STARTS = 8


@dataclass
class Band:
    """Steps of a program, by number, that are cut alike: the line of each."""

    program: StepPlan
    lines: dict[int, Line] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Into how many parts it could be cut at most."""
        return min(line.results[0].length for line in self.lines.values())

    def made(self) -> dict[int, Strip]:
        """The values that its steps make, and how each is cut."""
        steps = self.program.steps
        return {v: s for i, line in self.lines.items() for v, s in zip(steps[i].results, line.results, strict=True)}


class Cut(NamedTuple):
    """A program of which some steps can run in strips: into how many, ascending, and the program that does."""

    parts: tuple[int, ...]
    into: Callable[[int], StepPlan]


def cuts(program: StepPlan, again: bool = False) -> Iterator[Cut]:
    """The ways to run steps of a program, or of a loop's body, in strips.

    again: the ways in which steps run more than once that make much of little, for each reader (`made_again`).
    """
    several: set[int] = set()
    if again:
        program, several = made_again(program)
    for band in bands(program):
        if again and several.isdisjoint(band.made()):
            continue
        parts = counts(band.length)
        if parts:
            yield Cut(parts, partial(in_strips, band))
    for i, step in enumerate(program.steps):
        if isinstance(step.action, Loop):
            for cut in cuts(step.action.body, again):
                yield Cut(cut.parts, partial(_inside, program, i, cut))


def made_again(program: StepPlan) -> tuple[StepPlan, set[int]]:
    """The program in which every reader of what takes more bytes than what it is made of makes it for itself; and the
    values that are made so, each of them and its copies.

    It is to be cut: what is in no loop then is made once, as before.
    """
    types, held, several = [*program.types], [*program.held], set[int]()
    steps: list[Step] = []  # from the last one on
    readers: dict[int, list[int]] = {}

    def append(step: Step) -> None:
        for v in dict.fromkeys(step.operands):
            readers.setdefault(v, []).append(len(steps))
        steps.append(step)

    def copied(step: Step, reader: int) -> Step:
        copies = {v: len(types) + n for n, v in enumerate(step.results)}
        types.extend(program.types[v] for v in step.results)
        held.extend(program.held[v] for v in step.results if program.held)
        operands = tuple(copies.get(v, v) for v in steps[reader].operands)
        steps[reader] = replace(steps[reader], operands=operands)
        return replace(step, results=tuple(copies.values()))

    for step in reversed(program.steps):
        reading = sorted({i for v in step.results for i in readers.get(v, ())})
        taken, made = (sum(program.types[v].bytes for v in ends) for ends in (step.operands, step.results))
        again = made >= _LARGER * taken > 0 and not step.action.has_effects and not {*step.results} & {*program.outputs}
        for reader in reading[1:] if again else ():
            append(copied(step, reader))
            several.update(step.results, steps[-1].results)
        append(step)
    return replace(program, steps=tuple(reversed(steps)), types=tuple(types), held=tuple(held)), several


def counts(length: int) -> tuple[int, ...]:
    """Into how many strips of equal width a length is cut, about as many as `PARTS` say; the last ones may overlap."""
    found = (-(-length // -(-length // n)) for n in PARTS)
    return tuple(sorted({n for n in found if n > 1}))


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
                    if maker is not None and end is not None and self._joins(band, maker, v, end):
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
    spans = passes(program, band.lines, {v: even(made[v].length, parts) for v in results})
    besides = before_strips(out, program, band.lines, spans, values)
    start = Writer(out)
    carried = [start.number([0]), *(start.empty(program.types[v]) for v in results), *(values[v] for v in given)]
    carried += besides.values

    body = Assembler(program.mesh)
    counter, *here = [body.input(out.types[v]) for v in carried]
    whole = dict(zip((*results, *given), here, strict=False))
    inner = besides.at(dict(zip(besides.values, here[len(whole) :], strict=True)))
    steps = StripSteps(body, program, band.lines, spans.loop, whole, inner, counter)
    for i in sorted(band.lines):
        steps.write(i)
    put = [steps.put(whole[v], v, made[v], spans.loop[v]) for v in results]
    following = steps.op("add", Attributes(), COUNTER, counter, steps.number([1]))

    condition = Assembler(program.mesh)
    first = [condition.input(out.types[v]) for v in carried][0]
    test = Writer(condition)
    less = Attributes(comparison_direction="LT", compare_type="SIGNED")
    goes_on = test.op("compare", less, TensorType((), "i1"), first, test.number([parts]))

    loop = Loop(condition.build((goes_on,)), body.build((following, *put, *here[len(results) :])), parts)
    found = out.emit(loop, tuple(carried), (f"in {parts} strips",))
    values.update(zip(results, found[1:], strict=False))
