"""Tiles on other than the standard grid: where an op leaves them, and reductions over them.

A slice of a tiled tensor is on tiles that begin elsewhere, and there needs no data from other devices. A reduction over
the sliced dimension accepts any tiles that hold every index once, and masks what they hold outside the tensor.
"""

from __future__ import annotations

from eggshard.ops.base import REDUCE, FactorRule
from eggshard.ops.windowing import Reaches
from eggshard.placement.transfer import MaskSpec, Strategy
from eggshard.placement.windows import covers
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement


def left_on(rule: FactorRule, reaches: Reaches, operand: int, placement: Placement, shape: tuple[int, ...]
            ) -> Placement | None:
    """Where a result of this shape lies that is computed where one operand is, of exactly what that holds.

    None where its indices are not those of the operand, each shifted by the same amount.
    """
    dims = [Dim((), n) for n in shape]
    for dim, factors, reach in zip(placement.dims, rule.operands[operand], reaches[operand], strict=True):
        if not dim.axes:
            continue
        if reach is None:
            where = [r for r, row in enumerate(rule.results[0]) if row == factors and len(row) == 1]
            shift = 0
        else:
            plain = reach.first == reach.last and reach.scale == reach.divisor == 1
            where = [reach.dim] if plain and not reach.wrapped and not reach.mirrored else []
            shift = -reach.first
        if not where:
            return None
        dims[where[0]] = dim._replace(low=dim.low + shift, high=dim.high + shift)
    return Placement(tuple(dims))


def reduced_on(mesh: Mesh, rule: FactorRule, base: Strategy, operand: int, placement: Placement) -> Strategy | None:
    """The strategy that reduces over the tiles of an operand at this placement instead of over the standard ones.

    All operands that share a reduced dimension lie on its tiles then. None where the placement differs from the
    strategy's along other dimensions, or its tiles overlap or leave something out.
    """
    moved: dict[int, Dim] = {}
    for factors, old, new in zip(rule.operands[operand], base.operands[operand].dims, placement.dims, strict=True):
        if old == new:
            continue
        reduced = len(factors) == 1 and rule.factors[factors[0]].kind == REDUCE
        if not reduced or old.axes != new.axes or new.low != new.high or new.wrapped:
            return None
        factor = rule.factors[factors[0]]
        if factor.positional or factor.accumulators or not covers(factor.size, mesh.count(new.axes), new):
            return None
        moved[factors[0]] = new
    if not moved or base.positional:
        return None
    operands, masks = [], list[MaskSpec]()
    for i, (rows, placed) in enumerate(zip(rule.operands, base.operands, strict=True)):
        dims = list(placed.dims)
        for d, factors in enumerate(rows):
            if moved.keys() & set(factors):
                if len(factors) > 1:
                    return None
                factor, dims[d] = rule.factors[factors[0]], moved[factors[0]]
                masks.append((i, d, dims[d].axes, factor.size, factor.monoid))
        operands.append(placed._replace(dims=tuple(dims)))
    changed = {(i, d) for i, d, *_ in masks}
    masks += [mask for mask in base.masks if mask[:2] not in changed]
    return Strategy(tuple(operands), base.results, tuple(masks))
