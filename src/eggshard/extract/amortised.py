"""The problem of a loop's body, in which what every iteration would repeat is paid for once.

Shards that depend on nothing but values that the loop carries unchanged are computed and converted before the loop
(`plan/hoisting.py`). In the body's problem, whose costs are those of one iteration, they cost a part of their price.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from eggshard.egraph.graph import EGraph
from eggshard.extract.encode import Computed
from eggshard.extract.problem import Problem
from eggshard.program.program import Region


def unchanged_inputs(region: Region) -> set[int]:
    """The numbers of a loop body's inputs that are the same in every iteration, and used whole.

    Not those that iterations only take slices of, as scans do of stacked layers: one collective for all slices would be
    fewer messages for the same bytes, and hold all layers at once.
    """
    takers: dict[int, set[str]] = {}
    for op in region.ops:
        for v in op.operands[:1] if op.name == "dynamic_slice" else op.operands:
            takers.setdefault(v, set()).add(op.name)
    return {
        i for i, (v, w) in enumerate(zip(region.inputs, region.outputs, strict=True))
        if v == w and takers.get(v) != {"dynamic_slice"}
    }


def amortised(problem: Problem, graph: EGraph, unchanged: Collection[int], trips: int) -> Problem:
    """The problem of one of ``trips`` iterations whose inputs of these numbers are the same in each.

    Of a class that some choice computes from such inputs alone, conversions cost the part 1/trips, and so do the
    choices that compute it so. The problem itself where there is none.
    """
    users: dict[int, list[tuple[int, int]]] = {}
    missing: dict[tuple[int, int], int] = {}
    ready: list[tuple[int, int]] = []
    for c, made in enumerate(problem.choices):
        for i, choice in enumerate(made):
            needed = {need for need, _ in choice.needs}
            missing[c, i] = len(needed)
            for need in needed:
                users.setdefault(need, []).append((c, i))
            if not needed and _is_unchanged(choice.tag, graph, unchanged):
                ready.append((c, i))
    effects = set(graph.effects)
    once: set[tuple[int, int]] = set()
    known: set[int] = set()
    while ready:
        c, i = ready.pop()
        if c in effects:
            continue
        once.add((c, i))
        if c in known:
            continue
        known.add(c)
        for user in users.get(c, ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if not once:
        return problem
    tables: dict[int, np.ndarray] = {}
    for c in known:
        table = problem.conversions[c]
        tables.setdefault(id(table), table / trips)
    return Problem(
        [[s._replace(cost=s.cost / trips) if (c, i) in once else s for i, s in enumerate(made)]
         for c, made in enumerate(problem.choices)],
        [tables[id(t)] if c in known else t for c, t in enumerate(problem.conversions)],
        problem.roots, problem.seeds,
    )


def _is_unchanged(tag: object, graph: EGraph, unchanged: Collection[int]) -> bool:
    """Whether what is computed from nothing is the same in every iteration: a constant, or one of these inputs."""
    if not isinstance(tag, Computed):
        return False
    node = graph.classes[tag.cls].nodes[tag.node]
    return node.op != "input" or node.attributes["index"] in unchanged
