"""A problem's choices and conversions as flat arrays, level by level.

A class needs classes of lower levels, or of its own cycle, which is on one level. So all classes of a level are
evaluated at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eggshard.selection.problem import Problem
from eggshard.selection.segments import Segments


class Level(NamedTuple):
    """Classes that are evaluated at once, and, if ``cyclic``, again until nothing changes.

    shards, choices, needs: their parts of the flat arrays. terms: ``[T]``, a segment per choice, its cost before its
    needs; cost, need: the positions of costs and of needs in it. order: the choices by class and out; made: in that
    order, a segment per out. conversion: ``[N]``, the costs of converting, by class and end; row: the number of the
    segment of ``made`` that each begins with; ends: a segment per end.
    """

    cyclic: bool
    shards: slice
    choices: slice
    needs: slice
    terms: Segments
    cost: np.ndarray
    need: np.ndarray
    order: np.ndarray
    made: Segments
    conversion: np.ndarray
    row: np.ndarray
    ends: Segments


class Levels:
    """The levels of a problem, operands before consumers.

    shards, choices: per class its part of the flat arrays. cost, out: of every choice. begin: per shard the number of
    its class's first choice. shard, operand: per need the number of the shard, and its class. inside: whether operand
    and consumer are in one cycle. whole: all levels as one.
    """

    def __init__(self, problem: Problem, components: Sequence[Sequence[int]], operands: Sequence[Sequence[int]]):
        component = {c: i for i, members in enumerate(components) for c in members}
        depth: list[int] = []
        for i, members in enumerate(components):
            depth.append(1 + max((depth[component[a]] for c in members for a in operands[c] if component[a] != i),
                                 default=-1))
        # What has no choice is had nowhere, and in no level.
        made = sorted((c for c in component if problem.choices[c] and len(problem.conversions[c])),
                      key=lambda c: depth[component[c]])
        order = [*made, *component.keys() - set(made)]
        self.shards = _parts(order, [len(table) for table in problem.conversions])
        self.choices = _parts(order, [len(choices) for choices in problem.choices])
        self.cost = np.array([s.cost for c in order for s in problem.choices[c]], float)
        self.out = np.array([s.out for c in order for s in problem.choices[c]], int)
        sizes = [len(problem.conversions[c]) for c in order]
        self.begin = np.repeat(np.array([self.choices[c].start for c in order], int), sizes)
        first = [part.start for part in self.shards]
        self.shard = np.array([first[a] + q for c in made for s in problem.choices[c] for a, q in s.needs], int)
        self.operand = np.repeat(np.array(order, int), sizes)[self.shard]
        sizes = [sum(len(s.needs) for s in problem.choices[c]) for c in made]
        number = np.array([component[c] for c in range(len(component))], int)
        self.inside = number[self.operand] == number[np.repeat(np.array(made, int), sizes)]
        self.whole = _laid_out(problem, made)
        self.levels: list[Level] = []
        for _, some in itertools.groupby(made, key=lambda c: depth[component[c]]):
            classes = list(some)
            cyclic = any(len(components[component[c]]) > 1 or c in operands[c] for c in classes)
            self.levels.append(self._level(cyclic, classes))

    def _level(self, cyclic: bool, classes: Sequence[int]) -> Level:
        shards, choices = (slice(of[classes[0]].start, of[classes[-1]].stop) for of in (self.shards, self.choices))
        whole = self.whole
        terms, made = _within(whole.terms, choices), whole.made.segment[choices]
        needs = slice(terms.start - choices.start, terms.stop - choices.stop)
        conversions = _within(whole.ends, shards)
        return Level(
            cyclic, shards, choices, needs, _from_zero(whole.terms.segment[terms]),
            whole.cost[choices] - terms.start, whole.need[needs] - terms.start, whole.order[choices] - choices.start,
            _from_zero(made), whole.conversion[conversions], whole.row[conversions] - made[0],
            _from_zero(whole.ends.segment[conversions]))


def _laid_out(problem: Problem, classes: Sequence[int]) -> Level:
    """These classes, one after the other."""
    choices = [s for c in classes for s in problem.choices[c]]
    tables = [problem.conversions[c] for c in classes]
    lengths, sizes = np.array([len(table) for table in tables], int), [len(problem.choices[c]) for c in classes]
    terms = Segments(np.repeat(np.arange(len(choices)), np.array([1 + len(s.needs) for s in choices], int)))
    need = np.ones(len(terms.segment), bool)
    need[terms.first] = False
    out = np.repeat(np.cumsum(lengths) - lengths, sizes) + np.array([s.out for s in choices], int)
    order = np.argsort(out, kind="stable")
    different, number = np.unique(out, return_inverse=True)
    made = Segments(number[order])
    # Per class how many of its placements it is made at, and the number of the first.
    first = np.searchsorted(different, np.cumsum(lengths) - lengths)
    count = np.diff(first, append=len(different))
    _, *rows = np.split(different - np.repeat(np.cumsum(lengths) - lengths, count), first)
    tables = [table[row].T.ravel() for table, row in zip(tables, rows, strict=True)]
    each = np.repeat(count, lengths)  # conversions to every shard
    ends = Segments(np.repeat(np.arange(len(each)), each))
    row = np.arange(len(ends.segment)) - (ends.first - np.repeat(first, lengths))[ends.segment]
    everything = slice(None)
    return Level(False, everything, everything, everything, terms, terms.first, np.flatnonzero(need), order, made,
                 np.concatenate([*tables, []]), row, ends)


def _parts(order: Sequence[int], sizes: Sequence[int]) -> list[slice]:
    """Per class its part of an array in which classes of these sizes follow one another in this order."""
    ends = np.cumsum([sizes[c] for c in order]).tolist()
    found = {c: slice(end - sizes[c], end) for c, end in zip(order, ends, strict=True)}
    return [found[c] for c in range(len(sizes))]


def _within(segments: Segments, some: slice) -> slice:
    """Where so many segments lie."""
    first = segments.first
    return slice(int(first[some.start]), int(first[some.stop]) if some.stop < len(first) else len(segments.segment))


def _from_zero(segment: np.ndarray) -> Segments:
    return Segments(segment - segment[0])
