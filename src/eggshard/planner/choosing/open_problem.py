"""The selection problem of a region whose ends are open, with the bodies of its loops and branches inside it.

An open input has a *store*: a class of the problem that is no class of the e-graph. It has a choice per placement at
which the input may lie, and no conversions: the input's own class is had at a placement from the store at the same one,
and may be resharded from there. A selection takes one choice of a store (`Problem.single`).

What a loop carries is a store, too: its choices take what is carried from outside, at their placements; the body's
inputs are had from it, and the body's outputs have to come back to where it is. So the classes of the body stand in the
problem as many times as dear as the loop has iterations, and the loop's interface is found with all the rest. A branch
has stores for what goes in and for what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eggshard.costmodel.pricing import Pricer
from eggshard.egraph.graph import EGraph, ENode
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.encoding.amortised import amortised, unchanged_inputs
from eggshard.planner.encoding.encode import Computed, Delivered, Encoder, Encoding, Widening
from eggshard.planner.encoding.widening import Widener
from eggshard.planner.progress import timed
from eggshard.planner.repricing.buckets import PART, prices_to_begin
from eggshard.planner.state import Task
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.spmd.boundaries import even_placements
from eggshard.steps.control_steps import trips

Options = Sequence[Placement]
NOTHING: Mapping[int, int] = {}


class Stored(NamedTuple):
    """The tag of a store's choice: where it is."""

    placement: Placement


class Body(NamedTuple):
    """A loop or branch in a problem: the node, and the stores of what goes in and of what comes out.

    parts: per region the number of its first class, and its own problem.
    """

    node: ENode
    entering: tuple[int, ...]
    leaving: tuple[int, ...]
    parts: tuple[tuple[int, OpenProblem], ...]


class Inlined(NamedTuple):
    """A choice's tag in a problem around that of a body: its tag there, and the body's graph."""

    tag: Any
    graph: EGraph


class Interface(NamedTuple):
    """A loop or branch, and the placements at which it takes and gives its values."""

    node: ENode
    strategy: Strategy


@dataclass(frozen=True)
class OpenProblem:
    """A region's problem.

    stores: per input its store. roots: per output its class in the graph, and where it may be delivered. bodies: its
    loops and branches.
    """

    graph: EGraph
    encoding: Encoding
    stores: tuple[int, ...]
    roots: Sequence[tuple[int, Options]]
    bodies: tuple[Body, ...]

    @property
    def problem(self) -> Problem:
        return self.encoding.problem

    def where(self, selection: Selection, store: int) -> Placement:
        """Where a store is in a selection; at the first of its placements where nothing takes it."""
        chosen = selection.chosen.get(store, (0,))
        placement: Placement = self.problem.choices[store][chosen[0]].tag.placement
        return placement

    def delivered(self, selection: Selection, o: int) -> Placement:
        """Where an output lies in a selection."""
        cls, options = self.problem.roots[o][0], self.roots[o][1]
        if len(options) == 1:
            return options[0]
        placement: Placement = self.problem.choices[cls][selection.chosen[cls][0]].tag.placement
        return placement

    def placed(self, selection: Selection) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
        """Where inputs and outputs lie in a selection."""
        return (tuple([self.where(selection, store) for store in self.stores]),
                tuple([self.delivered(selection, o) for o in range(len(self.roots))]))

    def has_body(self, holds: Callable[[ENode], bool]) -> bool:
        """Whether something holds of a loop or branch in the problem."""
        return any(holds(body.node) or any(part.has_body(holds) for _, part in body.parts) for body in self.bodies)

    def taken(self, selection: Selection) -> tuple[Interface, ...]:
        """The loops and branches of a selection, those inside others too."""
        return tuple(_taken(self.bodies, 0, lambda store: self.where(selection, store)))


def _taken(bodies: Sequence[Body], first: int, where: Callable[[int], Placement]) -> Iterator[Interface]:
    for node, entering, leaving, parts in bodies:
        ins, outs = (tuple([where(first + c) for c in stores]) for stores in (entering, leaving))
        yield Interface(node, Strategy(ins if node.op == "while" else (replicated(()), *ins), outs))
        for number, part in parts:
            yield from _taken(part.bodies, first + number, where)


class Opener:
    """Builds the open problems of a task's regions.

    graph: the e-graph of the task's own region. prices: by default those at which all-reduces share latencies.
    """

    def __init__(self, task: Task, graph: EGraph, prices: Pricer | None = None):
        self.task, self.graphs = task, {task.region: graph}
        if prices is None:
            (_, roots), *inside = _regions(task, task.region, graph)
            prices = prices_to_begin(task.plans.context.pricer, graph, roots, lambda: PART, inside=inside)
        self.plans = task.plans.priced_by(prices)
        self._bodies: dict[Region, OpenProblem] = {}

    def at(self, prices: Pricer) -> Opener:
        """An opener of the same task at other prices."""
        return Opener(self.task, self.graphs[self.task.region], prices)

    @property
    def nodes(self) -> int:
        """How many nodes the e-graphs have of which there is a problem."""
        return sum(graph.size for graph in self.graphs.values())

    def whole(self, ends: Ends) -> OpenProblem:
        """The problem of the task's region between its ends."""
        return timed(self.task.clock, "encode", lambda: self.opened(
            self.task.region, ends.inputs, ends.outputs, ends.groups, ends.carried))

    def opened(self, region: Region, inputs: Sequence[Options], outputs: Sequence[Options],
               groups: Sequence[int] | None = None, carried: Mapping[int, int] = NOTHING) -> OpenProblem:
        """The problem of a region whose inputs and outputs may lie at these placements.

        groups: per input the number of the group that shares its store; by default each has its own. carried: per
        output that is fed back the input that it becomes.
        """
        if region not in self.graphs:
            self.graphs[region] = self.plans.bodies.graph_of(self.plans, region)
        graph, context = self.graphs[region], self.plans.context
        values = [graph.values[v] for v in region.inputs]
        given = [(c, p) for c, options in zip(values, inputs, strict=True) for p in options if c >= 0]
        roots = [(graph.values[v], options) for v, options in zip(region.outputs, outputs, strict=True)]
        widen = Widener(self.plans, context.limits.windows, given, [(c, p) for c, options in roots for p in options])
        inlining = _Inlining(self, inputs, values, range(len(inputs)) if groups is None else groups)
        encoder = Encoder(graph, self._strategies, context.router, context.limits)

        def add(graph: EGraph, out: Encoding, choices: list[list[Choice]]) -> Widening:
            tables = inlining.extend(graph, out, choices)
            widening = widen(graph, out, choices)
            return widening._replace(tables={**widening.tables, **tables})

        encoding = encoder.encode({}, [(c, list(options)) for c, options in roots], widen=add)
        problem = replace(encoding.problem, seeds=[], single=encoding.problem.single | inlining.single)
        for o, i in carried.items():
            if len(outputs[o]) > 1:
                _tie(problem.choices[problem.roots[o][0]], inlining.stores[i], inputs[i])
        return OpenProblem(graph, replace(encoding, problem=problem), tuple(inlining.stores), roots,
                           tuple(inlining.bodies))

    def body(self, region: Region) -> OpenProblem:
        """The problem of a region within another one, open at all ends."""
        if region not in self._bodies:
            mesh = self.plans.context.free
            ins, outs = ([even_placements(mesh, region.types[v]) for v in vs] for vs in (region.inputs, region.outputs))
            self._bodies[region] = self.opened(region, ins, outs)
        return self._bodies[region]

    def _strategies(
        self, node: ENode, operands: tuple[TensorType, ...], results: tuple[TensorType, ...]
    ) -> Sequence[tuple[Strategy, float]]:
        return () if node.op in CONTROL_FLOW else self.plans.strategies(node, operands, results)


def _regions(task: Task, region: Region, graph: EGraph) -> Iterator[tuple[EGraph, Sequence[int]]]:
    """The graph and the roots of a region, and of those inside it."""
    yield graph, [graph.values[v] for v in region.outputs]
    for eclass in graph.classes:
        for node in eclass.nodes:
            for inner in node.regions if node.op in CONTROL_FLOW else ():
                yield from _regions(task, inner, task.plans.bodies.graph_of(task.plans, inner))


class _Inlining:
    """The stores of one region's inputs, and the bodies inside it."""

    def __init__(self, opener: Opener, inputs: Sequence[Options], values: Sequence[int], groups: Sequence[int]):
        self.opener, self.inputs, self.values, self.groups = opener, inputs, values, groups
        self.stores: list[int] = []
        self.bodies: list[Body] = []
        self.single: set[int] = set()
        self.tables: dict[int, np.ndarray] = {}

    def extend(self, graph: EGraph, out: Encoding, choices: list[list[Choice]]) -> dict[int, np.ndarray]:
        """Add them to the choices; the conversions of the classes that this adds."""
        self.graph, self.out, self.choices = graph, out, choices
        known: dict[int, int] = {}
        for i, (options, c) in enumerate(zip(self.inputs, self.values, strict=True)):
            group = self.groups[i]
            if group not in known:
                known[group] = self._store(options, [()] * len(options))
            self.stores.append(known[group])
            if c >= 0:
                own = next(n for n, node in enumerate(graph.classes[c].nodes)
                           if node.op == "input" and node.attributes["index"] == i)
                for n, p in enumerate(options):
                    at, number = out.shard(c, p)
                    tag = Computed(c, own, Strategy((), (p,)))
                    choices[at].append(Choice(number, 0.0, ((known[group], n),), tag))
        for c, eclass in enumerate(graph.classes):
            for node in eclass.nodes:
                if node.op in CONTROL_FLOW:
                    self._inline(c, node)
        return self.tables

    def _class(self, placements: Sequence[Placement], choices: list[Choice]) -> int:
        self.out.add(placements)
        self.choices.append(choices)
        self.tables[len(self.choices) - 1] = np.where(np.eye(len(placements), dtype=bool), 0.0, np.inf)
        return len(self.choices) - 1

    def _store(self, options: Options, needs: Sequence[tuple[tuple[int, int], ...]]) -> int:
        """A new store, and what it takes to have it at each of its placements."""
        made = [Choice(n, 0.0, need, Stored(p)) for n, (p, need) in enumerate(zip(options, needs, strict=True))]
        store = self._class(list(options), made)
        self.single.add(store)
        return store

    def _inline(self, c: int, node: ENode) -> None:
        mesh, out = self.opener.plans.context.free, self.out
        types, results = [self.graph.type_of(child) for child in node.children], self.graph.classes[c].types
        first = node.op != "while"
        ins, outs = ([even_placements(mesh, t) for t in ts] for ts in (types[first:], results))
        entering = [self._store(options, [(out.shard(child, p),) for p in options])
                    for child, options in zip(node.children[first:], ins, strict=True)]
        leaving = [self._store(options, [()] * len(options)) for options in outs] if first else entering
        needed = [out.shard(node.children[0], replicated(()))] if first else []
        # Of the regions of a branch one runs: in the mean of all, each costs a part.
        times = 1 / len(node.regions) if first else float(max(1, trips(node.attributes.get("trip_count"))))
        parts = []
        for number, region in enumerate(node.regions):
            returns = first or number == 1  # a loop's first region is its condition
            parts.append((len(self.choices), self.opener.body(region)))
            needed += self._region(region, times, entering, leaving if returns else None)
        token = self._class([replicated(())], [Choice(0, 0.0, tuple(dict.fromkeys(needed)))])
        if self.graph.classes[c].is_tuple and c in self.graph.effects:  # which are needed, used or not
            group, number = out.shard(c, tuple([options[0] for options in outs]))
            self.choices[group].append(Choice(number, 0.0, ((token, 0),)))
        self.bodies.append(Body(node, tuple(entering), tuple(leaving), tuple(parts)))
        for r, k in self._results(c):
            for n, p in enumerate(outs[k]):
                group, number = out.shard(r, p)
                self.choices[group].append(Choice(number, 0.0, ((leaving[k], n), (token, 0))))

    def _results(self, c: int) -> Iterator[tuple[int, int]]:
        """The classes of the results of a node in a class, each with its number among these."""
        if not self.graph.classes[c].is_tuple:
            yield c, 0
        for r, eclass in enumerate(self.graph.classes):
            for node in eclass.nodes:
                if node.op == "result" and node.children[0] == c:
                    yield r, node.attributes["index"]

    def _region(self, region: Region, times: float, entering: Sequence[int], leaving: Sequence[int] | None
                ) -> list[tuple[int, int]]:
        """Add a body's classes; the roots that it has to deliver. leaving: the stores where its outputs come back."""
        part, first = self.opener.body(region), len(self.choices)
        problem = part.problem
        if times > 1 and leaving is not None:
            unchanged = [part.stores[i] for i in unchanged_inputs(region)]
            problem = amortised(problem, part.graph, (), int(times), unchanged)
        stores = {store: k for k, store in enumerate(part.stores)}
        roots = {c: k for k, (c, _) in enumerate(problem.roots[: len(part.roots)]) if len(part.roots[k][1]) > 1}
        for c, made in enumerate(problem.choices):
            self.out.add(part.encoding.placements[c])
            self.tables[first + c] = problem.conversions[c] * times
            shifted = [Choice(x.out, x.cost * times, tuple([(w + first, q) for w, q in x.needs]),
                              x.tag if isinstance(x.tag, (Stored, Delivered, Inlined)) else Inlined(x.tag, part.graph))
                       for x in made]
            if c in stores:
                shifted = [x._replace(needs=((entering[stores[c]], n),)) for n, x in enumerate(shifted)]
            if c in roots and leaving is not None:
                _tie(shifted, leaving[roots[c]], part.roots[roots[c]][1])
            self.choices.append(shifted)
        self.single.update(c + first for c in problem.single)
        return [(c + first, p) for c, p in problem.roots]


def _tie(choices: list[Choice], store: int, options: Sequence[Placement]) -> None:
    """Let an output that may lie at several places be delivered only where a store is."""
    number = {p: n for n, p in enumerate(options)}
    choices[:] = [x._replace(needs=(*x.needs, (store, number[x.tag.placement]))) for x in choices]
