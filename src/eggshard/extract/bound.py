"""Cheap lower bounds, without a solver."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eggshard.extract.graph import Graph


def cheap_bound(graph: Graph) -> float:
    """The larger of two bounds on every plan's cost.

    - Every plan pays, for each class that all plans compute, at least the class's cheapest choice, and for a root
      class at least its cheapest way to one of the root's placements: these costs are distinct.
    - What a derivation pays for operands that have no class in common is distinct and adds up; of operands that may
      share work the dearest is paid at least. With that in place of the sum the cheapest derivation bounds the plan;
      where nothing can be shared, as in a chain of products, it is the plan.
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
    return max(math.fsum(total), _least_derivation(graph))


def _least_derivation(graph: Graph) -> float:
    problem = graph.problem
    reach: list[list[float]] = [[math.inf] * len(m) for m in problem.conversions]
    below = _footprints(graph)
    groups: dict[tuple[int, ...], list[list[int]]] = {}

    def owed(needs: Sequence[tuple[int, int]]) -> float:
        classes = tuple(a for a, _ in needs)
        if classes not in groups:
            groups[classes] = _sharing(classes, below)
        return sum(max(reach[needs[i][0]][needs[i][1]] for i in group) for group in groups[classes])

    for members in graph.components:
        changed = True
        while changed:
            changed = False
            for c in members:
                made: dict[int, float] = {}
                for s in problem.choices[c]:
                    value = s.cost + owed(s.needs)
                    if value < made.get(s.out, math.inf):
                        made[s.out] = value
                if not made:
                    continue
                rows = problem.conversions[c][list(made)] + [[v] for v in made.values()]
                best = rows.min(axis=0).tolist()
                if any(new < old for new, old in zip(best, reach[c], strict=True)):
                    reach[c] = best
                    changed = graph.cyclic[c]
    return owed(problem.roots)


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
