"""A bound of plans whose conversions of one class share steps, which selections pay for each."""

from __future__ import annotations

import math
from dataclasses import replace

from eggshard.selection.bounds.bound import cheap_bound
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem


def sharing_bound(problem: Problem) -> float:
    """What every plan costs at least, whatever steps its conversions of one class share.

    Together they cost no less than the dearest of them, and so no less than each divided by their number, of which
    there are no more than placements at which the class is wanted. A class that is wanted once is converted once: all
    that has one user, which itself is wanted once.
    """
    graph = Graph(problem)
    wanted: list[set[int]] = [set() for _ in problem.choices]
    users: list[set[int]] = [set() for _ in problem.choices]
    several: set[int] = set()
    for number, (c, q) in enumerate(problem.roots):
        wanted[c].add(q)
        users[c].add(-1 - number)
    for c, choices in enumerate(problem.choices):
        for choice in choices:
            if choice.cost == math.inf:
                continue
            for i, (a, q) in enumerate(choice.needs):
                wanted[a].add(q)
                users[a].add(c)
                if any(a == other for other, _ in choice.needs[:i]):
                    several.add(a)
    once: set[int] = set()
    for c in reversed(graph.order):
        if c in several or len(users[c]) != 1 or graph.cyclic[c]:
            continue
        (user,) = users[c]
        if user < 0 or user in once:
            once.add(c)
    tables = [
        table if c in once or len(wanted[c]) < 2 else table / len(wanted[c])
        for c, table in enumerate(problem.conversions)
    ]
    return cheap_bound(Graph(replace(problem, conversions=tables)))
