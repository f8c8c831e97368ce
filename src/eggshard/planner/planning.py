"""What planning one program needs in every stage: its mesh, prices, reshards, strategies, and boundary placements."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, Protocol

from eggshard.costmodel.pricing import Pricer, op_info
from eggshard.costmodel.protocol import CostModel
from eggshard.errors import ProgramError
from eggshard.frontends.divergence import DIVERGES
from eggshard.limits import Limits
from eggshard.ops import registry
from eggshard.ops.base import FactorRule
from eggshard.ops.collectives import PerDevice
from eggshard.placement.transfer import Strategy, strategies
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.planner.encoding.widening import Widener
from eggshard.planner.propagation.propagated import Propagated, propagated
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType, is_float
from eggshard.reshard.routes import Router
from eggshard.reshard.submesh import SubmeshRouter
from eggshard.reshard.window_routes import WindowRouter
from eggshard.spmd.authored import authored_program
from eggshard.spmd.boundaries import axis_orders, evenly
from eggshard.spmd.control_flow import CONTROL_FLOW, ControlFlow
from eggshard.spmd.effects import run_once
from eggshard.spmd.manual import (
    MANUAL,
    Interface,
    effects_message,
    free_mesh,
    manual_program,
    manual_strategies,
    placement_inside,
)
from eggshard.spmd.on_shards import on_shards
from eggshard.spmd.regrouping import regrouped, regroupings
from eggshard.spmd.unrolling import WORTH
from eggshard.spmd.window_program import window_program
from eggshard.steps.steps import Action, Local, StepPlan

if TYPE_CHECKING:
    from eggshard.planner.regions import RegionPlanner

#: Reductions whose result depends on the order for floating-point numbers, or, of a maximum or minimum, on whether a
#: back end's collective keeps NaN (XLA's all-reduce on CPU does not).
_INEXACT = ("add", "mul", "max", "min")

#: From so many ops on the search keeps only some candidates, and propagation says which ones not to miss.
MANY_OPS = 100

Types = tuple[TensorType, ...]


class OpLike(Protocol):
    """An op of a program, or a node of an e-graph."""

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> Attributes: ...

    @property
    def regions(self) -> tuple[Region, ...]: ...


def _local(types: Types, placements: Sequence[Placement]) -> Types:
    return tuple([p.local_type(t) for p, t in zip(placements, types, strict=True)])


class Planning:
    """The shared context of one `optimize` call: prices and routes are found once for all regions of a program.

    ``mesh`` is what steps run on, ``free`` the mesh of the axes that placements may name: all of them, but inside a
    manual computation (`within`), whose own axes its author has used.
    """

    def __init__(self, program: Program, model: CostModel, limits: Limits, exact: bool, regions: RegionPlanner,
                 outer: Planning | None = None, free: Mesh | None = None):
        self.program, self.model, self.limits, self.exact = program, model, limits, exact
        self.mesh: Mesh = program.mesh
        self.free: Mesh = program.mesh if free is None else free
        self.outer = outer
        self.pricer: Pricer = outer.pricer if outer else Pricer(model, self.mesh)
        self.router = self._router()
        self._regions = regions
        self.control_flow = ControlFlow(
            partial(regions.plan, self), partial(regions.plain, self), partial(regions.least, self))
        #: For loops and branches that devices along manual axes may leave each other in: nothing is added to them.
        self._diverging = ControlFlow(lambda region, *_: manual_program(self.mesh, region, self.free))
        self._interfaces: dict[tuple[Attributes, Region], list[Interface]] = {}
        self._within: dict[Mesh, Planning] = {}
        #: The context that bodies of manual computations are planned in.
        self._bodies = self
        self._inside: dict[Region, Sequence[Sharding | None]] = {}
        self._priced: dict[tuple[object, ...], list[tuple[Strategy, float]]] = {}
        #: The prices of ops on local types.
        self._computing: dict[tuple[str, Attributes, Types, Types], float] = {}
        self._transfers: dict[tuple[object, ...], WindowTransfer | None] = {}
        self._regroupings: dict[tuple[object, ...], StepPlan | None] = {}

    def of(self, program: Program) -> Planning:
        """The context of another program on the same mesh, with the same prices and limits."""
        return Planning(program, self.model, self.limits, self.exact, self._regions)

    def priced_by(self, pricer: Pricer) -> Planning:
        """The same context under other prices; bodies of loops, branches and manual computations stay as they are."""
        other = copy.copy(self)
        other.pricer = pricer
        other.router = other._router()
        other._priced, other._computing = {}, {}
        return other

    def _router(self) -> Router:
        if self.outer:
            return SubmeshRouter(self.mesh, self.free, self.pricer, max_rounds=self.limits.permutes)
        return WindowRouter(self.mesh, self.pricer, max_rounds=self.limits.permutes)

    def within(self, attributes: Attributes) -> Planning:
        """The context of the body of a manual computation with these attributes."""
        free = free_mesh(self.free, attributes)
        if free not in self._within:
            self._within[free] = Planning(
                self.program, self.model, self.limits, self.exact, self._regions, self._bodies, free
            )
        return self._within[free]

    def resolve(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The placement that a stated sharding asks for; replicated where nothing is stated."""
        return replicated(type_.shape) if sharding is None else sharding.to_placement(self.free, type_)

    def boundary(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The same for inputs and outputs, which lie evenly: axes that do not divide a dimension are dropped there."""
        placement = self.resolve(sharding, type_)
        if placement.partial:
            placement = Placement(placement.dims)
        return evenly(self.mesh, type_, placement)

    @cached_property
    def inputs(self) -> tuple[Placement, ...]:
        """Where the program's inputs lie."""
        p = self.program
        return tuple(self.boundary(s, t) for s, t in zip(p.input_shardings, p.input_types, strict=True))

    @cached_property
    def propagated(self) -> Sequence[Sharding | None]:
        """What Shardy's propagation says of every value of the program; found when first asked for."""
        return self._propagated.values

    @cached_property
    def _propagated(self) -> Propagated:
        return propagated(self.program)

    def propagated_inside(self, region: Region) -> Sequence[Sharding | None]:
        """What propagation says of a region's values; nothing where it says nothing, or was not asked (`hints`)."""
        if region is self.program.region:
            return self.propagated
        return self._inside.get(region, ())

    @cached_property
    def hints(self) -> Sequence[Sharding | None]:
        """The propagated shardings where the search can use them, and else nothing.

        They say where free outputs may lie, at which placements loops and branches carry their values, those at which
        manual computations meet the rest, and which candidates of a large program to keep. Otherwise only the baseline
        asks for them, and few callers for it.
        """
        if self.outer:
            return self.outer.hints
        region = self.program.region
        wanted = (
            len(region.ops) > MANY_OPS
            or any(s is None for s in self.program.output_shardings)
            or any(op.name in CONTROL_FLOW or self._is_partly_manual(op) for op in region.ops)
        )
        if not wanted:
            return (None,) * len(region.types)
        self._hint(region, self._propagated)
        return self.propagated

    def _is_partly_manual(self, op: Op) -> bool:
        return op.name == MANUAL and free_mesh(self.free, op.attributes).size > 1

    def _hint(self, region: Region, found: Propagated) -> None:
        """Propose the interfaces that propagation found for the loops, branches and manual computations of a region."""
        self._inside[region] = found.values
        for i, inside in found.regions.items():
            op, planning = region.ops[i], self
            if op.name == MANUAL:
                if not self._is_partly_manual(op):
                    continue
                planning = self.within(op.attributes)
                self._interfaces.setdefault((op.attributes, op.regions[0]), []).append(found.interfaces[i])
            elif self._flow(op) is self.control_flow:
                operands, results = (
                    tuple(self.resolve(found.values[v], region.types[v]) for v in values)
                    for values in (op.operands, op.results)
                )
                self.control_flow.hint(op, operands, results)
            for inner, part in zip(op.regions, inside, strict=True):
                planning._hint(inner, part)

    @cached_property
    def orders(self) -> frozenset[tuple[str, ...]]:
        """Axis orders besides mesh order: those of the program's shardings, and of dimensions that reshapes merge."""
        if self.outer:
            return self.outer.orders
        return axis_orders(self.program, self.hints, self.resolve)

    def partial_allowed(self, dtype: str, monoid: str) -> bool:
        """Whether addends may stay on different devices: under ``exact`` not where that may show."""
        return not (self.exact and monoid in _INEXACT and is_float(dtype))

    def strategies(
        self, op: OpLike, operands: Types, results: Types, bodies: Literal["bounded", "plain", "planned"] = "bounded"
    ) -> list[tuple[Strategy, float]]:
        """All strategies of an op on these types within the limit, each with the price of computing so, in seconds.

        Of a loop or branch it may be a lower bound (`ControlFlow.priced`); with ``plain`` bodies the price where those
        not yet planned are done op by op, with ``planned`` ones the exact price. That is the only one where the machine
        computes while it communicates: the bounds are of sums of prices.
        """
        if bodies == "bounded" and self.pricer.overlap:
            bodies = "planned"
        if op.name in CONTROL_FLOW and bodies != "planned":
            flow, offered = self._flow(op), self._all(op, operands, results)
            if bodies == "plain":
                return [(s, self.price(op, operands, results, s, searched=False)) for s in offered]
            return flow.priced(op.name, op.attributes, op.regions, offered, partial(self.price, op, operands, results))
        key = (op.name, op.attributes, op.regions, operands, results)
        if key not in self._priced:
            offered = self._all(op, operands, results)
            if self.pricer.takes_many:
                alone = (s for s in offered if not s.regroups and self.is_one_step(op, operands, results, s))
                local = dict.fromkeys((_local(operands, s.operands), _local(results, s.results)) for s in alone)
                self.pricer.know(op_info(self.mesh, op.name, op.attributes, lo, lr) for lo, lr in local)
            self._priced[key] = [(s, self.price(op, operands, results, s)) for s in offered]
        return self._priced[key]

    def price_ahead(self, region: Region) -> None:
        """Find and price the strategies of a region's ops, for which `strategies` then has them."""
        for op in region.ops:
            if op.name not in CONTROL_FLOW:
                operands, results = (tuple([region.types[v] for v in values]) for values in (op.operands, op.results))
                self.strategies(op, operands, results)

    def windows(
        self, inputs: Sequence[tuple[int, Placement]], outputs: Sequence[tuple[int, Placement]]
    ) -> Widener:
        """What adds windows to the problem of a graph whose inputs and outputs lie so; none in manual computations."""
        router = self.router if isinstance(self.router, WindowRouter) else WindowRouter(self.mesh, self.pricer)
        return Widener(self, router, 0 if self.outer else self.limits.windows, inputs, outputs)

    def window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        """How the op acts on windows; None for one that takes its operands at standard placements only."""
        key = (op.name, op.attributes, operands, results)
        if key not in self._transfers:
            self._transfers[key] = self._window_transfer(op, operands, results)
        return self._transfers[key]

    def _window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        if self.outer or not registry.known(op.name) or op.regions or len(results) != 1:
            return None
        definition = registry.get(op.name)
        if not definition.pure or isinstance(definition, PerDevice):
            return None
        rule = definition.factors(op.attributes, operands, results)
        reaches = definition.reaches(op.attributes, operands, results)
        dtype = results[0].dtype
        return WindowTransfer(
            self.mesh, rule, reaches, operands, results[0], self.orders,
            lambda monoid: self.partial_allowed(dtype, monoid), self.limits.strategies,
            lambda windows: definition.window_allowed(op.attributes, operands, results, windows),
            definition.windows_by_place,
        )

    def action(
        self, op: OpLike, operands: Types, results: Types, strategy: Strategy, searched: bool = True
    ) -> Action | StepPlan:
        """The op on the shards of a strategy: one action, or a device program.

        searched: plan the bodies of a loop or branch; else those that have not been planned yet are done op by op.
        """
        if op.name in CONTROL_FLOW:
            types = _local(operands, strategy.operands)
            # Nothing has windows in manual computations, so iterations in a row would share no exchange.
            price, saving = self.pricer.program, None if self.outer else max(self.limits.gap, WORTH)
            return self._flow(op).form(op.name, op.attributes, op.regions, strategy, types, price, saving, searched)
        if op.name == MANUAL:
            return self._manual(op, strategy)
        if strategy.positional:
            return on_shards(self.mesh, op.name, op.attributes, op.regions, operands, results, strategy)
        definition = registry.get(op.name)
        if strategy.regroups:
            program = self._regrouping(op, operands, results, strategy)
            assert program is not None, "offered only where there is one"
            return program
        windowed = self._windowed(op, operands, results, strategy)
        if windowed:
            return window_program(self.mesh, definition, op.attributes, operands, results, strategy, windowed)
        lo, lr = _local(operands, strategy.operands), _local(results, strategy.results)
        attributes = definition.localize(op.attributes, operands, results, lo, lr)
        if isinstance(definition, PerDevice):
            try:
                return authored_program(self.mesh, self.free, op.name, attributes, op.regions, lo, lr)
            except ProgramError as error:
                shown = ", ".join(map(str, operands))
                raise ProgramError(f"{op.name}({shown}): {error}") from None
        local = Local(op.name, attributes, lr, op.regions, definition.flops(attributes, lo, lr))
        if local.has_effects and self.outer:
            raise ProgramError(f"{op.name} in a manual computation: {effects_message(self.free)}")
        return local if self.mesh.size == 1 or not local.has_effects else run_once(self.mesh, local, lo)

    def regroupings(
        self, op: OpLike, operands: Types, results: Types, allowed: Callable[[Placement, Placement], bool]
    ) -> list[Strategy]:
        """The ways to split or merge a sharded dimension by an exchange of pieces, between placements so allowed."""
        transfer = self.window_transfer(op, operands, results) if op.name == "reshape" else None
        if transfer is None:
            return []
        bases = [strategy for found in transfer.by_spread.values() for strategy in found]
        made = regroupings(self.mesh, transfer.rule, bases, allowed)
        return [s for s in made if self._regrouping(op, operands, results, s) is not None]

    def _regrouping(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> StepPlan | None:
        key = (op.attributes, operands, s)
        if key not in self._regroupings:
            rule = registry.get(op.name).factors(op.attributes, operands, results)
            self._regroupings[key] = regrouped(
                self.mesh, rule, operands[0], results[0], s.operands[0], s.results[0], self.limits.permutes
            )
        return self._regroupings[key]

    def _windowed(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> frozenset[int]:
        """The result dimensions that a strategy shards although the op looks along them."""
        if self.outer or not registry.get(op.name).reaches(op.attributes, operands, results):
            return frozenset()
        transfer = self.window_transfer(op, operands, results)
        return frozenset() if transfer is None else frozenset(d for d in transfer.windowed if s.results[0].dims[d].axes)

    def _flow(self, op: OpLike) -> ControlFlow:
        return self._diverging if self.outer and op.attributes.get(DIVERGES) else self.control_flow

    def _manual(self, op: OpLike, strategy: Strategy) -> StepPlan:
        (region,), axes = op.regions, op.attributes["manual_axes"]
        inner = self.within(op.attributes)
        if inner.free.size == 1:
            return manual_program(self.mesh, region, inner.free)
        inputs, outputs = (
            tuple(placement_inside(p, axes) for p in end) for end in (strategy.operands, strategy.results)
        )
        return inner.control_flow.region(region, inputs, outputs)

    def price(self, op: OpLike, operands: Types, results: Types, s: Strategy, searched: bool = True) -> float:
        """What computing by a strategy costs, in seconds; searched: as in `action`."""
        lo, lr = _local(operands, s.operands), _local(results, s.results)
        if s.regroups:
            program = self._regrouping(op, operands, results, s)
            assert program is not None, "offered only where there is one"
            return self.pricer.total(program)
        if not self.is_one_step(op, operands, results, s):
            action = self.action(op, operands, results, s, searched)
            return self.pricer.total(action) if isinstance(action, StepPlan) else self.pricer(action, *lo)
        key = (op.name, op.attributes, lo, lr)
        price = self._computing.get(key)
        if price is None:
            price = self._computing[key] = self.pricer.info(op_info(self.mesh, op.name, op.attributes, lo, lr))
        return price

    def is_one_step(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> bool:
        """Whether devices do by a strategy just what the op says, on their shards."""
        definition = registry.get(op.name)
        written = op.name in CONTROL_FLOW or op.name == MANUAL or isinstance(definition, PerDevice)
        moves = s.positional or s.regroups or bool(self._windowed(op, operands, results, s))
        return definition.pure and not written and not moves

    def _all(self, op: OpLike, operands: Types, results: Types) -> Sequence[Strategy]:
        if op.name in CONTROL_FLOW:
            return self._flow(op).strategies(op.name, op.attributes, op.regions, operands, results)
        if op.name == MANUAL:
            (region,), attributes = op.regions, op.attributes
            hints = self._interfaces.get((attributes, region), ())
            return manual_strategies(self.free, attributes, region, operands, results, hints)
        name, attributes = op.name, op.attributes
        rule: FactorRule = registry.get(name).factors(attributes, operands, results)
        dtypes = {t.dtype for t in results}
        return strategies(
            self.free, rule, self.orders,
            lambda monoid: all(self.partial_allowed(d, monoid) for d in dtypes),
            self.limits.strategies,
        )
