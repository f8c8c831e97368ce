"""Loops and branches: the carried values' placements are an interface, and every body is planned for it on its own.

A loop carries its values at the same placements in and out. The interfaces tried are full replication and what
sharding propagation says, which is what op-by-op partitioners use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.placement.placement import Placement, replicated
from eggshard.placement.transfer import Strategy
from eggshard.plan.control_steps import UNKNOWN_TRIPS, Branch, Loop
from eggshard.plan.steps import Action, StepPlan
from eggshard.program.program import Attributes, Op, Region
from eggshard.program.types import TensorType

CONTROL_FLOW = ("while", "case", "if")

#: Plans a region for given input and output placements; a loop's body for so many trips.
RegionPlanner = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...], int], StepPlan]
Types = tuple[TensorType, ...]


class ControlFlow:
    """Strategies and actions of control-flow ops; bodies are planned once per interface."""

    def __init__(self, plan_region: RegionPlanner):
        self._plan_region = plan_region
        self._hints: dict[tuple[str, Attributes, tuple[Region, ...]], list[Strategy]] = {}
        self._planned: dict[tuple[Region, tuple[Placement, ...], tuple[Placement, ...], int], StepPlan] = {}

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
            trips = attributes.get("trip_count")
            return Loop(
                self.region(condition, strategy.operands, flag),
                self.region(body, strategy.operands, strategy.results, UNKNOWN_TRIPS if trips is None else trips),
                trips,
            )
        planned = tuple(self.region(r, strategy.operands[1:], strategy.results) for r in regions)
        return Branch(planned, predicate=name == "if")

    def region(
        self, region: Region, inputs: tuple[Placement, ...], outputs: tuple[Placement, ...], trips: int = 1
    ) -> StepPlan:
        """The device program of a body for these placements of its inputs and outputs; of a loop's, for so many trips.

        What a loop's body computes of values that it returns unchanged is paid for once (`plan/hoisting.py`).
        """
        unchanged = any(v == w for v, w in zip(region.inputs, region.outputs, strict=False))
        key = (region, inputs, outputs, max(trips, 1) if unchanged else 1)
        if key not in self._planned:
            self._planned[key] = self._plan_region(*key)
        return self._planned[key]
