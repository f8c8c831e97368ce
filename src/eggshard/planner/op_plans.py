"""Plans of single ops: strategies on shards, their costs, and the device steps that carry them out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from eggshard.costmodel.pricing import Pricer, op_info
from eggshard.egraph.graph import EGraph
from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.ops.base import FactorRule
from eggshard.ops.calls.collectives import PerDevice
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy, enumerated
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.plan.reasons import Weigh
from eggshard.planner.context import Context
from eggshard.planner.hints import Hints
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.spmd.authored import authored_program
from eggshard.spmd.effects import run_once
from eggshard.spmd.manual import MANUAL, effects_message, manual_strategies
from eggshard.spmd.on_shards import likeness, on_shards
from eggshard.spmd.picked_reduction import picked, picking_strategies, picks
from eggshard.spmd.regrouping import regrouped, regroupings
from eggshard.spmd.window_program import window_program
from eggshard.steps.steps import Action, Local, StepPlan

Types = tuple[TensorType, ...]
#: How bodies that are not planned yet are priced: by a lower bound where a search may never choose them, op by op, or
#: by planning them.
BodyPrices = Literal["bounded", "plain", "planned"]


class OpLike(Protocol):
    """An op of a program, or a node of an e-graph."""

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> Attributes: ...

    @property
    def regions(self) -> tuple[Region, ...]: ...


class BodyPlans(Protocol):
    """What is known of ops with bodies (`bodies.Bodies`)."""

    def strategies(
        self, plans: OpPlans, op: OpLike, operands: Types, results: Types, searched: bool = True
    ) -> Sequence[Strategy]:
        """The interfaces of a loop or branch to choose from, for a search or as propagation has them."""

    def priced(self, plans: OpPlans, op: OpLike, operands: Types, results: Types) -> list[tuple[Strategy, float]]:
        """The interfaces with their prices, or lower bounds, in seconds."""

    def form(self, plans: OpPlans, op: OpLike, strategy: Strategy, types: Types, searched: bool) -> Action | StepPlan:
        """The loop or branch at an interface, its bodies planned, or else as they are known."""

    def manual(self, plans: OpPlans, op: OpLike, strategy: Strategy) -> StepPlan:
        """A manual computation at an interface."""

    def graph_of(self, plans: OpPlans, region: Region) -> EGraph:
        """The e-graph of a region."""

    def gap(self, steps: StepPlan) -> float:
        """The largest relative gap of the bodies in a device program that were searched for."""

    def explaining(self, steps: StepPlan, reasons: Weigh) -> Weigh:
        """What explains a plan, bodies included, from what explains the steps outside of them."""

    def forget(self) -> None:
        """The search is over: let go of what was only begun."""


def local(types: Types, placements: Sequence[Placement]) -> Types:
    """The types of shards."""
    return tuple([p.local_type(t) for p, t in zip(placements, types, strict=True)])


class OpPlans:
    """The strategies of a context's ops; each is found and priced once."""

    def __init__(self, context: Context, hints: Hints, bodies: BodyPlans):
        self.context, self.hints, self.bodies = context, hints, bodies
        self.mesh = context.mesh
        #: The plans under the cost model's own prices, by which bodies are planned.
        self.base = self
        #: The ops of which some strategies were left out.
        self.cut: set[str] = set()
        self._within: dict[Attributes, OpPlans] = {}
        self._repriced: dict[Pricer, OpPlans] = {}
        self._priced: dict[tuple[object, ...], list[tuple[Strategy, float]]] = {}
        #: Prices of ops on local types, or by what else they depend on.
        self._computing: dict[tuple[object, ...], float] = {}
        self._transfers: dict[tuple[object, ...], WindowTransfer | None] = {}
        self._regroupings: dict[tuple[object, ...], StepPlan | None] = {}

    def priced_by(self, pricer: Pricer) -> OpPlans:
        """The plans under a pricer, the same for an equal one; plans of bodies are shared."""
        if pricer == self.base.context.pricer:
            return self.base
        if pricer not in self._repriced:
            other = self._repriced[pricer] = copy.copy(self.base)
            other.context = self.base.context.priced_by(pricer)
            other._priced, other._computing = {}, {}
        return self._repriced[pricer]

    def within(self, attributes: Attributes) -> OpPlans:
        """The plans of ops in the body of a manual computation with these attributes."""
        base = self.base
        if attributes not in base._within:
            inner = base._within[attributes] = OpPlans(base.context.within(attributes), self.hints, self.bodies)
            inner.cut = base.cut
        return base._within[attributes]

    def strategies(
        self, op: OpLike, operands: Types, results: Types, bodies: BodyPrices = "bounded"
    ) -> list[tuple[Strategy, float]]:
        """All strategies of an op on these types within the limit, each with the price of computing so, in seconds.

        The price of a loop or branch may be a lower bound (see `BodyPrices`), but not where the machine computes while
        it communicates: the bounds are of sums of prices.
        """
        pricer = self.context.pricer
        if bodies == "bounded" and pricer.overlap:
            bodies = "planned"
        if op.name in CONTROL_FLOW and bodies != "planned":
            if bodies == "bounded":
                return self.bodies.priced(self, op, operands, results)
            offered = self.bodies.strategies(self, op, operands, results, searched=False)
            return [(s, self.price(op, operands, results, s, searched=False)) for s in offered]
        key = (op.name, op.attributes, op.regions, operands, results)
        if key not in self._priced:
            offered = self._all(op, operands, results)
            if pricer.takes_many:
                alone = (s for s in offered if not s.regroups and self.is_one_step(op, operands, results, s))
                types = dict.fromkeys((local(operands, s.operands), local(results, s.results)) for s in alone)
                pricer.know(op_info(self.mesh, op.name, op.attributes, lo, lr) for lo, lr in types)
            self._priced[key] = [(s, self.price(op, operands, results, s)) for s in offered]
        return self._priced[key]

    def price_ahead(self, region: Region) -> None:
        """Find and price the strategies of a region's ops, for which `strategies` then has them."""
        for op in region.ops:
            if op.name not in CONTROL_FLOW:
                operands, results = (tuple([region.types[v] for v in values]) for values in (op.operands, op.results))
                self.strategies(op, operands, results)

    def _all(self, op: OpLike, operands: Types, results: Types) -> Sequence[Strategy]:
        context = self.context
        if op.name in CONTROL_FLOW:
            return self.bodies.strategies(self, op, operands, results)
        if op.name == MANUAL:
            (region,), attributes = op.regions, op.attributes
            found = self.hints.manual(attributes, region)
            return manual_strategies(context.free, attributes, region, operands, results, found)
        rule: FactorRule = registry.get(op.name).factors(op.attributes, operands, results)
        dtypes = {t.dtype for t in results}
        limit = context.limits.strategies
        offered = enumerated(
            context.free, rule, self.hints.orders,
            lambda monoid: all(context.partial_allowed(d, monoid) for d in dtypes), limit,
            view=lambda: self.hints.view(op.name, op.attributes, operands, results))
        if offered.cut:
            self.cut.add(op.name)
        if context.outer or not picks(op.name, op.regions):
            return offered.found
        return *offered.found, *picking_strategies(context.free, op.attributes, rule, self.hints.orders, limit)

    def action(
        self, op: OpLike, operands: Types, results: Types, strategy: Strategy, searched: bool = True
    ) -> Action | StepPlan:
        """The op on the shards of a strategy: one action, or a device program.

        searched: plan the bodies of a loop or branch; else those that have not been planned yet are done op by op.
        """
        context = self.context
        if op.name in CONTROL_FLOW:
            return self.bodies.form(self, op, strategy, local(operands, strategy.operands), searched)
        if op.name == MANUAL:
            return self.bodies.manual(self, op, strategy)
        if strategy.positional:
            return on_shards(self.mesh, op.name, op.attributes, op.regions, operands, results, strategy)
        definition = registry.get(op.name)
        if strategy.regroups:
            program = self._regrouping(op, operands, results, strategy)
            assert program is not None, "offered only where there is one"
            return program
        windowed = self._windowed(op, operands, results, strategy)
        if windowed is not None:
            return window_program(self.mesh, definition, op.attributes, operands, results, strategy, windowed)
        lo, lr = local(operands, strategy.operands), local(results, strategy.results)
        attributes = definition.localize(op.attributes, operands, results, lo, lr)
        if isinstance(definition, PerDevice):
            try:
                return authored_program(self.mesh, context.free, op.name, attributes, op.regions, lo, lr)
            except ProgramError as error:
                shown = ", ".join(map(str, operands))
                raise ProgramError(f"{op.name}({shown}): {error}") from None
        step = Local(op.name, attributes, lr, op.regions, definition.flops(attributes, lo, lr))
        if step.has_effects and context.outer:
            raise ProgramError(f"{op.name} in a manual computation: {effects_message(context.free)}")
        return step if self.mesh.size == 1 or not step.has_effects else run_once(self.mesh, step, lo)

    def price(self, op: OpLike, operands: Types, results: Types, s: Strategy, searched: bool = True) -> float:
        """What computing by a strategy costs, in seconds; searched: as in `action`."""
        pricer = self.context.pricer
        lo, lr = local(operands, s.operands), local(results, s.results)
        if s.regroups:
            program = self._regrouping(op, operands, results, s)
            assert program is not None, "offered only where there is one"
            return pricer.total(program)
        if s.positional:
            key: tuple[object, ...] = (op.name, op.attributes, op.regions, likeness(operands, results, s))
            if key not in self._computing:
                self._computing[key] = pricer.total(
                    on_shards(self.mesh, op.name, op.attributes, op.regions, operands, results, s)
                )
            return self._computing[key]
        if not self.is_one_step(op, operands, results, s):
            action = self.action(op, operands, results, s, searched)
            return pricer.total(action) if isinstance(action, StepPlan) else pricer(action, *lo)
        key = (op.name, op.attributes, lo, lr)
        price = self._computing.get(key)
        if price is None:
            price = self._computing[key] = pricer.info(op_info(self.mesh, op.name, op.attributes, lo, lr))
        return price

    def is_one_step(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> bool:
        """Whether devices do by a strategy just what the op says, on their shards."""
        definition = registry.get(op.name)
        written = op.name in CONTROL_FLOW or op.name == MANUAL or isinstance(definition, PerDevice)
        moves = s.positional or s.regroups or self._windowed(op, operands, results, s) is not None
        return definition.pure and not written and not moves

    # -- windows and reshapes across shards --------------------------------------------------------------------------

    def window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        """How the op acts on windows; None for one that takes its operands at standard placements only."""
        key = (op.name, op.attributes, operands, results)
        if key not in self._transfers:
            self._transfers[key] = self._window_transfer(op, operands, results)
        return self._transfers[key]

    def _window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        context = self.context
        if context.outer or not registry.known(op.name) or op.regions or len(results) != 1:
            return None
        definition = registry.get(op.name)
        if not definition.pure or isinstance(definition, PerDevice):
            return None
        rule = definition.factors(op.attributes, operands, results)
        reaches = definition.reaches(op.attributes, operands, results)
        dtype = results[0].dtype
        return WindowTransfer(
            self.mesh, rule, reaches, operands, results[0], self.hints.orders,
            lambda monoid: context.partial_allowed(dtype, monoid), context.limits.strategies,
            lambda windows: definition.window_allowed(op.attributes, operands, results, windows),
            definition.windows_by_place, lambda: self.hints.view(op.name, op.attributes, operands, results),
            definition.summed_reaches(op.attributes, operands, results),
        )

    def _windowed(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> frozenset[int] | None:
        """The result dimensions that a strategy shards although the op looks along them; None where it shards nothing
        along which the op looks."""
        if self.context.outer or not registry.get(op.name).reaches(op.attributes, operands, results):
            return None
        transfer = self.window_transfer(op, operands, results)
        if transfer is None or not transfer.looks(s):
            return None
        return frozenset(d for d in transfer.windowed if s.results[0].dims[d].axes)

    def regroupings(
        self, op: OpLike, operands: Types, results: Types, allowed: Callable[[Placement, Placement], bool]
    ) -> list[Strategy]:
        """The strategies that split or merge a sharded dimension by a point-to-point redistribution, where allowed."""
        transfer = self.window_transfer(op, operands, results) if op.name == "reshape" else None
        if transfer is None:
            return []
        bases = [strategy for found in transfer.by_spread.values() for strategy in found]
        made = regroupings(self.mesh, transfer.rule, bases, allowed)
        return [s for s in made if self._regrouping(op, operands, results, s) is not None]

    def _regrouping(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> StepPlan | None:
        key = (op.name, op.attributes, op.regions, operands, s)
        if key not in self._regroupings and op.name != "reshape":
            self._regroupings[key] = picked(self.mesh, op.attributes, op.regions, operands, results, s)
        if key not in self._regroupings:
            rule = registry.get(op.name).factors(op.attributes, operands, results)
            self._regroupings[key] = regrouped(
                self.mesh, rule, operands[0], results[0], s.operands[0], s.results[0], self.context.limits.permutes
            )
        return self._regroupings[key]
