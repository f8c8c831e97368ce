"""What planning one program needs in every stage: its mesh, prices, reshards, strategies, and boundary placements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from eggshard.control_flow import CONTROL_FLOW, ControlFlow, RegionPlanner
from eggshard.costmodel.protocol import CostModel
from eggshard.effects import run_once
from eggshard.frontends.propagation import propagated_shardings
from eggshard.limits import Limits
from eggshard.manual import MANUAL, manual_program, manual_strategy
from eggshard.placement.placement import Placement, is_even, place, replicated
from eggshard.placement.sharding import Sharding
from eggshard.placement.transfer import Strategy, strategies
from eggshard.placement.window_routes import WindowRouter
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.plan.control_steps import Loop
from eggshard.plan.pricing import Pricer
from eggshard.plan.steps import Action, Local, StepPlan
from eggshard.plan.window_program import window_program
from eggshard.program.mesh import Mesh
from eggshard.program.ops import registry
from eggshard.program.ops.base import PASS, FactorRule
from eggshard.program.program import Attributes, Op, Program, Region
from eggshard.program.types import TensorType, is_float
from eggshard.unrolling import with_rows

#: Reductions whose result depends on the order for floating-point numbers.
_ROUNDING = ("add", "mul")

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
    return tuple(p.local_type(t) for p, t in zip(placements, types, strict=True))


class Planning:
    """The shared context of one `optimize` call: prices and routes are found once for all regions of a program."""

    def __init__(self, program: Program, model: CostModel, limits: Limits, exact: bool, plan_region: RegionPlanner):
        self.program, self.model, self.limits, self.exact = program, model, limits, exact
        self.mesh: Mesh = program.mesh
        self.pricer = Pricer(model, self.mesh)
        self.router = WindowRouter(self.mesh, self.pricer, max_rounds=limits.permutes)
        self.control_flow = ControlFlow(plan_region)
        self._priced: dict[tuple[object, ...], list[tuple[Strategy, float]]] = {}
        self._transfers: dict[tuple[object, ...], WindowTransfer | None] = {}

    def resolve(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The placement that a stated sharding asks for; replicated where nothing is stated."""
        return replicated(type_.shape) if sharding is None else sharding.to_placement(self.mesh, type_)

    def boundary(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The same for inputs and outputs, which lie evenly: axes that do not divide a dimension are dropped there."""
        placement = self.resolve(sharding, type_)
        if placement.partial:
            placement = Placement(placement.dims)
        if is_even(type_.shape, placement, self.mesh):
            return placement
        axes = []
        for n, dim in zip(type_.shape, placement.dims, strict=True):
            kept: tuple[str, ...] = ()
            for axis in dim.axes:
                if n % self.mesh.count((*kept, axis)):
                    break
                kept += (axis,)
            axes.append(kept)
        return place(self.mesh, type_.shape, tuple(axes))

    @cached_property
    def inputs(self) -> tuple[Placement, ...]:
        """Where the program's inputs lie."""
        p = self.program
        return tuple(self.boundary(s, t) for s, t in zip(p.input_shardings, p.input_types, strict=True))

    @cached_property
    def propagated(self) -> Sequence[Sharding | None]:
        """What Shardy's propagation says of every value of the program; found when first asked for."""
        return propagated_shardings(self.program, self.limits.seconds)

    @cached_property
    def hints(self) -> Sequence[Sharding | None]:
        """The propagated shardings where the search can use them, and else nothing.

        They say where free outputs may lie, at which placements loops and branches carry their values, and which
        candidates of a large program to keep. Otherwise only the baseline asks for them, and few callers for it.
        """
        region = self.program.region
        wanted = (
            len(region.ops) > MANY_OPS
            or any(s is None for s in self.program.output_shardings)
            or any(op.name in CONTROL_FLOW for op in region.ops)
        )
        if not wanted:
            return (None,) * len(region.types)
        for op in region.ops:
            if op.name in CONTROL_FLOW:
                operands, results = (
                    tuple(self.resolve(self.propagated[v], region.types[v]) for v in values)
                    for values in (op.operands, op.results)
                )
                self.control_flow.hint(op.name, op.regions, operands, results)
        return self.propagated

    @cached_property
    def orders(self) -> frozenset[tuple[str, ...]]:
        """Axis orders besides mesh order: those of the program's shardings, and of dimensions that reshapes merge."""
        region = self.program.region
        found = list(zip(self.program.input_shardings, self.program.input_types, strict=True))
        found += zip(self.program.output_shardings, self.program.output_types, strict=True)
        found += zip(self.hints, region.types, strict=True)
        for op in region.ops:
            found += [(s, region.types[v]) for s, v in zip(op.shardings, op.results, strict=False)]
            if op.name == "sharding_constraint":
                found.append((op.attributes["sharding"], region.types[op.results[0]]))
        placements = [self.resolve(sharding, type_) for sharding, type_ in found if sharding is not None]
        orders = {dim.axes for placement in placements for dim in placement.dims if len(dim.axes) > 1}
        if any(op.name == "reshape" and self._merges(op) for op in region.ops):
            orders.update(itertools.permutations([a for a, n in self.mesh.axes.items() if n > 1], 2))
        return frozenset(orders)

    def _merges(self, op: Op) -> bool:
        """Whether a dimension of a reshape consists of several others, so that axes may meet in it in any order."""
        types = self.program.region.types
        rule = registry.get(op.name).factors(op.attributes, (types[op.operands[0]],), (types[op.results[0]],))
        return any(
            sum(rule.factors[f].size > 1 and rule.factors[f].kind == PASS for f in dim) > 1
            for dims in (*rule.operands, *rule.results) for dim in dims
        )

    def partial_allowed(self, dtype: str, monoid: str) -> bool:
        """Whether addends may stay on different devices: under ``exact`` not where their order shows."""
        return not (self.exact and monoid in _ROUNDING and is_float(dtype))

    def strategies(self, op: OpLike, operands: Types, results: Types) -> list[tuple[Strategy, float]]:
        """All strategies of an op on these types within the limit, each with the price of computing so, in seconds."""
        key = (op.name, op.attributes, op.regions, operands, results)
        if key not in self._priced:
            self._priced[key] = [(s, self.price(op, operands, results, s)) for s in self._all(op, operands, results)]
        return self._priced[key]

    def window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        """How the op acts on windows; None for one that takes its operands at standard placements only."""
        key = (op.name, op.attributes, operands, results)
        if key not in self._transfers:
            self._transfers[key] = self._window_transfer(op, operands, results)
        return self._transfers[key]

    def _window_transfer(self, op: OpLike, operands: Types, results: Types) -> WindowTransfer | None:
        if not registry.known(op.name) or op.regions or len(results) != 1 or not registry.get(op.name).pure:
            return None
        definition = registry.get(op.name)
        rule = definition.factors(op.attributes, operands, results)
        reaches = definition.reaches(op.attributes, operands, results)
        dtype = results[0].dtype
        return WindowTransfer(
            self.mesh, rule, reaches, operands, results[0], self.orders,
            lambda monoid: self.partial_allowed(dtype, monoid), self.limits.strategies,
            lambda windows: definition.window_allowed(op.attributes, operands, results, windows),
        )

    def action(self, op: OpLike, operands: Types, results: Types, strategy: Strategy) -> Action | StepPlan:
        """The op on the shards of a strategy: one action, or a device program."""
        if op.name in CONTROL_FLOW:
            action = self.control_flow.action(op.name, op.attributes, op.regions, strategy)
            if isinstance(action, Loop):
                condition, body = op.regions
                return with_rows(action, condition, body, strategy.operands, _local(operands, strategy.operands),
                                 self.control_flow.region, self.pricer.program)
            return action
        if op.name == MANUAL:
            return manual_program(self.mesh, op.regions[0])
        definition = registry.get(op.name)
        windowed = self._windowed(op, operands, results, strategy)
        if windowed:
            return window_program(self.mesh, definition, op.attributes, operands, results, strategy, windowed)
        lo, lr = _local(operands, strategy.operands), _local(results, strategy.results)
        attributes = definition.localize(op.attributes, operands, results, lo, lr)
        local = Local(op.name, attributes, lr, op.regions, definition.flops(attributes, lo, lr))
        return local if self.mesh.size == 1 or not local.has_effects else run_once(self.mesh, local, lo)

    def _windowed(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> frozenset[int]:
        """The result dimensions that a strategy shards although the op looks along them."""
        transfer = self.window_transfer(op, operands, results)
        return frozenset() if transfer is None else frozenset(d for d in transfer.windowed if s.results[0].dims[d].axes)

    def price(self, op: OpLike, operands: Types, results: Types, s: Strategy) -> float:
        """What computing by a strategy costs, in seconds."""
        lo, lr = _local(operands, s.operands), _local(results, s.results)
        if op.name in CONTROL_FLOW or op.name == MANUAL or not registry.get(op.name).pure:
            action = self.action(op, operands, results, s)
            return self.pricer.program(action) if isinstance(action, StepPlan) else self.pricer(action, *lo)
        touched = float(sum(t.bytes for t in lo) + sum(t.bytes for t in lr))
        dtype = (lo or lr)[0].dtype if (lo or lr) else "f32"
        return self.pricer.compute(op.name, registry.get(op.name).flops(op.attributes, lo, lr), touched, dtype)

    def _all(self, op: OpLike, operands: Types, results: Types) -> Sequence[Strategy]:
        if op.name in CONTROL_FLOW:
            return self.control_flow.strategies(op.name, op.regions, operands, results)
        if op.name == MANUAL:
            return [manual_strategy(self.mesh, op.attributes, op.regions[0], operands, results)]
        name, attributes = op.name, op.attributes
        rule: FactorRule = registry.get(name).factors(attributes, operands, results)
        dtypes = {t.dtype for t in results}
        return strategies(
            self.mesh, rule, self.orders,
            lambda monoid: all(self.partial_allowed(d, monoid) for d in dtypes),
            self.limits.strategies,
        )
