"""Loops and branches: the carried values' placements are an interface, and every body is planned for it on its own.

A loop carries its values at the same placements in and out. The interfaces tried are full replication and what
sharding propagation says, which is what op-by-op partitioners use. Full replication seldom pays: it has a lower bound
for a price until a search chooses it, and only then its bodies are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.placement.placement import Placement, replicated
from eggshard.placement.transfer import Strategy
from eggshard.plan.control_steps import Branch, Loop, price_of_loop, trips
from eggshard.plan.steps import Action, StepPlan
from eggshard.program.program import Attributes, Op, Region
from eggshard.program.types import TensorType
from eggshard.unrolling import looks_at_neighbours

CONTROL_FLOW = ("while", "case", "if")

Types = tuple[TensorType, ...]
#: Plans a region for given input and output placements.
PlanRegion = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...]], StepPlan]
#: What a region's plan costs at least.
LeastOfRegion = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...]], float]


class ControlFlow:
    """Strategies and actions of control-flow ops; bodies are planned once per interface."""

    def __init__(self, plan_region: PlanRegion, least_of_region: LeastOfRegion | None = None):
        self._plan_region, self._least_of_region = plan_region, least_of_region
        self._hints: dict[tuple[str, Attributes, tuple[Region, ...]], list[Strategy]] = {}
        self._planned: dict[tuple[Region, tuple[Placement, ...], tuple[Placement, ...]], StepPlan] = {}

    def hint(self, op: Op, operands: tuple[Placement, ...], results: tuple[Placement, ...]) -> None:
        """Propose an interface: where propagation puts the op's operands and results."""
        if op.name == "while":
            operands = results
        else:
            operands = (Placement(tuple(d._replace(axes=()) for d in operands[0].dims)), *operands[1:])
        self._hints.setdefault((op.name, op.attributes, op.regions), []).append(Strategy(operands, results))

    def strategies(self, name: str, attributes: Attributes, regions: tuple[Region, ...], operands: Types,
                   results: Types) -> Sequence[Strategy]:
        """The interfaces to choose from: full replication first."""
        whole = Strategy(tuple(replicated(t.shape) for t in operands), tuple(replicated(t.shape) for t in results))
        return tuple(dict.fromkeys([whole, *self._hints.get((name, attributes, regions), ())]))

    def action(self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy) -> Action:
        """The loop or branch with its bodies planned for the strategy's placements."""
        if name == "while":
            condition, body = regions
            flag = (replicated(()),)
            return Loop(
                self.region(condition, strategy.operands, flag),
                self.region(body, strategy.operands, strategy.results), attributes.get("trip_count"),
            )
        planned = tuple(self.region(r, strategy.operands[1:], strategy.results) for r in regions)
        return Branch(planned, predicate=name == "if")

    def least(self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy) -> float | None:
        """What the loop or branch costs at least by the strategy; None where nothing is known but by planning.

        Of iterations that look at neighbours: several in a row may cost less than one by one.
        """
        least = self._least_of_region
        if least is None or (name == "while" and looks_at_neighbours(regions[1])):
            return None
        if name == "while":
            condition, body = regions
            return price_of_loop(
                trips(attributes.get("trip_count")), least(condition, strategy.operands, (replicated(()),)),
                least(body, strategy.operands, strategy.results),
            )
        return max(least(r, strategy.operands[1:], strategy.results) for r in regions)

    def region(self, region: Region, inputs: tuple[Placement, ...], outputs: tuple[Placement, ...]) -> StepPlan:
        """The device program of a body for these placements of its inputs and outputs."""
        key = (region, inputs, outputs)
        if key not in self._planned:
            self._planned[key] = self._plan_region(region, inputs, outputs)
        return self._planned[key]
