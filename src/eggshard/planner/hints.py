"""Hints from sharding propagation: shardings of values, and interfaces of the ops that have bodies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from eggshard.frontends.normalization.divergence import DIVERGES
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy
from eggshard.planner.context import Context
from eggshard.planner.propagation.propagated import Propagated, propagated
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.spmd.boundaries import axis_orders
from eggshard.spmd.manual import MANUAL, Interface, free_mesh

#: Number of ops from which propagation is asked for hints, since the search then keeps only some candidates.
MANY_OPS = 100


class Hints:
    """The hints for one program, found when first asked for."""

    def __init__(self, context: Context):
        self._context = context
        self._inside: dict[Region, Sequence[Sharding | None]] = {}
        self._interfaces: dict[tuple[object, ...], list[Strategy]] = {}
        self._manual: dict[tuple[Attributes, Region], list[Interface]] = {}

    @cached_property
    def _found(self) -> Propagated:
        return propagated(self._context.program)

    @property
    def propagated(self) -> Sequence[Sharding | None]:
        """The sharding that propagation finds for every value of the program, None where it finds none."""
        return self._found.values

    @cached_property
    def used(self) -> Sequence[Sharding | None]:
        """The propagated shardings where the search can use them, and nothing elsewhere.

        They say where free outputs may lie, at which placements loops and branches carry their values, those at which
        manual computations meet the rest, and which candidates of a large program to keep. Otherwise only the baseline
        asks for them.
        """
        program, region = self._context.program, self._context.program.region
        wanted = (
            len(region.ops) > MANY_OPS
            or any(s is None for s in program.output_shardings)
            or any(op.name in CONTROL_FLOW or _is_partly_manual(op, self._context) for op in region.ops)
        )
        if not wanted:
            return (None,) * len(region.types)
        self._collect(self._context, region, self._found)
        return self.propagated

    def inside(self, region: Region) -> Sequence[Sharding | None]:
        """What propagation found for the values of a region; nothing where it found nothing, or was not asked."""
        return self.propagated if region is self._context.program.region else self._inside.get(region, ())

    def interfaces(self, free: object, name: str, attributes: Attributes, regions: tuple[Region, ...]
                   ) -> Sequence[Strategy]:
        """The placements at which propagation has a loop or branch, on the free mesh, take and give its values."""
        return self._interfaces.get((free, name, attributes, regions), ())

    def manual(self, attributes: Attributes, region: Region) -> Sequence[Interface]:
        """The placements at which propagation has a manual computation meet the rest of the program."""
        return self._manual.get((attributes, region), ())

    @cached_property
    def orders(self) -> frozenset[tuple[str, ...]]:
        """Axis orders besides mesh order: those of the program's shardings, and of dimensions that reshapes merge."""
        return axis_orders(self._context.program, self.used, self._context.resolve)

    def _collect(self, context: Context, region: Region, found: Propagated) -> None:
        self._inside[region] = found.values
        for i, inside in found.regions.items():
            op, body = region.ops[i], context
            if op.name == MANUAL:
                if not _is_partly_manual(op, context):
                    continue
                body = context.within(op.attributes)
                self._manual.setdefault((op.attributes, op.regions[0]), []).append(found.interfaces[i])
            elif not (context.outer and op.attributes.get(DIVERGES)):
                operands, results = (
                    tuple(context.resolve(found.values[v], region.types[v]) for v in values)
                    for values in (op.operands, op.results)
                )
                key = context.free, op.name, op.attributes, op.regions
                self._interfaces.setdefault(key, []).append(_interface(op, operands, results))
            for inner, part in zip(op.regions, inside, strict=True):
                self._collect(body, inner, part)


def _interface(op: Op, operands: tuple[Placement, ...], results: tuple[Placement, ...]) -> Strategy:
    """A loop carries its values at the placements of its results; a branch's predicate is replicated."""
    if op.name == "while":
        return Strategy(results, results)
    predicate = Placement(tuple(d._replace(axes=()) for d in operands[0].dims))
    return Strategy((predicate, *operands[1:]), results)


def _is_partly_manual(op: Op, context: Context) -> bool:
    return op.name == MANUAL and free_mesh(context.free, op.attributes).size > 1
