"""The stages of planning a region: read | saturate | encode | select | decode | schedule.

Each is a function from one state (`state`) to the next. Whole programs, bodies of loops and programs of equal layers
are all planned by these functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from eggshard.costmodel.pricing import Pricer
from eggshard.egraph.graph import EGraph
from eggshard.egraph.rules import Rule
from eggshard.egraph.saturate import saturate as saturated_graph
from eggshard.limits import EFFORTS
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.plan.record import Search
from eggshard.planner.context import Context
from eggshard.planner.encoding.decode import Decoder
from eggshard.planner.encoding.encode import Computed
from eggshard.planner.encoding.views import find_views
from eggshard.planner.encoding.weighing import Weighing
from eggshard.planner.encoding.widening import Widener
from eggshard.planner.hints import is_partly_manual
from eggshard.planner.op_plans import OpPlans
from eggshard.planner.outputs import output_options
from eggshard.planner.progress import timed
from eggshard.planner.repricing.buckets import PART, ROUNDING, Shared, in_buckets, prices_to_begin, weighted_sums
from eggshard.planner.repricing.overlapped import fastest, ordered
from eggshard.planner.state import Decoded, Encoded, Saturated, Scheduled, Selected, Task, advanced
from eggshard.program.placement import Placement
from eggshard.program.program import Region
from eggshard.reshard.window_routes import bounding_window_of
from eggshard.selection.bounds.sharing import sharing_bound
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Extraction, Problem, Stopped
from eggshard.spmd.manual import MANUAL
from eggshard.worker import begun

#: The part of a plan's cost that a bound of plans of other ops must leave for them to be looked at by dual ascent where
#: no gap can be told (`python -m bench planning`).
FAR = 0.1
#: Seconds per e-node, and at most this part of all, before the end of the search at which a selection begins to end: it
#: makes a plan of what it knows, which then is to be written as steps.
FINISHING, FINISHING_PART = 3e-4, 0.1
#: Which loops and branches are not searched.
OTHERWISE = "loops and branches on values placed otherwise than local search finds, propagation has them, or whole"

P = TypeVar("P")
Q = TypeVar("Q")


def saturate(task: Task) -> Saturated:
    """Apply the rewrite rules to the region until nothing new turns up. Propagation runs meanwhile."""
    plans, context = task.plans, task.plans.context
    whole = task.region is context.program.region
    hints = begun(lambda: (plans.hints.used, plans.hints.propagated)) if whole else tuple
    graph = timed(task.clock, "saturate", lambda: saturated(context, task.region, task.rules))
    timed(task.clock, "propagate", hints)
    return advanced(Saturated, task, graph=graph)


def encode(state: Saturated) -> Encoded:
    """State as a selection problem what may be computed at which placements, and what conversions cost."""
    graph, region, plans = state.graph, state.region, state.plans
    given, roots = _ends(state)

    def propagated() -> list[tuple[int, Placement]]:
        stated = plans.hints.inside(region)
        placed = ((v, s) for v, s in enumerate(stated) if s is not None and graph.values[v] >= 0)
        return [(graph.values[v], plans.context.resolve(s, region.types[v])) for v, s in placed]

    widen = Widener(plans, plans.context.limits.windows, given, [(c, options[0]) for c, options in roots])
    encoding = timed(state.clock, "encode", lambda: state.encoder.encode(
        dict(enumerate(state.inputs)), roots, propagated, widen=widen))
    return advanced(Encoded, state, encoding=encoding, roots=roots)


def _ends(
    state: Saturated,
) -> tuple[list[tuple[int, Placement]], list[tuple[int, Sequence[Placement]]]]:
    """The classes of the inputs and where they lie, and those of the outputs and where they may lie."""
    values, region = state.graph.values, state.region
    outputs = output_options(state.plans) if state.outputs is None else state.outputs
    return (
        [(values[v], p) for v, p in zip(region.inputs, state.inputs, strict=True) if values[v] >= 0],
        [(values[v], o) for v, o in zip(region.outputs, outputs, strict=True)],
    )


def demanded(state: Saturated) -> tuple[Placement, ...]:
    """Per input the window of its tiles that outputs at their first placements need, where nothing is exchanged."""
    graph, region = state.graph, state.region
    given, roots = _ends(state)
    views = find_views(graph)
    limit = state.plans.context.limits.windows
    demand = Widener(state.plans, limit, given, [(c, options[0]) for c, options in roots]).demand(graph, views).close()
    found = []
    for v, placement in zip(region.inputs, state.inputs, strict=True):
        c = graph.values[v]
        windows = demand.on_tiles(c, placement) if c >= 0 else []
        core = bounding_window_of(views.core_type(views.group[c]).shape, windows) if windows else None
        found.append(placement if core is None else views.from_core(c, core))
    return tuple(found)


def select(state: Encoded) -> Selected:
    """Choose what to compute where, and what to convert, so that prices add up to least.

    The bodies of loops and branches that were chosen at a bound are planned then, and the choice is made again.
    """
    context, clock = state.plans.context, state.clock
    pricer, encoding = context.pricer, state.encoding
    shared = isinstance(pricer, Shared) and pricer.part > 0
    bounded = not (shared or encoding.capped or left_out(state.plans, state.graph, bool(encoding.windows)))

    def selected(now: Encoded) -> Extraction:
        return timed(clock, "select", lambda: extracted(context, state.graph.size, now.problem, bounded))

    def with_bodies(now: Encoded, found: Extraction) -> Encoded | None:
        problem = timed(clock, "bodies", lambda: _with_planned_bodies(now, found))
        return None if problem is None else replace(now, encoding=replace(now.encoding, problem=problem))

    last, found = until_settled(state, selected, with_bodies)
    return advanced(Selected, last, found=found)


def until_settled(
    problem: P, solve: Callable[[P], Q], revised: Callable[[P, Q], P | None]
) -> tuple[P, Q]:
    """Solve, and again as long as the solution shows that the problem is to be another one; the last of both."""
    while True:
        found = solve(problem)
        other = revised(problem, found)
        if other is None:
            return problem, found
        problem = other


def decode(state: Selected) -> Decoded:
    """Write the selection as steps on what each device holds."""
    context = state.plans.context
    ops = _ops_of(state.region) if state.number else None
    decoder = Decoder(context.mesh, state.graph, state.encoding, state.found.selection, context.router,
                      state.plans.action, state.number, ops)
    steps, placements = timed(state.clock, "decode", lambda: decoder.decode(
        state.input_types, state.inputs, state.roots))
    return advanced(Decoded, state, steps=steps, placements=placements)


def schedule(state: Decoded) -> Scheduled:
    """Join messages where that is cheaper, and order the steps for the machine."""
    pricer, graph, encoding, found = state.plans.base.context.pricer, state.graph, state.encoding, state.found
    steps = timed(state.clock, "schedule", lambda: ordered(state.steps, pricer))
    note, unit = weighted_sums(state.plans.context.pricer)
    weighing = Weighing(graph, replace(encoding, problem=state.problem), found.selection, state.plans.context.router,
                        state.plans.context.pricer, graph.values, note, state.trips, unit)
    # The bounds know nothing of exchanges that are cheaper together.
    shared = encoding.shared or encoding.widens > 1
    cut = left_out(state.plans, graph, bool(encoding.windows))
    # Where something was left out, no bound is of all plans.
    sharing = 0.0 if not shared or cut or encoding.capped else sharing_bound(state.problem)
    search = Search(
        found.bound, found.once, found.terms, found.method, state.plans.context.exact, "", state.clock,
        len(graph.classes), graph.size, dict(graph.report.matches), tuple(found.notes), encoding.capped, shared,
        sharing, cut)
    return advanced(Scheduled, state, steps=steps, search=search, reasons=weighing.reasons)


def left_out(plans: OpPlans, graph: EGraph, windows: bool) -> tuple[str, ...]:
    """What no bound of a search is of, in words, but for placements beyond their limit and shared conversions.

    windows: whether some values are held beyond their tiles.
    """
    limits, found = plans.context.limits, []
    if plans.cut:
        found.append(f"all but {limits.strategies} ways to place the tensors of {', '.join(sorted(plans.cut))}")
    if plans.context.router.cut:
        found.append(f"exchanges in more than {limits.permutes} collective-permutes")
    if graph.report.stop != "saturated":
        found.append(f"rewrites past the end of saturation ({graph.report.stop})")
    if windows:
        found.append(f"other windows than {limits.windows} widths of a value, computed by one op")
    nodes = [node for c in graph.classes for node in c.nodes]
    if any(node.op in CONTROL_FLOW for node in nodes):
        found.append(OTHERWISE)
    if any(is_partly_manual(node.op, node.attributes, plans.context) for node in nodes):
        found.append("manual computations on values placed otherwise than stated or propagated, or whole")
    elif any(node.op == MANUAL for node in nodes):
        found.append("manual computations otherwise than they are written")
    return tuple(found)


def first_problem(state: Saturated, part: Callable[[], float] = lambda: PART) -> Encoded:
    """The problem by which `solve` begins: under prices at which all-reduces share latencies (`prices_to_begin`)."""
    graph, plans = state.graph, state.plans
    first = prices_to_begin(plans.context.pricer, graph, [graph.values[v] for v in state.region.outputs], part)
    return encode(replace(state, plans=plans.priced_by(first)))


def solve(state: Encoded) -> Scheduled:
    """Select, decode and schedule a first problem; where prices of steps do not add up to a plan's, and others."""
    plans, pricer, deadline = state.plans, state.plans.base.context.pricer, state.plans.context.deadline

    @cache
    def under(other: Pricer) -> Encoded:
        if other is plans.context.pricer:
            return state
        return encode(advanced(Saturated, state, plans=plans.priced_by(other)))

    def planned(encoded: Encoded, known: Scheduled | None = None) -> Scheduled:
        try:
            return schedule(decode(select(encoded)))
        except KeyboardInterrupt:
            if known is None:
                raise
            deadline.interrupt()
            return known

    if pricer.overlap:
        return fastest(pricer, lambda other: planned(under(other)), lambda other: under(other).problem,
                       plans.context.limits.gap, lambda: deadline.ends("overlap"))
    return in_buckets(pricer, state, under, planned)


def _with_planned_bodies(state: Encoded, found: Extraction) -> Problem | None:
    """Plan the bodies of loops and branches that were chosen at less than they cost; None where there are none.

    Their choices get the prices, and what was found becomes a plan to start from: a cheaper one may be near.
    """
    graph, problem = state.graph, state.encoding.problem
    choices = list(problem.choices)
    for c, chosen in found.selection.chosen.items():
        for i in chosen:
            choice = choices[c][i]
            node = graph.classes[choice.tag.cls].nodes[choice.tag.node] if isinstance(choice.tag, Computed) else None
            if node is None or node.op not in CONTROL_FLOW:
                continue
            types = tuple(graph.type_of(child) for child in node.children)
            price = state.plans.price(node, types, graph.classes[choice.tag.cls].types, choice.tag.strategy)
            if price > choice.cost * (1 + ROUNDING):
                choices[c] = [*choices[c][:i], choice._replace(cost=price), *choices[c][i + 1 :]]
    if all(new is old for new, old in zip(choices, problem.choices, strict=True)):
        return None
    seed = {c: chosen[0] for c, chosen in found.selection.chosen.items()}
    return replace(problem, choices=choices, seeds=[*problem.seeds, seed])


def _ops_of(region: Region) -> dict[int, str]:
    """Per value of a region by which op it is made, and where its author wrote that."""
    return {v: op.described for op in region.ops for v in op.results}


def extracted(
    context: Context, nodes: int, problem: Problem, bounded: bool, methods: Sequence[str] | None = None
) -> Extraction:
    """The plan of a problem that is found with work in proportion to the graph, whatever the clock says till the end.

    nodes: of the graph. bounded: whether bounds of the problem's plans are bounds of all plans. methods: of the
    portfolio; by default those of the limits' effort. Time that runs out, or is cut short by the user, is noted with
    the context's deadline.
    """
    limits, deadline = context.limits, context.deadline
    effort = EFFORTS[limits.effort]
    seconds = effort.work * (0.2 + limits.seconds_per_node * nodes)
    end = deadline.before(min(FINISHING * nodes, FINISHING_PART * limits.seconds))
    try:
        found = extract(problem, seconds=seconds, gap=limits.gap, most=seconds + effort.patience * limits.patience,
                        deadline=end, methods=methods or effort.methods,
                        far=0.0 if bounded or effort.bounds else FAR)
    except Stopped as stopped:
        deadline.interrupt()
        found = stopped.found
    if deadline.passed or time.monotonic() > end:
        deadline.miss("select")
    return found


def saturated(context: Context, region: Region, rules: Sequence[Rule]) -> EGraph:
    """The e-graph of a region, with a part of the time left; the context's deadline says whether that ended it."""
    limits = replace(context.limits, seconds=context.deadline.left)
    graph = saturated_graph(region, rules, limits, context.mesh)
    if graph.report.late:
        context.deadline.miss("saturate")
    return graph
