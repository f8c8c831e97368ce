"""Cheap lower bounds, without a solver."""

from __future__ import annotations

import math

from eggshard.extract.graph import Graph


def cheap_bound(graph: Graph) -> float:
    """The larger of two bounds on every plan's cost.

    - Every plan pays, for each class that all plans compute, at least the class's cheapest choice, and for a root
      class at least its cheapest way to one of the root's placements: these costs are distinct.
    - Every plan pays for one path down from each root: choices and conversions along a path are distinct, so with
      the maximum over operands in place of the sum the cheapest derivation bounds the plan.
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
    return max(math.fsum(total), _critical_path(graph))


def _critical_path(graph: Graph) -> float:
    problem = graph.problem
    reach: list[list[float]] = [[math.inf] * len(m) for m in problem.conversions]
    for members in graph.components:
        changed = True
        while changed:
            changed = False
            for c in members:
                made: dict[int, float] = {}
                for s in problem.choices[c]:
                    value = s.cost + max([reach[a][q] for a, q in s.needs], default=0.0)
                    if value < made.get(s.out, math.inf):
                        made[s.out] = value
                if not made:
                    continue
                rows = problem.conversions[c][list(made)] + [[v] for v in made.values()]
                best = rows.min(axis=0).tolist()
                if any(new < old for new, old in zip(best, reach[c], strict=True)):
                    reach[c] = best
                    changed = graph.cyclic[c]
    return max((reach[c][q] for c, q in problem.roots), default=0.0)
