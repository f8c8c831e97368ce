"""Hints from sharding propagation: shardings of values, and interfaces of the ops that have bodies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from eggshard.frontends.normalization.divergence import DIVERGES
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy
from eggshard.placement.view import Spread, Spreads, View
from eggshard.planner.context import Context
from eggshard.planner.propagation.propagated import Propagated, propagated
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import Sharding, atoms
from eggshard.program.types import TensorType
from eggshard.spmd.boundaries import axis_orders
from eggshard.spmd.manual import MANUAL, Interface, free_mesh

Types = tuple[TensorType, ...]
#: Number of ops from which propagation is asked for hints, since the search then keeps only some candidates.
MANY_OPS = 100


class Hints:
    """The hints for one program, found when first asked for."""

    def __init__(self, context: Context):
        self._context = context
        self._inside: dict[Region, Sequence[Sharding | None]] = {}
        self._interfaces: dict[tuple[object, ...], list[Strategy]] = {}
        self._settled: dict[tuple[object, ...], Sequence[Strategy]] = {}
        self._manual: dict[tuple[Attributes, Region], list[Interface]] = {}

    @cached_property
    def found(self) -> Propagated:
        """What propagation finds for the program."""
        return propagated(self._context.program)

    @property
    def propagated(self) -> Sequence[Sharding | None]:
        """The sharding that propagation finds for every value of the program, None where it finds none."""
        return self.found.values

    @cached_property
    def used(self) -> Sequence[Sharding | None]:
        """The propagated shardings where the search can use them, and nothing elsewhere.

        They say where free outputs may lie, at which placements loops and branches carry their values, those at which
        manual computations meet the rest, and which candidates of a large program to keep. Otherwise only the baseline
        and a plan to begin with follow them.
        """
        program, region = self._context.program, self._context.program.region
        wanted = (
            len(region.ops) > MANY_OPS
            or any(s is None for s in program.output_shardings)
            or any(op.name in CONTROL_FLOW or is_partly_manual(op.name, op.attributes, self._context)
                   for op in region.ops)
        )
        if not wanted:
            return (None,) * len(region.types)
        self._collect(self._context, region, self.found)
        return self.propagated

    def inside(self, region: Region) -> Sequence[Sharding | None]:
        """What propagation found for the values of a region; nothing where it found nothing, or was not asked."""
        return self.propagated if region is self._context.program.region else self._inside.get(region, ())

    def interfaces(self, context: Context, op: Any) -> Sequence[Strategy]:
        """The placements at which propagation has a loop or branch take and give its values."""
        return self._interfaces.get((context.free, op.name, op.attributes, op.regions), ())

    def searched(self, context: Context, op: Any) -> Sequence[Strategy]:
        """The placements at which a search has a loop or branch take and give its values: those of propagation, unless
        others are known to be as good (`settle`)."""
        return self._settled.get((context.free, op.name, op.attributes, op.regions)) or self.interfaces(context, op)

    def settle(self, context: Context, op: Any, interfaces: Sequence[Strategy]) -> None:
        """Let a search have a loop or branch take and give its values at these placements, the likeliest first."""
        self._settled[context.free, op.name, op.attributes, op.regions] = interfaces

    def manual(self, attributes: Attributes, region: Region) -> Sequence[Interface]:
        """The placements at which propagation has a manual computation meet the rest of the program."""
        return self._manual.get((attributes, region), ())

    @cached_property
    def orders(self) -> frozenset[tuple[str, ...]]:
        """Axis orders besides mesh order: those of the program's shardings, and of dimensions that reshapes merge."""
        return axis_orders(self._context.program, self.used, self._context.resolve)

    def view(self, name: str, attributes: Attributes, operands: Types, results: Types) -> View:
        """What the program's shardings, and those of propagation, say of where an op's tensors lie."""
        known = tuple(tuple(self._spreads.by_shape.get(t.shape, ())) for t in (*operands, *results))
        instances = self._spreads.by_op.get((name, attributes, operands, results), ())
        return View(self._spreads.used, known, tuple(instances))

    @cached_property
    def _spreads(self) -> _Spreads:
        return _Spreads.of(self._context.program, self.found)

    def _collect(self, context: Context, region: Region, found: Propagated) -> None:
        self._inside[region] = found.values
        for i, inside in found.regions.items():
            op, body = region.ops[i], context
            if op.name == MANUAL:
                if not is_partly_manual(op.name, op.attributes, context):
                    continue
                body = context.within(op.attributes)
                self._manual.setdefault((op.attributes, op.regions[0]), []).append(found.interfaces[i])
            elif not (context.outer and op.attributes.get(DIVERGES)):
                operands, results = (
                    tuple(context.resolve(found.values[v], region.types[v]) for v in values)
                    for values in (op.operands, op.results)
                )
                key = context.free, op.name, op.attributes, op.regions
                self._interfaces.setdefault(key, []).extend(_interfaces(op, operands, results))
            for inner, part in zip(op.regions, inside, strict=True):
                self._collect(body, inner, part)


class _Spreads(NamedTuple):
    """The axes that shard the dimensions of a program's values, by shape and by op, and all of these axes."""

    used: frozenset[str]
    by_shape: dict[tuple[int, ...], dict[Spread, None]]
    by_op: dict[tuple[object, ...], dict[Spreads, None]]

    @classmethod
    def of(cls, program: Program, found: Propagated) -> _Spreads:
        """The spreads of stated and propagated shardings, regions included."""
        by_shape: dict[tuple[int, ...], dict[Spread, None]] = {}
        by_op: dict[tuple[object, ...], dict[Spreads, None]] = {}
        used: set[str] = set()

        def spread(sharding: Sharding | None, type_: TensorType) -> Spread | None:
            if sharding is None:
                return None
            made = tuple(tuple(atoms(dim.axes, program.mesh)) for dim in sharding.dims)
            used.update(axis for axes in made for axis in axes)
            by_shape.setdefault(type_.shape, {})[made] = None
            return made

        def visit(region: Region, part: Propagated) -> None:
            at = [spread(s, t) for s, t in zip(part.values, region.types, strict=False)]
            for i, op in enumerate(region.ops):
                types = (tuple(region.types[v] for v in values) for values in (op.operands, op.results))
                spreads = tuple(at[v] for v in (*op.operands, *op.results))
                by_op.setdefault((op.name, op.attributes, *types), {})[spreads] = None
                for inner, inside in zip(op.regions, part.regions.get(i, ()), strict=False):
                    visit(inner, inside)

        visit(program.region, found)
        for ends, types in ((program.input_shardings, program.input_types),
                            (program.output_shardings, program.output_types)):
            for sharding, type_ in zip(ends, types, strict=True):
                spread(sharding, type_)
        return cls(frozenset(used), by_shape, by_op)


def _interfaces(op: Op, operands: tuple[Placement, ...], results: tuple[Placement, ...]) -> list[Strategy]:
    """A loop carries its values at the placements of its results, and what it does not change there or where it lies
    before; a branch's predicate is replicated."""
    if op.name == "while":
        body = op.regions[1]
        stay = tuple(
            before if v == w else after
            for before, after, v, w in zip(operands, results, body.inputs, body.outputs, strict=True))
        return [Strategy(results, results), Strategy(stay, stay)]
    predicate = Placement(tuple(d._replace(axes=()) for d in operands[0].dims))
    return [Strategy((predicate, *operands[1:]), results)]


def is_partly_manual(name: str, attributes: Attributes, context: Context) -> bool:
    """Whether an op is a manual computation that leaves axes to the planner."""
    return name == MANUAL and free_mesh(context.free, attributes).size > 1
