"""Spans: the indices of every value that each iteration of a loop over strips computes.

They are worked out backwards from the wanted results. What several steps read of a value is computed once for all of
them, but overlaps of two strips are computed in each. All iterations compute equally many indices of a value, more than
needed near the ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.memory.strips.margins import margins_of
from eggshard.memory.strips.strips import Line, Read
from eggshard.ops.windowing import EDGE_MODES, repeated_index
from eggshard.steps.steps import StepPlan
from eggshard.steps.window_steps import HaloExchange

#: Half-open ranges of indices, one per iteration.
Ranges = Sequence[tuple[int, int]]


class Span(NamedTuple):
    """Indices of a value: per iteration where they begin, and how many they are."""

    starts: tuple[int, ...]
    width: int

    @classmethod
    def of(cls, ranges: Ranges, length: int) -> Span:
        """The indices that cover these ranges of a value of this length."""
        width = max(1, *(stop - start for start, stop in ranges))
        return cls(tuple(min(max(start, 0), length - width) for start, _ in ranges), width)

    @property
    def ranges(self) -> Ranges:
        """The iterations' indices as (start, stop) ranges."""
        return [(start, start + self.width) for start in self.starts]


class Passes(NamedTuple):
    """What is computed of each value: in the loop, and before it at the value's two ends, for what reads beyond them.

    A value that is in none of them is not needed.
    """

    loop: dict[int, Span]
    first: dict[int, Span]
    last: dict[int, Span]


def even(length: int, parts: int) -> Ranges:
    """Return ``parts`` ranges of equal width that cover a length; the last ones overlap where it does not divide."""
    width = -(-length // parts)
    return [(min(i * width, length - width), min((i + 1) * width, length)) for i in range(parts)]


def inside(read: Read, start: int, width: int, length: int) -> tuple[int, int]:
    """The indices of an operand of this length, but none beyond its ends, that so many of the result's need."""
    first, count = read.indices(start, width)
    low, high = (min(max(at, 0), length) for at in (first, first + count))
    if read.beyond in EDGE_MODES:
        ends = repeated_index(np.array([first, first + count - 1]), length, read.beyond)
        if first < 0:
            low, high = 0, max(high, int(ends.max()) + 1)
        if first + count > length:
            low, high = min(low, int(ends.min())), length
    return low, high


def passes(program: StepPlan, lines: Mapping[int, Line], wanted: Mapping[int, Ranges]) -> Passes:
    """What steps, by number, that are cut along these lines compute so that a loop makes what is wanted."""
    needed: list[dict[int, list[tuple[int, int]]]] = [{v: list(ranges) for v, ranges in wanted.items()}, {}, {}]
    found = Passes({}, {}, {})
    made = {v for i in lines for v in program.steps[i].results}

    def need(which: int, value: int, ranges: Ranges) -> None:
        before = needed[which].get(value, ranges)
        needed[which][value] = [_bounding_window(pair) for pair in zip(before, ranges, strict=True)]

    for i in sorted(lines, reverse=True):
        step, line = program.steps[i], lines[i]
        length = line.results[0].length
        for which, spans in enumerate(found):
            ranges = [needed[which][v] for v in step.results if v in needed[which]]
            if not ranges:
                continue
            span = Span.of([_bounding_window(each) for each in zip(*ranges, strict=True)], length)
            spans.update((v, span) for v in step.results)
            for k, (v, strip) in enumerate(zip(step.operands, line.operands, strict=True)):
                read = line.read(k)
                if v not in made or strip is None:
                    continue
                if read is None:
                    need(which, v, span.ranges)
                    continue
                need(which, v, [inside(read, start, span.width, strip.length) for start in span.starts])
                first, last = ends(program, i, k, line)
                if first:
                    need(1, v, [(0, first)])
                if last:
                    need(2, v, [(strip.length - last, strip.length)])
    return found


def _bounding_window(ranges: Ranges) -> tuple[int, int]:
    """The range that covers those that are not empty."""
    some = [r for r in ranges if r[0] < r[1]] or ranges[:1]
    return min(start for start, _ in some), max(stop for _, stop in some)


def ends(program: StepPlan, i: int, k: int, line: Line) -> tuple[int, int]:
    """How many indices at an operand's two ends its margins are made from; 0 where it has none."""
    read, step, strip = line.read(k), program.steps[i], line.operands[k]
    if read is None or strip is None:
        return 0, 0
    if isinstance(step.action, HaloExchange) and read.beyond == "received":
        margins = margins_of(step.action, program.types[step.operands[k]])
        return (margins.first, margins.last) if margins is not None else (0, 0)
    if read.beyond != "wrapped":
        return 0, 0
    low, high = read.margins(line.results[0].length, strip.length)
    return high, low
