"""Planning one region: saturate, encode, extract, assemble. Of a body what no interface changes is done once.

A loop at some interface is priced by a lower bound first (`RegionPlanner.least`), and its body is planned when the
search has chosen it there (`settled`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.schedule import scheduled
from eggshard.egraph.graph import EGraph, ENode
from eggshard.egraph.rules import Rule
from eggshard.egraph.saturate import saturate
from eggshard.placement.transfer import Strategy
from eggshard.plan.reasons import BodyReasons, Weigh, WithBodies
from eggshard.plan.record import Search
from eggshard.planner.baseline import baseline_program
from eggshard.planner.encoding.amortised import amortised, relaxed, unchanged_inputs
from eggshard.planner.encoding.decode import Decoder
from eggshard.planner.encoding.encode import Computed, Encoder, Encoding
from eggshard.planner.encoding.weighing import Weighing
from eggshard.planner.overlapped import Found, fastest
from eggshard.planner.planning import Planning
from eggshard.planner.progress import watched
from eggshard.program.placement import Placement
from eggshard.program.program import Region
from eggshard.program.types import element_bytes
from eggshard.selection.bounds.bound import cheap_bound
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Extraction, Problem
from eggshard.spmd.control_flow import CONTROL_FLOW, Least
from eggshard.spmd.hoisting import price_of_iterations
from eggshard.spmd.joining import joined
from eggshard.steps.nested import names_in_bodies, runs_of_problems
from eggshard.steps.steps import CollectivePermute, StepPlan

Placements = tuple[Placement, ...]
#: A region in a context, at placements of its inputs and outputs, and how often it runs: once, but for a loop's body.
Body = tuple[Planning, Region, Placements, Placements, int]
T = TypeVar("T")
#: By how much, relative to it, a price may exceed its bound as sums are rounded.
ROUNDING = 1e-12


class RegionProblem(NamedTuple):
    """The selection problem of a region between placements of its inputs and outputs."""

    region: Region
    graph: EGraph
    encoding: Encoding
    inputs: Sequence[Placement]
    roots: Sequence[tuple[int, Sequence[Placement]]]
    #: How often a loop's body runs; once, what is none.
    trips: int = 1
    #: Of a body, by which its steps say what they were chosen for (`Origin.problem`).
    number: int = 0

    @property
    def amortised(self) -> Problem:
        """The problem in which what every iteration would repeat is paid for once."""
        problem = self.encoding.problem
        if self.trips == 1:
            return problem
        return amortised(problem, self.graph, unchanged_inputs(self.region), self.trips)


class RegionPlanner:
    """Plans the bodies of loops, branches and manual computations at interfaces, under rewrite rules."""

    def __init__(self, rules: Sequence[Rule]):
        self.rules = rules
        #: Per context and region what is the same at every interface.
        self._encoders: dict[tuple[Planning, Region], Encoder] = {}
        #: Per body at an interface: its plan op by op, or the best; the one that propagation makes; what there is to
        #: search (None: nothing better is to be had); its bound.
        self._plain: dict[Body, StepPlan] = {}
        self._propagated: dict[Body, StepPlan] = {}
        self._problems: dict[Body, RegionProblem | None] = {}
        self._least: dict[Body, float] = {}
        #: What explains the bodies that were searched for, number 1 first.
        self._reasons: list[Weigh] = []

    def forget(self) -> None:
        """Let go of the e-graphs of bodies, and of what was begun."""
        self._encoders.clear()
        self._problems.clear()
        self._reasons.clear()

    def explaining(self, steps: StepPlan, reasons: Weigh) -> Weigh:
        """What explains a plan, from what explains the steps outside of bodies."""
        if not self._reasons:
            return reasons
        runs, names = runs_of_problems(steps), names_in_bodies(steps)
        bodies = tuple(BodyReasons(n, runs[n], self._reasons[n - 1], names.get(n, {})) for n in sorted(runs))
        return WithBodies(reasons, bodies) if bodies else reasons

    def plain(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> StepPlan:
        """The device program of a body without a search: op by op, or as propagation says at what it proposed."""
        key = planning, region, inputs, outputs, trips
        greedy, stated = self._greedy(*key), planning.propagated_inside(region)
        if not stated or not any(p.used_axes for p in (*inputs, *outputs)):
            return greedy
        if key not in self._propagated:
            self._propagated[key] = baseline_program(planning, region, stated, inputs, outputs)
        return min(greedy, self._propagated[key], key=partial(_price, planning, trips))

    def _greedy(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> StepPlan:
        key = planning, region, inputs, outputs, trips
        if key not in self._plain:
            self._plain[key] = baseline_program(planning, region, None, inputs, outputs)
        return self._plain[key]

    def least(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> Least:
        """What the device program of a body costs at least at this interface; one of so many trips of a loop's."""
        key = planning, region, inputs, outputs, trips
        problem = self._problem(*key)
        price = _price(planning, trips, self._greedy(*key)) / trips
        if problem is None:
            return Least(price, True)
        if key not in self._least:
            self._least[key] = min(price, cheap_bound(Graph(self._relaxed(planning, problem))))
        return Least(self._least[key], False)

    def _relaxed(self, planning: Planning, problem: RegionProblem) -> Problem:
        """A problem that costs no more than any plan of one of a loop's trips, whatever is taken out of the loop."""
        graph, region = problem.graph, problem.region
        if problem.trips == 1:
            return problem.encoding.problem

        def is_one_step(node: ENode, cls: int, strategy: Strategy) -> bool:
            types = tuple(graph.type_of(child) for child in node.children)
            return planning.is_one_step(node, types, graph.classes[cls].types, strategy)

        pairs = enumerate(zip(region.inputs, region.outputs, strict=True))
        same = {i for i, (v, w) in pairs if graph.values[v] == graph.values[w]}
        return relaxed(problem.encoding.problem, graph, same, problem.trips, is_one_step)

    def plan(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> StepPlan:
        """The cheapest device program of a body for this interface, and so many trips of a loop's."""
        key = planning, region, inputs, outputs, trips
        problem, plain = self._problem(*key), self._greedy(*key)
        if problem is None:
            return plain
        found = solve(planning, problem._replace(number=len(self._reasons) + 1), {})
        assert found.reasons is not None
        self._reasons.append(found.reasons)
        self._problems[key] = None
        self._plain[key] = min(found.steps, ordered(planning, plain), key=partial(_price, planning, trips))
        return self._plain[key]

    def _problem(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> RegionProblem | None:
        key = planning, region, inputs, outputs, trips
        if key not in self._problems:
            self._problems[key] = None if self._is_plain(*key) else self._encoded(*key)
        return self._problems[key]

    def _is_plain(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> bool:
        """Whether nothing is cheaper than the body without any message."""
        key = planning, region, inputs, outputs, trips
        if not any(p.used_axes for p in (*inputs, *outputs)):
            whole = baseline_program(planning, region, [None] * len(region.types), inputs, outputs)
            if not whole.messages and planning.pricer.program(whole) <= least_message(planning, region):
                self._plain[key] = whole  # any message would cost more than all that it could save
        return not self._greedy(*key).messages

    def _encoded(
        self, planning: Planning, region: Region, inputs: Placements, outputs: Placements, trips: int
    ) -> RegionProblem:
        if (planning, region) not in self._encoders:
            graph = saturate(region, self.rules, planning.limits, planning.mesh)
            self._encoders[planning, region] = Encoder(graph, planning.strategies, planning.router, planning.limits)
        return encoded(planning, self._encoders[planning, region], region, inputs, [[p] for p in outputs], trips)


def _price(planning: Planning, trips: int, body: StepPlan) -> float:
    """What a body costs in all of a loop's trips."""
    return price_of_iterations(body, trips, planning.pricer.program)


def least_message(planning: Planning, region: Region) -> float:
    """What it costs to send one element of a region's smallest type along the axis where that is cheapest."""
    element = min(region.types, key=lambda t: element_bytes(t.dtype)).with_shape(())
    grid = planning.mesh.grid.reshape(-1).tolist()
    ways = {a: planning.mesh.mirrored((a,)).reshape(-1).tolist() for a, n in planning.mesh.axes.items() if n > 1}
    sent = [CollectivePermute(tuple(zip(grid, to, strict=True)), (a,)) for a, to in ways.items()]
    return min((planning.pricer(action, element) for action in sent), default=0.0)


def encoded(planning: Planning, encoder: Encoder, region: Region, inputs: Sequence[Placement],
            outputs: Sequence[Sequence[Placement]], trips: int = 1) -> RegionProblem:
    """The problem of a region whose inputs lie so, and each of whose outputs is wanted at one of its placements."""
    graph = encoder.graph
    given = [(graph.values[v], p) for v, p in zip(region.inputs, inputs, strict=True) if graph.values[v] >= 0]
    wanted = [(graph.values[v], o[0]) for v, o in zip(region.outputs, outputs, strict=True)]
    roots = [(graph.values[v], o) for v, o in zip(region.outputs, outputs, strict=True)]

    def propagated() -> list[tuple[int, Placement]]:
        stated = planning.propagated_inside(region)
        placed = ((v, s) for v, s in enumerate(stated) if s is not None and graph.values[v] >= 0)
        return [(graph.values[v], planning.resolve(s, region.types[v])) for v, s in placed]

    widen = planning.windows(given, wanted)
    encoding = encoder.encode(dict(enumerate(inputs)), roots, propagated, widen=widen)
    return RegionProblem(region, graph, encoding, inputs, roots, trips)


def solve(planning: Planning, problem: RegionProblem, clock: dict[str, float]) -> Found:
    """Extract and assemble; where the machine computes while it communicates, under several prices."""
    def under(pricer: Pricer) -> tuple[Planning, RegionProblem]:
        if pricer is planning.pricer:
            return planning, problem
        context = planning.priced_by(pricer)
        encoder = Encoder(problem.graph, context.strategies, context.router, planning.limits)
        outputs = [o for _, o in problem.roots]
        return context, timed(clock, "encode", lambda: encoded(
            context, encoder, problem.region, problem.inputs, outputs, problem.trips))._replace(number=problem.number)

    def select(pricer: Pricer) -> Found:
        return _selected(planning, *under(pricer), clock)

    if not planning.pricer.overlap:
        return select(planning.pricer)
    return fastest(planning.pricer, select, lambda pricer: under(pricer)[1].amortised, planning.limits.gap,
                   lambda: sum(clock.values()) >= planning.limits.seconds)


def _selected(planning: Planning, context: Planning, problem: RegionProblem, clock: dict[str, float]) -> Found:
    """The plan for which the context's prices add up to least."""
    graph, encoding, region = problem.graph, problem.encoding, problem.region
    seconds, most = extraction_seconds(planning, clock, graph)

    def best() -> Extraction:
        return extract(problem.amortised, seconds=seconds, gap=planning.limits.gap, most=most)

    found = timed(clock, "extract", best)
    while timed(clock, "bodies", partial(settle, context, problem, found)):
        found = timed(clock, "extract", best)
    ops = _ops_of(region) if problem.number else None
    decoder = Decoder(planning.mesh, graph, encoding, found.selection, context.router, context.action, problem.number,
                      ops)
    types = tuple(region.types[v] for v in region.inputs)
    steps, placements = timed(clock, "assemble", lambda: decoder.decode(types, problem.inputs, problem.roots))
    steps = timed(clock, "join", lambda: ordered(planning, joined(steps, planning.pricer)))
    # The bounds know nothing of exchanges that are cheaper together.
    shared = encoding.shared or encoding.widens > 1
    note, unit = weighted_sums(planning.pricer)
    weighing = Weighing(graph, replace(encoding, problem=problem.amortised), found.selection, context.router,
                        context.pricer, graph.values, note, problem.trips, unit)
    return Found(steps, placements, Search(
        found.bound, found.once, found.terms, found.method, planning.exact, "", clock, len(graph.classes), graph.size,
        dict(graph.report.matches), tuple(found.notes), encoding.capped, shared,
    ), weighing.reasons)


def weighted_sums(pricer: Pricer) -> tuple[str, str]:
    """What to say of the prices of decisions, and their unit: of a machine that overlaps, no times of schedules."""
    if not pricer.overlap:
        return "", ""
    return ("prices are weighted sums of what every resource is held for: what the search compared, no times of "
            "schedules"), "weighted seconds"


def _ops_of(region: Region) -> dict[int, str]:
    """Per value of a region by which op it is made, and where its author wrote that."""
    return {v: op.described for op in region.ops for v in op.results}


def ordered(planning: Planning, steps: StepPlan) -> StepPlan:
    """The steps in the order of their schedule, where the machine computes while it communicates."""
    return scheduled(steps, planning.pricer) if planning.pricer.overlap else steps


def settle(planning: Planning, problem: RegionProblem, found: Extraction) -> bool:
    """Plan the bodies of the loops and branches that were chosen at less than they cost; whether there were any.

    Their choices get the prices, and what was found becomes a plan to start from: one that is cheaper now may be near.
    """
    graph, encoding = problem.graph, problem.encoding
    choices = list(encoding.problem.choices)
    for c, chosen in found.selection.chosen.items():
        for i in chosen:
            choice = choices[c][i]
            node = graph.classes[choice.tag.cls].nodes[choice.tag.node] if isinstance(choice.tag, Computed) else None
            if node is None or node.op not in CONTROL_FLOW:
                continue
            types = tuple(graph.type_of(child) for child in node.children)
            price = planning.price(node, types, graph.classes[choice.tag.cls].types, choice.tag.strategy)
            if price > choice.cost * (1 + ROUNDING):
                choices[c] = [*choices[c][:i], choice._replace(cost=price), *choices[c][i + 1 :]]
    if all(new is old for new, old in zip(choices, encoding.problem.choices, strict=True)):
        return False
    seed = {c: chosen[0] for c, chosen in found.selection.chosen.items()}
    encoding.problem = replace(encoding.problem, choices=choices, seeds=[*encoding.problem.seeds, seed])
    return True


def extraction_seconds(planning: Planning, clock: Mapping[str, float], graph: EGraph) -> tuple[float, float]:
    """What is left for extraction of the whole search's time, in proportion to the graph, and with all patience."""
    limits = planning.limits
    left = max(0.1, limits.seconds - sum(clock.values()))
    seconds = min(left, 0.2 + limits.seconds_per_node * graph.size)
    return seconds, min(left, seconds + limits.patience)


def timed(clock: dict[str, float], name: str, work: Callable[[], T]) -> T:
    """What the work returns, its seconds added to the clock."""
    watched(clock, name)
    began = time.perf_counter()
    result = work()
    clock[name] = clock.get(name, 0.0) + time.perf_counter() - began
    return result


def begun(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work that mostly waits for another process, in a thread; what waits for its result."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return future.result
