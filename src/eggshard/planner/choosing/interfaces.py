"""Interfaces of the loops and branches of a program whose ends are stated, found together with all the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eggshard.egraph.graph import ENode
from eggshard.errors import LimitError
from eggshard.limits import EFFORTS
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy
from eggshard.planner.choosing.bounds import in_rows
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.open_problem import Interface, Opener
from eggshard.planner.choosing.seeds import seed_of
from eggshard.planner.context import Context
from eggshard.planner.outputs import output_options
from eggshard.planner.pipeline import extracted
from eggshard.planner.progress import timed
from eggshard.planner.request import or_warned
from eggshard.planner.state import Saturated
from eggshard.spmd.boundaries import even_placements

#: Of the portfolio: the integer program takes longer, and found the same on 40 loops (decision 63).
METHODS = ("local", "dual", "recombine")


def with_interfaces(state: Saturated) -> Saturated:
    """Have each loop and branch of a program take and give its values as in the cheapest plan found of the problem in
    which all bodies stand (`OpenProblem`), which begins with propagation's.

    Propagation's placements stay beside these where the problem does not tell what they cost: on machines that compute
    while they communicate, where iterations that look at neighbours may run in rows, and where values do not lie evenly
    by whole axes.
    """
    plans, context = state.plans, state.plans.context
    nodes = (node for eclass in state.graph.classes for node in eclass.nodes)
    wanted = EFFORTS[context.limits.effort].bodies and context.mesh.size > 1 and not context.deadline.passed
    if not wanted or not any(node.op in CONTROL_FLOW for node in nodes):
        return state
    nothing: Sequence[Interface] = ()
    found = or_warned(lambda: _found(state), nothing, "the search for loops and branches failed",
                      "they lie as propagated")
    for node, strategy in found:
        others = [s for s in plans.hints.interfaces(context, node) if not _is_told(context, node, s)]
        plans.hints.settle(context, node, (strategy, *others))
    return state


def _found(state: Saturated) -> Sequence[Interface]:
    plans, context = state.plans, state.plans.context
    outputs = output_options(plans) if state.outputs is None else state.outputs
    inputs = tuple([(placement,) for placement in state.inputs])
    opener = Opener(state, state.graph, context.pricer)
    opened = opener.whole(Ends(inputs, tuple(outputs), {}, tuple(range(len(inputs)))))
    seed = seed_of(opened, context, state.region, plans.hints.found)
    problem = replace(opened.problem, seeds=[] if seed is None else [seed])
    try:
        found = timed(state.clock, "bodies", lambda: extracted(context, opener.nodes, problem, True, METHODS))
    except LimitError:  # not all may lie evenly where others are stated
        return ()
    return opened.taken(found.selection)


def _is_told(context: Context, node: ENode, interface: Strategy) -> bool:
    """Whether the problem tells what a loop or branch costs at an interface."""
    region = node.regions[-1]
    if context.pricer.overlap or in_rows(node):
        return False
    types = (region.types[v] for v in region.outputs)
    return all(p in even_placements(context.free, t) for p, t in zip(interface.results, types, strict=True))
