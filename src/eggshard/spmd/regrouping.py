"""Reshapes that split or merge a sharded dimension, as point-to-point redistributions.

A dimension made of several factors (of 8 = 2 * 4, say) may be sharded so that shards begin between two indices of its
major factor. As tensors of all factors both sides of the reshape are then boxes per device, although no mesh axis
shards a factor of the other side as this one does; and boxes are exchanged directly (`steps.exchange`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from eggshard.ops.base import FactorRule
from eggshard.placement.transfer import Strategy
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.exchange import Blocks, Boxes, BoxExchange, missing_cells
from eggshard.steps.steps import StepPlan


def regrouped(
    mesh: Mesh, rule: FactorRule, operand: TensorType, result: TensorType, source: Placement, target: Placement,
    max_rounds: int,
) -> StepPlan | None:
    """The device program of a reshape with this factor rule from one placement of its operand to one of its result.

    None where shards are no boxes of factors, or the exchange has more than ``max_rounds`` rounds.
    """
    order = [f for row in rule.operands[0] for f in row]
    sizes = tuple(rule.factors[f].size for f in order)
    if order != [f for row in rule.results[0] for f in row] or len(set(order)) < len(order):
        return None
    ends = tuple(
        _boxes(mesh, rule, rows, placement)
        for rows, placement in ((rule.operands[0], source), (rule.results[0], target))
    )
    held, needed = ends
    if held is None or needed is None:
        return None
    used = {*source.sharded_axes, *target.sharded_axes}
    # All boxes are full, and those of a side have equally many holders, who send no more, each, than a device receives.
    cells = int(missing_cells(mesh, sizes, held, needed).max())
    if cells > max_rounds:
        return None
    action = BoxExchange(sizes, held, needed, tuple(a for a in mesh.axes if a in used), cells, cells)
    body = Assembler(mesh)
    value = body.input(source.local_type(operand))
    value = body.reshape(value, tuple(blocks.size for blocks in held))
    (value,) = body.emit(action, (value,), (f"regroup {source} to {target}",))
    return body.build([body.reshape(value, target.local_type(result).shape)])


def regroupings(
    mesh: Mesh, rule: FactorRule, bases: Sequence[Strategy],
    allowed: Callable[[Placement, Placement], bool],
) -> Iterator[Strategy]:
    """Strategies of a reshape that shard a dimension, and another one of its factors on the other side, along axes
    that ``bases`` leave unused; as far as placements of operand and result are allowed.

    ``bases`` move nothing. Axes come behind those that shard the dimensions already.
    """
    ends = rule.operands[0], rule.results[0]
    linked = [
        (d, r) for d, row in enumerate(ends[0]) for r, other in enumerate(ends[1])
        if {f for f in row if rule.factors[f].size > 1} & set(other)
    ]
    seen: set[tuple[Placement, Placement]] = {(s.operands[0], s.results[0]) for s in bases}
    for base in bases:
        if base.operands[0].partial:
            continue
        free = [a for a in mesh.axes if mesh.axes[a] > 1 and a not in base.operands[0].used_axes]
        for count in range(1, len(free) + 1):
            for axes in itertools.combinations(free, count):
                for d, r in linked:
                    source, target = _behind(mesh, base.operands[0], d, axes), _behind(mesh, base.results[0], r, axes)
                    if source is None or target is None or (source, target) in seen:
                        continue
                    seen.add((source, target))
                    if allowed(source, target):
                        yield Strategy((source,), (target,), regroups=True)


def _behind(mesh: Mesh, placement: Placement, dim: int, axes: tuple[str, ...]) -> Placement | None:
    """The placement with a dimension sharded along further axes; None where they do not divide it."""
    old = placement.dims[dim]
    tile, rest = divmod(old.tile, mesh.count(axes))
    if rest or old.windowed:
        return None
    new = old._replace(axes=(*old.axes, *axes), tile=tile)
    return placement._replace(dims=(*placement.dims[:dim], new, *placement.dims[dim + 1 :]))


def _boxes(mesh: Mesh, rule: FactorRule, rows: Sequence[Sequence[int]], placement: Placement) -> Boxes | None:
    """What devices hold in terms of factors; None where that is no box, or some shard is not full."""
    out: list[Blocks] = []
    for factors, dim in zip(rows, placement.dims, strict=True):
        sizes = [rule.factors[f].size for f in factors]
        if dim.windowed or dim.tile * mesh.count(dim.axes) != math.prod(sizes):
            return None
        tile, minor, digits = dim.tile, 1, []
        for n in reversed(sizes):
            held = min(tile, n)
            if n % held or tile % held:
                return None
            digits.append(Blocks(dim.axes, n // held, held, minor))
            tile, minor = tile // held, minor * (n // held)
        out += reversed(digits)
    return tuple(out) or None
