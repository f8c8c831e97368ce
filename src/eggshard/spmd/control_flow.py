"""Loops and branches: the carried values' placements are an interface, and every body is planned for it on its own.

A loop carries its values at the same placements in and out. The interfaces tried are full replication and what
sharding propagation says, which is what op-by-op partitioners use. An interface that hardly any plan uses has a lower
bound for a price (`Least`) until a search chooses it, and only then its bodies are planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from eggshard.placement.transfer import Strategy
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.spmd.hoisting import hoisted, hoisted_loop
from eggshard.spmd.unrolling import looks_at_neighbours, with_rows
from eggshard.steps.control_steps import Branch, Loop, price_of_loop, trips
from eggshard.steps.steps import Action, StepPlan

CONTROL_FLOW = ("while", "case", "if")

Types = tuple[TensorType, ...]
#: Plans a region for given input and output placements; a loop's body for so many trips.
PlanRegion = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...], int], StepPlan]


class Least(NamedTuple):
    """What something costs at least, in seconds; ``exact`` where that is its price."""

    seconds: float
    exact: bool


#: Bounds what a region's plan costs at given placements; a loop's body's of so many trips that of one of them, where
#: what is invariant is paid for by all together.
LeastOfRegion = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...], int], Least]


class ControlFlow:
    """Strategies and actions of control-flow ops; bodies are planned once per interface."""

    def __init__(self, plan_region: PlanRegion, plain_region: PlanRegion | None = None,
                 least_of_region: LeastOfRegion | None = None):
        self._plan_region, self._plain_region = plan_region, plain_region or plan_region
        self._least_of_region = least_of_region
        self._forms: dict[tuple[object, ...], Action | StepPlan] = {}
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

    def priced(
        self, name: str, attributes: Attributes, regions: tuple[Region, ...], offered: Sequence[Strategy],
        price: Callable[[Strategy], float],
    ) -> list[tuple[Strategy, float]]:
        """Interfaces with their prices, or with lower bounds, where some search may never choose them.

        These are full replication, where others are offered, and what must cost more than another one is known to.
        """
        known, found = math.inf, []
        for i, s in enumerate(offered):
            most_likely = len(offered) == 1 or (i > 0 and known == math.inf)
            least = None if most_likely else self.least(name, attributes, regions, s)
            if least is None or not (least.exact or i == 0 or least.seconds > known):
                least = Least(price(s), True)
            known = min(known, least.seconds) if least.exact else known
            found.append((s, least.seconds))
        return found

    def action(self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy,
               searched: bool = True) -> Action:
        """The loop or branch with its bodies planned for the strategy's placements; unless ``searched``, op by op."""
        plan = self.region if searched else self._plain_region
        if name == "while":
            condition, body = regions
            flag = (replicated(()),)
            times = max(1, trips(attributes.get("trip_count")))
            return Loop(
                plan(condition, strategy.operands, flag, 1), plan(body, strategy.operands, strategy.results, times),
                attributes.get("trip_count"),
            )
        planned = tuple(plan(r, strategy.operands[1:], strategy.results, 1) for r in regions)
        return Branch(planned, predicate=name == "if")

    def form(
        self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy, types: Types,
        price: Callable[[StepPlan], float], saving: float | None, searched: bool,
    ) -> Action | StepPlan:
        """What devices do on shards of these types: the loop with what is invariant before it, or the branch.

        Iterations are put in a row where that saves more than the part ``saving`` of the price; None: never. searched:
        plan bodies; else those that have not been planned yet are done op by op.
        """
        if not searched and not self.planned(name, attributes, regions, strategy):
            action = self.action(name, attributes, regions, strategy, searched=False)
            return hoisted_loop(action, types) if isinstance(action, Loop) else action
        key = (name, attributes, regions, strategy, types)
        if key not in self._forms:
            form: Action | StepPlan = self.action(name, attributes, regions, strategy)
            if isinstance(form, Loop) and saving is not None:
                condition, body = regions
                form = with_rows(form, condition, body, strategy.operands, types, self.region,
                                 lambda p: price(hoisted(p)), saving)
            if isinstance(form, Loop):
                form = hoisted_loop(form, types)
            self._forms[key] = hoisted(form) if isinstance(form, StepPlan) else form
        return self._forms[key]

    def planned(self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy) -> bool:
        """Whether the bodies have been planned for the strategy's placements."""
        bodies, operands, times = regions, strategy.operands[1:], 1
        if name == "while":
            bodies, operands, times = regions[1:], strategy.operands, max(1, trips(attributes.get("trip_count")))
        return all((region, operands, strategy.results, times) in self._planned for region in bodies)

    def least(self, name: str, attributes: Attributes, regions: tuple[Region, ...], strategy: Strategy) -> Least | None:
        """What the loop or branch costs at least by the strategy; None where nothing is known but by planning.

        Of iterations that look at neighbours: several in a row may cost less than one by one. What a loop's condition
        sends may run once, before the loop, and be what the body sends too: such a condition counts for nothing.
        """
        least = self._least_of_region
        if least is None or (name == "while" and looks_at_neighbours(regions[1])):
            return None
        if name == "while":
            flag, times = (replicated(()),), trips(attributes.get("trip_count"))
            body = least(regions[1], strategy.operands, strategy.results, max(1, times))
            asked = self.region(regions[0], strategy.operands, flag)  # small, so planned at once
            condition = least(regions[0], strategy.operands, flag, 1).seconds if not asked.messages else 0.0
            return Least(price_of_loop(times, condition, body.seconds), body.exact and not asked.messages)
        bodies = [least(r, strategy.operands[1:], strategy.results, 1) for r in regions]
        return Least(max(b.seconds for b in bodies), all(b.exact for b in bodies))

    def region(
        self, region: Region, inputs: tuple[Placement, ...], outputs: tuple[Placement, ...], times: int = 1
    ) -> StepPlan:
        """The device program of a body for these placements of its inputs and outputs; of a loop's, for so many trips.

        What a loop's body computes of values that it returns unchanged is paid for once (`spmd/hoisting.py`).
        """
        key = (region, inputs, outputs, times)
        if key not in self._planned:
            self._planned[key] = self._plan_region(*key)
        return self._planned[key]
