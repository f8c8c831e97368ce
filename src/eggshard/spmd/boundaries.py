"""Placements that stated shardings ask for: even ones at a program's ends, and orders of axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from eggshard.ops import registry
from eggshard.ops.base import PASS
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, dividing, is_even, place
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import Sharding, atoms
from eggshard.program.types import TensorType


def evenly(mesh: Mesh, type_: TensorType, placement: Placement) -> Placement:
    """The placement without the axes that do not divide a dimension, and those that follow them there."""
    if is_even(type_.shape, placement, mesh):
        return placement
    axes = tuple(dividing(mesh, dim.axes, n) for n, dim in zip(type_.shape, placement.dims, strict=True))
    return place(mesh, type_.shape, axes)


def even_placements(mesh: Mesh, type_: TensorType, stated: Sharding | None = None) -> tuple[Placement, ...]:
    """All even placements by whole axes in mesh order, replication first.

    stated: a sharding whose closed dimensions lie as it says, and whose open ones begin with the axes that it names.
    """
    given: list[tuple[str, ...]] = [()] * type_.rank
    open_dims, named = list(range(type_.rank)), set[str]()
    if stated is not None:
        given = [atoms(d.axes, mesh) for d in stated.dims]
        open_dims = [i for i, d in enumerate(stated.dims) if d.open]
        named = {*atoms(stated.replicated, mesh), *(a for axes in given for a in axes)}
    free = [a for a, n in mesh.axes.items() if n > 1 and a not in named and not axis_ref(a).size]
    found = []
    for where in itertools.product((-1, *open_dims), repeat=len(free)):
        added = [tuple(a for a, d in zip(free, where, strict=True) if d == i) for i in range(type_.rank)]
        placement = place(mesh, type_.shape, tuple(map(tuple.__add__, given, added)))
        if is_even(type_.shape, placement, mesh):
            found.append(placement)
    return tuple(found)


def axis_orders(
    program: Program, hints: Sequence[Sharding | None], resolve: Callable[[Sharding, TensorType], Placement]
) -> frozenset[tuple[str, ...]]:
    """Axis orders of a program's shardings, of hints for its values, and of dimensions that reshapes merge."""
    region, mesh = program.region, program.mesh
    found = list(zip(program.input_shardings, program.input_types, strict=True))
    found += zip(program.output_shardings, program.output_types, strict=True)
    found += zip(hints, region.types, strict=True)
    for op in region.ops:
        found += [(s, region.types[v]) for s, v in zip(op.shardings, op.results, strict=False)]
        if op.name == "sharding_constraint":
            found.append((op.attributes["sharding"], region.types[op.results[0]]))
    placements = [resolve(sharding, type_) for sharding, type_ in found if sharding is not None]
    orders = {dim.axes for placement in placements for dim in placement.dims if len(dim.axes) > 1}
    if any(op.name == "reshape" and _merges(op, region) for op in region.ops):
        orders.update(itertools.permutations([a for a, n in mesh.axes.items() if n > 1], 2))
    return frozenset(orders)


def _merges(op: Op, region: Region) -> bool:
    """Whether a dimension of a reshape consists of several others, so that axes may meet in it in any order."""
    types = region.types
    rule = registry.get(op.name).factors(op.attributes, (types[op.operands[0]],), (types[op.results[0]],))
    return any(
        sum(rule.factors[f].size > 1 and rule.factors[f].kind == PASS for f in dim) > 1
        for dims in (*rule.operands, *rule.results) for dim in dims
    )
