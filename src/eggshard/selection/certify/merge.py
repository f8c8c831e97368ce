"""Classes that are as good as one another counted as one: a smaller problem whose every bound holds for the original.

Algebra often states one tensor in several ways that differ by next to nothing, e.g. by where a constant factor is
multiplied in. Plans use one of them, but a linear program uses a fraction of each and pays the conversions that they
share by fractions. With these classes merged there is one way left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.search.greedy import TreeCosts

#: Conversions and derivations that differ by less than this, relative to the incumbent, count as equal.
EQUAL = 1e-5


def merge(graph: Graph, costs: TreeCosts, incumbent: float) -> Problem | None:
    """A problem of which no plan costs more than the plan of ``graph.problem`` that it stands for; None if the same.

    A placement of a merged class stands for one placement of each member at most, a conversion for the members'
    cheapest. So every plan of the original becomes one of the merged problem: shards become available in the same
    order, and what it pays stands for what was paid. A choice that computes one member from another at the same
    placement would need its own shard, which was there before; it only lets conversions start there, so it becomes a
    choice that computes the shard from any other placement for the conversion and its own cost.

    Which classes are merged is therefore free; these are: an operand and its consumer, not both in every plan, that
    convert alike, where the choices that need the operand match their placements one to one and cost next to nothing
    beside it.
    """
    tolerance = EQUAL * incumbent
    groups = _Groups(graph.problem)
    merged = False
    essential = set(graph.essential)
    for c in graph.order:
        for a, pairs in _related(graph.problem, c).items():
            if a != c and not (c in essential and a in essential):
                found = _match(graph, costs, c, a, sorted(pairs), tolerance)
                merged |= bool(found) and groups.unite(c, a, found)
    return groups.problem() if merged else None


def _related(problem: Problem, c: int) -> dict[int, set[tuple[int, int]]]:
    """{operand: {(out, need)}} over the class's choices."""
    found: dict[int, set[tuple[int, int]]] = {}
    for s in problem.choices[c]:
        for a, q in s.needs:
            found.setdefault(a, set()).add((s.out, q))
    return found


def _match(
    graph: Graph, costs: TreeCosts, c: int, a: int, pairs: list[tuple[int, int]], tolerance: float
) -> dict[int, int]:
    """{out: need} one to one, of the related pairs whose derivations cost the same and that convert alike; or {}."""
    mine, theirs = graph.problem.conversions[c], graph.problem.conversions[a]
    made = costs.placed[c].tolist()
    there = costs.placed[a].tolist()
    equal = [(p, q) for p, q in pairs if made[p] == there[q] or abs(made[p] - there[q]) <= tolerance]
    options: dict[int, list[int]] = {}
    for p, q in equal:
        options.setdefault(p, []).append(q)
    found: dict[int, int] = {}
    for p in sorted(options, key=lambda p: (len(options[p]), p)):
        outs, needs = list(found), list(found.values())
        for q in options[p]:
            if q not in needs and _close(mine[p, outs], theirs[q, needs], tolerance) and _close(
                    mine[outs, p], theirs[needs, q], tolerance):
                found[p] = q
                break
    outs_made = {s.out for s in graph.problem.choices[c]}
    return found if len(found) == len(outs_made) and (len(found) > 1 or len(mine) == 1) else {}


def _close(x: np.ndarray, y: np.ndarray, tolerance: float) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(((x == y) | (np.abs(x - y) <= tolerance)).all())


class _Groups:
    """Which classes, and which of their placements, count as one."""

    def __init__(self, problem: Problem) -> None:
        self.original = problem
        #: members[group]: its classes. group[c]; at[c]: the group's placement for each placement of c.
        self.members = {c: [c] for c in range(len(problem.choices))}
        self.group = list(range(len(problem.choices)))
        self.at = [list(range(len(m))) for m in problem.conversions]

    def unite(self, c: int, a: int, pairs: Mapping[int, int]) -> bool:
        """Merge the groups of two classes, whose placements correspond as stated; False if that is contradictory."""
        into, gone = self.group[c], self.group[a]
        if into == gone:
            return False
        renamed = {self.at[a][q]: self.at[c][p] for p, q in pairs.items()}
        if len(set(renamed.values())) < len(renamed):
            return False
        free = 1 + max((p for x in self.members[into] for p in self.at[x]), default=-1)
        for x in self.members[gone]:
            for p in self.at[x]:
                if p not in renamed:
                    renamed[p] = free
                    free += 1
        for x in self.members[gone]:
            self.at[x] = [renamed[p] for p in self.at[x]]
            self.group[x] = into
        self.members[into] += self.members.pop(gone)
        return True

    def problem(self) -> Problem:
        number = {group: i for i, group in enumerate(self.members)}
        choices: list[list[Choice]] = []
        conversions = []
        for group, members in self.members.items():
            size = 1 + max((p for c in members for p in self.at[c]), default=-1)
            matrix = np.full((size, size), math.inf)
            np.fill_diagonal(matrix, 0.0)
            made: dict[tuple[int, frozenset[tuple[int, int]]], Choice] = {}
            again: dict[int, float] = {}  # out: the least cost of computing one member from another
            for c in members:
                where = np.ix_(self.at[c], self.at[c])
                matrix[where] = np.minimum(matrix[where], self.original.conversions[c])
                for s in self.original.choices[c]:
                    needs = tuple(dict.fromkeys((number[self.group[a]], self.at[a][q]) for a, q in s.needs))
                    out = self.at[c][s.out]
                    key = out, frozenset(needs)
                    if (number[group], out) in key[1]:
                        again[out] = min(s.cost, again.get(out, math.inf))
                    elif key not in made or s.cost < made[key].cost:
                        made[key] = Choice(out, s.cost, needs)
            if len(members) > 1:
                for via in range(size):  # the triangle inequality again
                    matrix = np.minimum(matrix, matrix[:, via, None] + matrix[None, via, :])
            for p in sorted({out for out, _ in made} | set(again)):
                for q, cost in again.items():
                    if p != q and matrix[p, q] + cost < math.inf:
                        needs = ((number[group], p),)
                        key = q, frozenset(needs)
                        total = float(matrix[p, q]) + cost
                        if key not in made or total < made[key].cost:
                            made[key] = Choice(q, total, needs)
            choices.append(list(made.values()))
            conversions.append(matrix)
        roots = dict.fromkeys((number[self.group[c]], self.at[c][q]) for c, q in self.original.roots)
        # Of several members each may be computed once.
        single = frozenset(
            number[group] for group, members in self.members.items()
            if len(members) == 1 and members[0] in self.original.single)
        return Problem(choices, conversions, list(roots), single=single)
