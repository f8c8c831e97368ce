"""The states that stages of planning pass on: one frozen state per stage, with all results of the stages before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

from eggshard.egraph.graph import EGraph, ENode
from eggshard.egraph.rules import Rule
from eggshard.placement.transfer import Strategy
from eggshard.plan.reasons import Weigh
from eggshard.plan.record import Search
from eggshard.planner.encoding.amortised import amortised, unchanged_inputs
from eggshard.planner.encoding.encode import Computed, Encoder, Encoding
from eggshard.planner.op_plans import OpPlans
from eggshard.program.placement import Placement
from eggshard.program.program import Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.selection.problem import Extraction, Problem
from eggshard.steps.steps import Action, StepPlan

S = TypeVar("S", bound="Task")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A region to be planned between placements of its inputs and outputs (stage ``read``).

    outputs: per output the placements that it may be delivered at; None: those that the program leaves open
    (`outputs.output_options`). trips: how often a loop's body runs; 1 for other
    regions. number: of a body, what its steps say they were chosen for (`Origin.problem`). clock: seconds by stage.
    """

    plans: OpPlans
    rules: Sequence[Rule]
    region: Region
    inputs: tuple[Placement, ...]
    outputs: Sequence[Sequence[Placement]] | None
    trips: int = 1
    number: int = 0
    clock: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self.region.types[v] for v in self.region.inputs)

    def conversion(
        self, type_: TensorType, source: Placement, target: Placement | Sharding | None
    ) -> list[tuple[Action, Placement]]:
        """The cheapest way from one placement of a tensor to another (None: replicated): collectives, each with the
        placement that it leads to."""
        to = target if isinstance(target, Placement) else self.plans.context.resolve(target, type_)
        return list(self.plans.context.router.route(type_, source, to).steps)


@dataclass(frozen=True, kw_only=True)
class Saturated(Task):
    """The region as an e-graph: every class with all ways to compute it (stage ``saturate``).

    encoders: by plans, what the nodes of the graph offer under their prices, for all states of this graph.
    """

    graph: EGraph
    encoders: dict[OpPlans, Encoder] = field(default_factory=dict, compare=False)

    @property
    def encoder(self) -> Encoder:
        """What the nodes of the graph offer, worked out once for all problems of the graph under the same prices."""
        if self.plans not in self.encoders:
            context = self.plans.context
            self.encoders[self.plans] = Encoder(self.graph, self.plans.strategies, context.router, context.limits)
        return self.encoders[self.plans]

    def strategies(self, cls: int, node: int = 0) -> Sequence[tuple[Strategy, float]]:
        """The ways to compute a class by one of its nodes on shards without communication, each with its seconds."""
        eclass = self.graph.classes[cls]
        types = tuple(self.graph.type_of(child) for child in eclass.nodes[node].children)
        return self.plans.strategies(eclass.nodes[node], types, eclass.types)


@dataclass(frozen=True, kw_only=True)
class Encoded(Saturated):
    """The region as a selection problem (stage ``encode``). roots: per output its class and placements."""

    encoding: Encoding
    roots: Sequence[tuple[int, Sequence[Placement]]]

    @cached_property
    def problem(self) -> Problem:
        """The selection problem; of a loop's body one in which what every iteration would repeat is paid for once."""
        problem = self.encoding.problem
        if self.trips == 1:
            return problem
        return amortised(problem, self.graph, unchanged_inputs(self.region), self.trips)


@dataclass(frozen=True, kw_only=True)
class Selected(Encoded):
    """The cheapest choices and conversions found, with their bound (stage ``select``)."""

    found: Extraction

    @property
    def computed(self) -> Iterator[tuple[int, ENode, Strategy]]:
        """What is computed: the class, the node that computes it, and at which placements."""
        for c, chosen in self.found.selection.chosen.items():
            for tag in (self.encoding.problem.choices[c][i].tag for i in chosen):
                if isinstance(tag, Computed):
                    yield tag.cls, self.graph.classes[tag.cls].nodes[tag.node], tag.strategy


@dataclass(frozen=True, kw_only=True)
class Decoded(Selected):
    """The selection as a device program (stage ``decode``). placements: where its outputs lie."""

    steps: StepPlan
    placements: tuple[Placement, ...]


@dataclass(frozen=True, kw_only=True)
class Scheduled(Decoded):
    """The device program with messages joined, in the order in which it runs (stage ``schedule``).

    search: how it was found, and what is certified. reasons: what explains its decisions.
    """

    search: Search
    reasons: Weigh


def advanced(kind: type[S], state: Task, **made: Any) -> S:
    """The state after a stage: what the stage made, and of the state before it what the new one holds, too."""
    held = {f.name for f in fields(kind)}
    known = {f.name: getattr(state, f.name) for f in fields(state) if f.name in held}
    return kind(**{**known, **made})
