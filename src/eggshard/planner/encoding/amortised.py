"""The selection problem of a loop's body, with the cost of loop-invariant work spread over the iterations.

Shards that depend only on loop-invariant values are computed and resharded before the loop (`spmd/hoisting.py`). The
body's problem has the costs of one iteration, in which they cost a fraction of their price.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from eggshard.egraph.graph import EGraph, ENode
from eggshard.placement.transfer import Strategy
from eggshard.planner.derivation import derived
from eggshard.planner.encoding.encode import Computed
from eggshard.program.program import Region
from eggshard.selection.problem import Choice, Problem


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


def amortised(
    problem: Problem, graph: EGraph, unchanged: Collection[int], trips: int, stores: Collection[int] = ()
) -> Problem:
    """The problem of one of ``trips`` iterations whose inputs of these numbers are the same in each.

    stores: classes of the problem that are no class of the graph, and the same in each, too.

    Of a class that some choice computes from such inputs alone, conversions cost the part 1/trips, and so do the
    choices that compute it so. The problem itself where there is none.
    """
    once, known = _repeated(problem, graph, unchanged, stores)
    return _shared(problem, once, known, trips) if once else problem


def relaxed(
    problem: Problem, graph: EGraph, unchanged: Collection[int], trips: int,
    is_one_step: Callable[[ENode, int, Strategy], bool],
) -> Problem:
    """A problem that costs no more than one iteration, whatever of a plan is taken out of the loop.

    ``unchanged`` are all inputs that an iteration may hand on as they are. What a choice does in several steps may be
    taken out in part: it costs the part 1/trips, unless it is a branch, or a loop of nothing that is unchanged.
    """
    once, known = _repeated(problem, graph, unchanged)

    def in_part(choice: Choice) -> bool:
        needs_known = any(need in known for need, _ in choice.needs)
        if not isinstance(choice.tag, Computed):
            return needs_known
        node = graph.classes[choice.tag.cls].nodes[choice.tag.node]
        if node.op == "input" or not choice.cost or node.op in ("case", "if"):
            return False
        if node.op == "while":
            return needs_known
        return not is_one_step(node, choice.tag.cls, choice.tag.strategy)

    parts = {(c, i) for c, made in enumerate(problem.choices) for i, choice in enumerate(made) if in_part(choice)}
    return _shared(problem, once | parts, known, trips)


def _repeated(
    problem: Problem, graph: EGraph, unchanged: Collection[int], stores: Collection[int] = ()
) -> tuple[set[tuple[int, int]], set[int]]:
    """The choices (class, number) that do the same in every iteration, and the classes that some of them compute."""
    effects = set(graph.effects)
    able = [
        (c, i) for c, made in enumerate(problem.choices) for i, choice in enumerate(made)
        if c not in effects and (c in stores or choice.needs or _is_unchanged(choice.tag, graph, unchanged))
    ]
    known, fired = derived((c, {need for need, _ in problem.choices[c][i].needs}) for c, i in able)
    return {able[number] for number in fired}, known


def _shared(problem: Problem, once: Collection[tuple[int, int]], known: Collection[int], trips: int) -> Problem:
    """The problem in which these choices, and conversions of these classes, cost the part 1/trips."""
    tables: dict[int, np.ndarray] = {}
    for c in known:
        table = problem.conversions[c]
        tables.setdefault(id(table), table / trips)
    return Problem(
        [[s._replace(cost=s.cost / trips) if (c, i) in once else s for i, s in enumerate(made)]
         for c, made in enumerate(problem.choices)],
        [tables[id(t)] if c in known else t for c, t in enumerate(problem.conversions)],
        problem.roots, problem.seeds, problem.single,
    )


def _is_unchanged(tag: object, graph: EGraph, unchanged: Collection[int]) -> bool:
    """Whether what is computed from nothing is the same in every iteration: a constant, or one of these inputs."""
    if not isinstance(tag, Computed):
        return False
    node = graph.classes[tag.cls].nodes[tag.node]
    return node.op != "input" or node.attributes["index"] in unchanged
