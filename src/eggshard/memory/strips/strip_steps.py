"""Writer of steps on strips: one iteration of a loop over strips, or the ends of arrays before the loop.

A strip of a value is as wide as all its readers need together, and each reader takes its part. Where that part begins
differs between iterations only near the ends of arrays, and is looked up in a table. Elements that a step reads beyond
the ends of an operand are put before and after the strip, unless the op's window form fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.memory.strips.margins import margins_of
from eggshard.memory.strips.spans import Passes, Span, ends, inside
from eggshard.memory.strips.strip_ops import WHY, Writer, long, seen_as
from eggshard.memory.strips.strips import Line, Read, Strip, narrowed, window_form
from eggshard.ops import registry
from eggshard.ops.windowing import EDGE_MODES, Filled
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Local, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect, HaloExchange


class Besides(NamedTuple):
    """Values that steps on strips use besides their operands, computed before the loop.

    margins: by step and operand what stands below and above the operand (None: nothing that matters). boxes: of
    selections, where along the strips' dimension the box is: true and false.
    """

    margins: dict[tuple[int, int], tuple[int | None, int | None]]
    boxes: dict[int, int]

    @property
    def values(self) -> list[int]:
        """The numbers of all these values, each once."""
        margins = [v for pair in self.margins.values() for v in pair if v is not None]
        return list(dict.fromkeys((*margins, *self.boxes.values())))

    def at(self, values: Mapping[int, int]) -> Besides:
        """Return a copy with value numbers mapped by ``values``."""
        margins = {key: (None if below is None else values[below], None if above is None else values[above])
                   for key, (below, above) in self.margins.items()}
        return Besides(margins, {i: values[v] for i, v in self.boxes.items()})


class StripSteps(Writer):
    """Writes the steps of one iteration. ``whole``: the arrays from outside."""

    def __init__(
        self, out: Assembler, program: StepPlan, lines: Mapping[int, Line], spans: Mapping[int, Span],
        whole: Mapping[int, int], besides: Besides, counter: int | None = None,
    ):  # fmt: skip
        super().__init__(out, counter)
        self.program, self.lines, self.spans, self.whole, self.besides = program, lines, spans, whole, besides
        #: Values by number of which there are strips.
        self.strips: dict[int, int] = {}

    def write(self, i: int) -> None:
        """A step, if its results are needed here."""
        span = self.spans.get(self.program.steps[i].results[0])
        if span is not None:
            with self.out.chosen_for(*self.program.steps[i].origins):
                self._write(i, span)

    def _write(self, i: int, span: Span) -> None:
        step, line = self.program.steps[i], self.lines[i]
        if line.reads:
            made = [self._reading(i, step, line, span)]
        else:
            operands = tuple(
                self.whole[v] if strip is None else self.window(v, strip, span)
                for v, strip in zip(step.operands, line.operands, strict=True)
            )
            action = narrowed(step.action, line, span.width, *self._types(step))
            if isinstance(action, BoxSelect) and i in self.besides.boxes:
                made = [self._selected(action, operands, self.besides.boxes[i], line.results[0], span)]
            else:
                made = list(self.out.emit(action, operands, step.why, step.label))
        self.strips.update(zip(step.results, made, strict=True))

    # -- strips of operands --------------------------------------------------------------------------------------------

    def window(self, value: int, strip: Strip, span: Span) -> int:
        """A part of what there is of a value."""
        held = self.held(value, strip, span)
        found = self.strips[value] if value in self.strips else self.whole[value]
        return self.cut(found, strip, held, span)

    def held(self, value: int, strip: Strip, span: Span) -> Span:
        """What there is of a value."""
        return self.spans[value] if value in self.strips else Span((0,) * len(span.starts), strip.length)

    def put(self, whole: int, value: int, strip: Strip, span: Span) -> int:
        """An array with the strip of a value, which is this span of it."""
        type_ = self.out.types[whole]
        seen, window = seen_as(type_, strip, strip.length), seen_as(type_, strip, span.width)
        operands = self.shaped(whole, seen), self.shaped(self.strips[value], window)
        at = self.places(seen.rank, strip.dim + 1, span.starts)
        return self.shaped(self.op("dynamic_update_slice", Attributes(), seen, *operands, *at), type_)

    def aligned(self, i: int, k: int, read: Read, strip: Strip, span: Span) -> int:
        """Exactly what a step reads of an operand so that it makes a span of its result."""
        v, n = self.program.steps[i].operands[k], strip.length
        wanted = [read.indices(start, span.width) for start in span.starts]
        count = wanted[0][1]
        firsts = [first if read.beyond else min(max(first, -count), n) for first, _ in wanted]
        within = [inside(read, start, span.width, n) for start in span.starts]
        width = max(1, *(stop - start for start, stop in within))
        held = self.held(v, strip, span)
        starts = [min(max(a, h), h + held.width - width) for (a, _), h in zip(within, held.starts, strict=True)]
        value = self.window(v, strip, Span(tuple(starts), width))
        low, high = max(0, -min(firsts)), max(0, max(firsts) + count - n)
        if low or high:
            value = self._extended(i, k, read, value, strip.dim, low, high)
        begins = [
            low + (first if first < 0 else first - n + width if first + count > n else first - start)
            for first, start in zip(firsts, starts, strict=True)
        ]
        return self.cut(value, strip, Span((0,) * len(begins), low + width + high), Span(tuple(begins), count))

    def _extended(self, i: int, k: int, read: Read, value: int, dim: int, low: int, high: int) -> int:
        """A strip with what stands below and above its array, as far as some iteration reads it."""
        type_ = self.out.types[value]
        if read.beyond in EDGE_MODES:
            mode = Attributes(dimension=dim, lhs=low, rhs=high, mode=read.beyond)
            return self.op("extend", mode, long(type_, dim, low + type_.shape[dim] + high), value)
        if not read.beyond:
            zero = self.constant(np.zeros((), numpy_dtype(type_.dtype)), type_.dtype)
            widths = Attributes({
                "edge_padding_low": tuple(low if d == dim else 0 for d in range(type_.rank)),
                "edge_padding_high": tuple(high if d == dim else 0 for d in range(type_.rank)),
                "interior_padding": (0,) * type_.rank,
            })
            return self.op("pad", widths, long(type_, dim, low + type_.shape[dim] + high), value, zero)
        below, above = self.besides.margins[i, k]
        parts = [value]
        if low and below is not None:
            n = self.out.types[below].shape[dim]
            parts.insert(0, self.sliced(below, dim, n - low, n))
        if high and above is not None:
            parts.append(self.sliced(above, dim, 0, high))
        return self.joined(parts, dim)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _reading(self, i: int, step: Step, line: Line, span: Span) -> int:
        """A step that reads its operands elsewhere than at its results' indices."""
        given = []
        for k, (v, strip) in enumerate(zip(step.operands, line.operands, strict=True)):
            read = line.read(k)
            if strip is None:
                given.append(self.whole[v])
            elif read is None:
                given.append(self.window(v, strip, span))
            else:
                given.append(self.aligned(i, k, read, strip, span))
        action = step.action
        if not isinstance(action, Local):
            return given[0]
        operands, results = self._types(step)
        made, dim = line.results[0].of(results[0], span.width), line.results[0].dim
        form = window_form(action, dim, operands, results, [self.out.types[v] for v in given], [made])
        for fill in form.fills:
            if fill.value not in EDGE_MODES:
                given[fill.operand] = self._filled(step, line, given, fill, span)
        if form.layers:
            value = given[form.layers[0].operand]
            for layer in form.layers[1:]:
                for _, start, stop in layer.box:
                    value = self.chosen(self.within(span.starts, span.width, start, stop), dim,
                                        given[layer.operand], value)
            return value
        if form.attributes is None:
            return given[0]
        flops = registry.get(action.name).flops(form.attributes, tuple(self.out.types[v] for v in given), (made,))
        local = Local(action.name, form.attributes, (made,), (), flops)
        return self.out.emit(local, tuple(given), step.why, step.label)[0]

    def _types(self, step: Step) -> tuple[list[TensorType], list[TensorType]]:
        """The whole types of a step's operands and results."""
        types = self.program.types
        return [types[v] for v in step.operands], [types[v] for v in step.results]

    def _filled(self, step: Step, line: Line, given: Sequence[int], fill: Filled, span: Span) -> int:
        """An operand with what stands outside its box."""
        k = fill.operand
        value, read = given[k], line.read(k)
        assert read is not None
        if isinstance(fill.value, int):
            outside = given[fill.value]
        else:
            dtype = self.out.types[value].dtype
            outside = self.constant(np.asarray(monoids.identity(fill.value, dtype)), dtype)
        for dim, start, stop in fill.box:
            wanted = [read.indices(at, span.width) for at in span.starts]
            firsts, count = [first for first, _ in wanted], wanted[0][1]
            if min(firsts) < start or max(firsts) + count > stop:
                value = self.chosen(self.within(firsts, count, start, stop), dim, value, outside)
        return value

    def _selected(
        self, action: BoxSelect, operands: Sequence[int], chosen: int, strip: Strip, span: Span
    ) -> int:
        """A selection by a box that ends along the strips' dimension."""
        inside_, outside = operands
        others = tuple(box for box in action.box if box[0] != strip.dim)
        if others:
            (inside_,) = self.out.emit(BoxSelect(others), (inside_, outside), WHY)
        held = Span((0,) * len(span.starts), strip.length)
        where = self.cut(chosen, strip._replace(dim=0), held, span)
        return self.chosen(where, strip.dim, inside_, outside)


def before_strips(
    out: Assembler, program: StepPlan, lines: Mapping[int, Line], needed: Passes, whole: Mapping[int, int]
) -> Besides:
    """What the loop's steps use besides their operands, computed before it: see `Besides`."""
    besides = Besides({}, {})
    first, last = (StripSteps(out, program, lines, spans, whole, besides) for spans in (needed.first, needed.last))
    for i in sorted(lines):
        step, line = program.steps[i], lines[i]
        if not any(step.results[0] in spans for spans in needed):
            continue
        if isinstance(step.action, BoxSelect):
            along = tuple((0, *box[1:]) for box in step.action.box if box[0] == line.results[0].dim)
            if along:
                length = program.types[step.results[0]].shape[line.results[0].dim]
                besides.boxes[i] = _places_of(first, BoxSelect(along), length)
        for k, (v, strip) in enumerate(zip(step.operands, line.operands, strict=True)):
            count = ends(program, i, k, line)
            if strip is None or not any(count):
                continue
            spans = (Span((0,), count[0]), Span((strip.length - count[1],), count[1]))
            rows = [side.window(v, strip, span) if span.width else None
                    for side, span in zip((first, last), spans, strict=True)]
            besides.margins[i, k] = rows[1], rows[0]
            if isinstance(step.action, HaloExchange):
                sent = [r for r in rows if r is not None]
                besides.margins[i, k] = _received(first, step.action, program.types[v], sent)
        first.write(i)
        last.write(i)
    return besides


def _places_of(out: Writer, action: BoxSelect, length: int) -> int:
    """Where along one dimension a box is: ``[length]``, true and false."""
    type_ = TensorType((length,), "i1")
    true, false = (out.constant(np.asarray(value), "i1") for value in (True, False))
    return out.out.emit(action, (out.broadcast(true, type_), false), WHY)[0]


def _received(
    out: Writer, action: HaloExchange, operand: TensorType, rows: Sequence[int]
) -> tuple[int | None, int | None]:
    """What devices receive beyond the ends of what they keep, given what they send."""
    margins = margins_of(action, operand)
    assert margins is not None
    (found,) = out.out.emit(margins.action, (out.joined(rows, action.dim),), WHY)
    low, total = margins.low, margins.low + margins.high
    return (
        out.sliced(found, action.dim, 0, low) if low else None,
        out.sliced(found, action.dim, low, total) if margins.high else None,
    )
