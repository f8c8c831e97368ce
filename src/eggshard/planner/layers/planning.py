"""Planning programs of many equal layers by their short form."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from eggshard.egraph.graph import EGraph
from eggshard.planner.encoding.encode import Encoder, Encoding
from eggshard.planner.encoding.weighing import Weighing
from eggshard.planner.hints import Hints
from eggshard.planner.layers.halos import looks_across_layers
from eggshard.planner.layers.layering import KEPT
from eggshard.planner.layers.lifting import Lift, Lifted, copies_of
from eggshard.planner.layers.ring import Ring
from eggshard.planner.layers.shortening import Short, shorten
from eggshard.planner.op_plans import OpPlans
from eggshard.planner.outputs import output_options
from eggshard.planner.pipeline import decode, extracted, saturated, schedule
from eggshard.planner.progress import timed
from eggshard.planner.repricing.buckets import NOT_BOUNDED, prices_to_begin, weighted_sums
from eggshard.planner.rows import looks_at_neighbours
from eggshard.planner.state import Saturated, Scheduled, Selected, Task, advanced
from eggshard.program.placement import Placement
from eggshard.program.sharding import Sharding
from eggshard.reshard.routes import Router
from eggshard.selection.problem import Extraction, Problem, Selection
from eggshard.steps.steps import StepPlan
from eggshard.worker import begun

#: The least number of ops for planning by layers (`python -m bench layers`).
MANY_OPS = 400
#: Relative gap at which raising the bound stops.
CLOSE = 1e-2


def handed(short: Short, graph: EGraph) -> dict[int, tuple[int, ...]]:
    """Per class that is a further input of the short program's region the class that it stands for, and those that
    equal layers take in its place."""
    def cls(v: int) -> int:
        return graph.values[short.cut_value(short.values[v])]

    out = {}
    inputs = short.region.inputs[len(short.program.region.inputs) :]
    for v, seam, stands in zip(inputs, short.seams, short.taken, strict=True):
        others: list[int] = []
        if seam.user >= 0:
            follow = short.follows()[seam.user % KEPT]
            others = [cls(short.stand_in(short.operand(seam.port, part), follow)) for part in short.row(seam.user)]
        out[graph.values[v]] = tuple(dict.fromkeys([graph.values[short.cut_value(stands)], *others]))
    return out


class LayeredPlan(NamedTuple):
    """The whole program's plan, what was extracted of the short one, and the bound of plans of the whole program that
    compute nothing twice, by the same terms in every layer.
    """

    lifted: Lifted
    extraction: Extraction
    terms: float


def plan_by_layers(task: Task, part: Callable[[], float]) -> Scheduled | None:
    """The plan of a large program of many equal layers, by its short form; None for any other program.

    part: of a latency, that each all-reduce pays (`prices_to_begin`).
    """
    plans, context, clock = task.plans, task.plans.context, task.clock
    program = context.program
    if len(program.region.ops) <= MANY_OPS:
        return None
    short = timed(clock, "layers", lambda: shorten(program))
    if short is None:
        return None
    small_context = context.of(short.program)
    small = OpPlans(small_context, Hints(small_context), plans.bodies)
    # Two processes at work, and this one meanwhile at what needs neither.
    hinted = begun(lambda: small.hints.used)
    if looks_at_neighbours(short.region) and looks_across_layers(short, timed(clock, "propagate", hinted)):
        return None
    saturating = begun(lambda: saturated(context, short.region, task.rules))
    hints = timed(clock, "propagate", hinted)
    timed(clock, "price", lambda: small.price_ahead(short.program.region))
    graph = timed(clock, "saturate", saturating)
    state = advanced(
        Saturated, replace(task, plans=small, region=short.region, inputs=small_context.inputs,
                           outputs=output_options(small)), graph=graph)
    roots = [graph.values[v] for v in state.region.outputs]
    prices = prices_to_begin(context.pricer, graph, roots, part, len(task.region.ops), handed(short, graph))
    if prices is context.pricer:
        return _planned(task, state, short, hints)
    layered = _planned(task, replace(state, plans=small.priced_by(prices)), short, hints)
    # No bound holds of what all-reduces share.
    return layered and replace(layered, search=replace(
        layered.search, left_out=(*layered.search.left_out, NOT_BOUNDED)))


def _planned(task: Task, state: Saturated, short: Short, hints: Sequence[Sharding | None]) -> Scheduled | None:
    """The whole program's plan by its short form, under the prices of the short form's state.

    hints: where values of the short program lie.
    """
    plans, graph, clock, limits = state.plans, state.graph, state.clock, state.plans.context.limits
    router, pricer, deadline = plans.context.router, plans.context.pricer, task.plans.context.deadline
    outputs = state.outputs
    assert outputs is not None
    roots = [(graph.values[v], o) for v, o in zip(state.region.outputs, outputs, strict=True)]

    def propagated() -> list[tuple[int, Placement]]:
        placed = ((short.cut_value(v), s) for v, s in enumerate(hints) if s is not None)
        return [(graph.values[v], plans.context.resolve(s, state.region.types[v])) for v, s in placed
                if graph.values[v] >= 0]

    encoder = Encoder(graph, partial(plans.strategies, bodies="planned"), router, limits)
    encoding = timed(clock, "encode", lambda: encoder.encode(
        dict(enumerate(state.inputs)), roots, propagated, handed(short, graph)))
    found = timed(clock, "select", lambda: extract_layers(
        short, graph, encoding, router, roots,
        lambda problem: extracted(task.plans.context, graph.size, problem, False), deadline.at))
    deadline.ends("select")
    if found is None:
        return None
    lifted, extraction = found.lifted, found.extraction
    selected = advanced(
        Selected, state, region=task.region, inputs=task.inputs, graph=lifted.graph, encoding=lifted.encoding,
        roots=lifted.roots, found=replace(extraction, selection=lifted.selection, bound=0.0, once=0.0,
                                          terms=found.terms))
    made = schedule(decode(selected))
    steps = _following(made.steps, lifted)
    note, unit = weighted_sums(pricer)
    weighing = Weighing(
        graph, encoding, lifted.source, router, pricer, [_followed(lifted, c) for c in lifted.graph.values],
        f"priced in the program of {KEPT} layers that stand for {_counted(short)} equal ones, each of which does as "
        f"one of them{note and '; ' + note}", unit=unit,
        followed=frozenset(o.cls for s in steps.steps for o in s.origins if not o.problem))
    search = replace(
        made.search, classes=len(graph.classes), nodes=graph.size, rules=dict(graph.report.matches),
        capped=encoding.capped, shared=True,
        left_out=(*made.search.left_out, f"plans in which equal parts, {_counted(short)} of them, do not do alike"))
    return replace(made, steps=steps, search=search, reasons=weighing.reasons)


def _counted(short: Short) -> str:
    """How many equal layers there are in each row."""
    *some, last = [str(len(row)) for row in short.parts.rows]
    return f"{', '.join(some)} and {last}" if some else last


def _following(steps: StepPlan, lifted: Lifted) -> StepPlan:
    """The steps, said to be chosen for the classes of the short program that their own follow."""
    held = tuple(h and h._replace(cls=_followed(lifted, h.cls)) for h in steps.held)
    return replace(steps, held=held, steps=tuple(
        replace(s, origins=tuple(o if o.problem else o._replace(cls=_followed(lifted, o.cls)) for o in s.origins))
        for s in steps.steps))


def _followed(lifted: Lifted, c: int) -> int:
    return lifted.follows[c] if c >= 0 else -1


class _Best(NamedTuple):
    """A selection of the short program, the copies that the layers of each row follow, and what that costs."""

    selection: Selection
    follow: tuple[int, ...]
    cost: float


def extract_layers(
    short: Short, graph: EGraph, encoding: Encoding, tables: Router,
    roots: Sequence[tuple[int, Sequence[Placement]]], extract: Callable[[Problem], Extraction], deadline: float,
) -> LayeredPlan | None:
    """The cheapest plan of the whole program among those whose layers follow the copies of the plan extracted of the
    short one, or else do as prices say.

    deadline: of `time.monotonic`, for bounds.
    """
    lift = Lift(short, graph, encoding, copies_of(short, graph), tables, roots)
    found = extract(encoding.problem)
    best, bound = _by_ring(lift, _priced(lift, found.selection), deadline)
    lifted = best and lift.lift(best.selection, best.follow)
    return None if lifted is None else LayeredPlan(lifted, found, bound)


def _priced(lift: Lift, selection: Selection) -> _Best | None:
    """The cheapest copies for the layers to follow, one row after the other; None where they can follow none."""
    best: _Best | None = None
    tried = lift.short.follows()
    for follow in tried:
        cost = lift.price(selection, follow)
        if cost is not None and (best is None or cost < best.cost):
            best = _Best(selection, follow, cost)
    if best is None or len(best.follow) == 1:
        return best
    for row in range(len(best.follow)):
        for other in lift.short.follows():
            follow = (*best.follow[:row], other[row], *best.follow[row + 1 :])
            cost = lift.price(selection, follow) if follow not in tried else None
            tried.append(follow)
            if cost is not None and cost < best.cost:
                best = _Best(selection, follow, cost)
    return best


def _by_ring(lift: Lift, best: _Best | None, deadline: float) -> tuple[_Best | None, float]:
    """A better plan by the terms of one, if the ring of the layer gives it, and the bound of such plans."""
    if best is None or best.cost <= 0 or time.monotonic() > deadline:
        return best, 0.0
    found = Ring(lift, best.follow).plan(best.selection, best.cost, CLOSE, deadline)
    if found.selection is not None:
        best = _Best(found.selection, best.follow, found.cost)
    return best, found.bound
