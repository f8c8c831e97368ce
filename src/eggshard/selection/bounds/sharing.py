"""A bound of plans whose conversions of one class share steps, which selections pay for each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eggshard.selection.bounds.bound import cheap_bound
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem

#: Classes above which ways are not counted: they take memory by the square of these, 32 MB here.
MANY_CLASSES = 2000


def sharing_bound(problem: Problem) -> float:
    """What every plan costs at least, whatever steps its conversions of one class share.

    Together they cost no less than the dearest of them, and so no less than each divided by their number: that of the
    placements at which the class is wanted, or of the ways that lead to it from the roots in a plan.
    """
    graph = Graph(problem)
    wanted: list[set[int]] = [set() for _ in problem.choices]
    for a, q in (*problem.roots, *(need for made in problem.choices for choice in made for need in choice.needs)):
        wanted[a].add(q)
    ways = _ways(graph)
    tables = [table / max(1.0, min(ways[c], len(wanted[c]))) for c, table in enumerate(problem.conversions)]
    return cheap_bound(Graph(replace(problem, conversions=tables)))


def _ways(graph: Graph) -> np.ndarray:
    """Per class the most ways on which a plan can come to it from the roots, each by one choice per class.

    A class that is computed again for another user is counted for both; in cycles they may be any number.
    """
    count = len(graph.problem.choices)
    if count > MANY_CLASSES:
        return np.full(count, math.inf)
    below = np.zeros((count, count))
    for c in graph.order:
        if graph.cyclic[c]:
            below[c] = math.inf
            continue
        for needed in {tuple(a for a, _ in choice.needs) for choice in graph.problem.choices[c]
                       if choice.cost < math.inf}:
            through = np.zeros(count)
            for a in needed:
                through += below[a]
                through[a] += 1
            below[c] = np.maximum(below[c], through)
    roots = np.zeros(count)
    for c, _ in graph.problem.roots:
        roots += below[c]
        roots[c] += 1
    return roots
