"""Cheap lower bounds, without a solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from eggshard.selection.graph import Graph

#: The most classes visited to bound the cost of an operand that may share work with others.
NEAR = 64


class Derivations(NamedTuple):
    """Bounds on the cheapest derivation: of all roots together, and per class ``[P]`` of each placement."""

    roots: float
    placed: list[list[float]]


def cheap_bound(graph: Graph, derivations: Derivations | None = None) -> float:
    """The larger of two bounds on every plan's cost.

    - Every plan pays, for each class that all plans compute, at least the class's cheapest choice, and for a root
      class at least its cheapest way to one of the root's placements: these costs are distinct.
    - What a derivation pays for operands that have no class in common is distinct and adds up. Of operands that may
      share work the dearest is paid at least, and what the others pay for classes that its derivations do not have.
      With that in place of the sum the cheapest derivation bounds the plan; where nothing can be shared, as in a chain
      of products, it is the plan.
    """
    problem = graph.problem
    roots: dict[int, list[int]] = {}
    for c, q in problem.roots:
        roots.setdefault(c, []).append(q)
    total = []
    for c in graph.essential:
        costs = [(s.cost, s.out) for s in problem.choices[c] if s.cost < math.inf]
        if not costs:
            return math.inf
        total.append(max(
            (min(cost + float(problem.conversions[c][p, q]) for cost, p in costs) for q in roots.get(c, ())),
            default=min(costs)[0]))
    return max(math.fsum(total), (derivations or least_derivations(graph)).roots)


def least_derivations(graph: Graph) -> Derivations:
    """The second of the bounds in `cheap_bound`, and the same for every shard."""
    problem = graph.problem
    reach: list[list[float]] = [[math.inf] * len(m) for m in problem.conversions]
    below = _footprints(graph)
    apart = _Apart(graph)
    groups: dict[tuple[int, ...], list[list[int]]] = {}

    def shared(needs: Sequence[tuple[int, int]]) -> float:
        """What operands cost that may share work: the dearest, and what each other one pays outside of those before."""
        first, *others = sorted(needs, key=lambda need: -reach[need[0]][need[1]])
        total, paid = reach[first[0]][first[1]], below[first[0]]
        for a, q in others:
            if not paid >> a & 1 and total < math.inf:
                total += apart.cost(a, q, paid)
                paid |= below[a]
        return total

    def owed(needs: Sequence[tuple[int, int]]) -> float:
        classes = tuple(a for a, _ in needs)
        if classes not in groups:
            groups[classes] = _sharing(classes, below)
        return sum(
            reach[needs[group[0]][0]][needs[group[0]][1]] if len(group) == 1 else shared([needs[i] for i in group])
            for group in groups[classes]
        )

    for members in graph.components:
        changed = True
        while changed:
            changed = False
            for c in members:
                best = _delivered(graph, c, owed)
                if best is not None and any(new < old for new, old in zip(best, reach[c], strict=True)):
                    reach[c] = list(map(min, best, reach[c]))
                    changed = graph.cyclic[c]
    return Derivations(owed(problem.roots), reach)


def _delivered(graph: Graph, c: int, owed: Callable[[Sequence[tuple[int, int]]], float]) -> list[float] | None:
    """Per placement of a class the least cost of having it, if the needs of choices cost so much."""
    made: dict[int, float] = {}
    for s in graph.problem.choices[c]:
        value = s.cost + owed(s.needs)
        if value < made.get(s.out, math.inf):
            made[s.out] = value
    if not made:
        return None
    rows = graph.problem.conversions[c][list(made)] + [[v] for v in made.values()]
    least: list[float] = rows.min(axis=0).tolist()
    return least


class _Apart:
    """What the least derivation of a shard pays for classes other than some, which are taken to be there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[int, dict[int, list[float]]] = {}

    def cost(self, a: int, q: int, given: int) -> float:
        """Return the lower bound for shard (a, q) when the classes in the bit set ``given`` cost nothing."""
        known = self._known.setdefault(given, {})
        if a not in known:
            self._find(a, given, known)
        return known[a][q]

    def _find(self, start: int, given: int, known: dict[int, list[float]]) -> None:
        """Looks at `NEAR` classes at most, and takes those further away to cost nothing."""
        graph, queue = self.graph, [start]
        for c in queue:
            for a in graph.operands[c]:
                if len(queue) < NEAR and not given >> a & 1 and a not in known and a not in queue:
                    queue.append(a)
        queue.sort(key=graph.component.__getitem__)
        values = {c: [math.inf] * len(graph.problem.conversions[c]) for c in queue}

        def owed(needs: Sequence[tuple[int, int]]) -> float:
            found = [values[a][q] if a in values else known[a][q] for a, q in needs if a in values or a in known]
            return max(found, default=0.0)

        changed = True
        while changed:
            changed = False
            for c in queue:
                best = _delivered(graph, c, owed)
                if best is not None and best != values[c]:
                    values[c] = best
                    changed = graph.has_cycles
        known.update(values)


def _footprints(graph: Graph) -> list[int]:
    """Per class the classes that some derivation of it computes, itself included, as bit sets."""
    below = [0] * len(graph.operands)
    for members in graph.components:
        whole = 0
        for c in members:
            whole |= 1 << c
            for a in graph.operands[c]:
                whole |= below[a]
        for c in members:
            below[c] = whole
    return below


def _sharing(classes: Sequence[int], below: list[int]) -> list[list[int]]:
    """Positions of operands grouped so that only operands of one group may have classes in common."""
    groups: list[tuple[int, list[int]]] = []
    for i, c in enumerate(classes):
        footprint, together = below[c], [i]
        apart = []
        for other, positions in groups:
            if other & footprint:
                footprint |= other
                together = positions + together
            else:
                apart.append((other, positions))
        groups = [*apart, (footprint, together)]
    return [positions for _, positions in groups]
