"""Reshards become collectives: `sdy.reshard` says what, the ops written here say how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eggshard.errors import ProgramError
from eggshard.program.mesh import AxisRef, Mesh
from eggshard.shardy.attributes import Axes, TensorSharding
from eggshard.shardy.module import ShardyModule, shape
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.collectives import Collective, Move
from eggshard.shardy.reshards.greedy_collectives import aligned, greedy_moves
from eggshard.shardy.reshards.planned_collectives import Reshard, planned_moves
from eggshard.shardy.sub_axes import Sizes, in_mesh_order
from eggshard.shardy.wire_bytes import element_bytes_of

MODES = ("shardy", "global")


@shardy_pass("reshard-to-collectives", on="func.func")
def reshard_to_collectives(module: ShardyModule, keep_redundant_reshards: bool = False, mode: str = "shardy") -> None:
    """Replace every reshard by collectives; mode: Shardy's stages, or the fewest bytes (`global`).

    Reshards to or from a single device stay, and so do those between meshes of other axes. Redundant ones go unless
    they are to be kept.
    """
    if mode not in MODES:
        raise ProgramError(f"option mode of pass reshard-to-collectives is {' or '.join(MODES)}, not {mode!r}")
    for op in module.walk("sdy.reshard"):
        value = op.operands[0]
        while not _is_argument(value) and value.owner.name == "sdy.propagation_barrier":
            value = value.owner.operands[0]
        target = TensorSharding.parse(str(op.attributes["sharding"]))
        stated = module.sharding(value)
        source = stated or TensorSharding.fully_open(target.mesh, len(target.dims))
        if (_on_one_device(module, source) or _on_one_device(module, target)) and stated != target:
            continue
        if keep_redundant_reshards and _equivalent(source, target):
            continue
        steps = collectives(value, module.mesh(source), module.mesh(target), source, target, mode)
        if steps is None:
            continue
        new = value if steps else op.operands[0]
        for step in steps:
            new = step.create(new, op)
        op.results[0].replace_all_uses_with(new)
        op.erase()


def collectives(
    value: Any, source_mesh: Mesh, mesh: Mesh, source: TensorSharding, target: TensorSharding, mode: str
) -> list[Collective] | None:
    """The collectives that take a value from one sharding to another; None between meshes of which none exist."""
    if not any(target.axes) and not target.sharding.unreduced:
        if not any(source.axes) and not source.sharding.unreduced:
            return []
        target, mesh = TensorSharding(source.mesh, target.sharding), source_mesh
    if source_mesh.axes != mesh.axes:
        return None
    moves = greedy(shape(value), mesh.axes, source, target, source_mesh != mesh)
    if moves is None or mode == "global":
        moves = planned_moves(Reshard(
            shape(value), element_bytes_of(value), source_mesh, mesh, source.axes, target.axes,
            source.sharding.unreduced, target.sharding.unreduced), moves)
    at = source.mesh if source_mesh != mesh else target.mesh
    out = []
    for move in moves:
        if move.kind == "collective_permute":
            at = target.mesh
        out.append(move.on(at))
    return out


def greedy(
    shape_: tuple[int, ...], sizes: Sizes, source: TensorSharding, target: TensorSharding, reordered: bool
) -> list[Move] | None:
    """Shardy's moves, between a reduction of addends that the target does not have and one to those that it adds."""
    kept, reduced, added = addends(source.sharding.unreduced, target.sharding.unreduced, sizes)
    between = greedy_moves(shape_, sizes, source.axes, target.axes, reordered)
    if between is None:
        return None
    first = [Move("all_reduce", source.axes, kept, axes=reduced)] if reduced else []
    last = [Move("replicated_to_unreduced", target.axes, target.sharding.unreduced, axes=added)] if added else []
    return [*first, *(Move(m.kind, m.after, kept, m.dims, m.axes, m.exchanges) for m in between), *last]


def addends(source: Axes, target: Axes, sizes: Sizes) -> tuple[Axes, Axes, Axes]:
    """The axes of addends that stay, that are reduced, and that are added."""
    before, after = aligned(source, sorted(target), sizes), aligned(target, sorted(source), sizes)

    def of(axes: Sequence[AxisRef]) -> Axes:
        return in_mesh_order(axes, sizes)

    return (
        of([a for a in before if a in after]), of([a for a in before if a not in after]),
        of([a for a in after if a not in before]),
    )


def _is_argument(value: Any) -> bool:
    return not hasattr(value.owner, "name")


def _on_one_device(module: ShardyModule, sharding: TensorSharding) -> bool:
    """Whether the whole tensor lies on a device, which its mesh is."""
    named = isinstance(sharding.mesh, str) and isinstance(module.meshes.get(sharding.mesh), int)
    return named or sharding.sharding.device is not None


def _equivalent(source: TensorSharding, target: TensorSharding) -> bool:
    """Whether both mean the same: equal axes on the same mesh, or nothing sharded on any."""
    same = source.axes == target.axes and source.sharding.unreduced == target.sharding.unreduced
    return same and (source.mesh == target.mesh or not (any(target.axes) or target.sharding.unreduced))
