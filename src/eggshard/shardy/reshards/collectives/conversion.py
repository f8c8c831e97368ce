"""The pass that turns reshards into collectives: `sdy.reshard` says what to do, the ops written here say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eggshard.errors import ProgramError
from eggshard.program.axes import Axes, AxisRef, Sizes, in_mesh_order
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.module import ShardyModule, maker, shape, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.collectives.greedy import aligned, greedy_moves
from eggshard.shardy.reshards.collectives.kinds import Collective, Move
from eggshard.shardy.reshards.collectives.planned import Reshard, planned_moves
from eggshard.shardy.reshards.collectives.shared_beginnings import Way, cheapest_together
from eggshard.shardy.wire_bytes import WireBytes, collective_bytes, element_bytes_of

MODES = ("shardy", "global")
#: The most reshards of one value among which one may be routed by way of another's target.
MOST_MEMBERS = 8


@shardy_pass("reshard-to-collectives", on="func.func")
def reshard_to_collectives(module: ShardyModule, keep_redundant_reshards: bool = False, mode: str = "shardy") -> None:
    """Replace every reshard by collectives; mode: Shardy's stages, or the fewest bytes (`global`).

    Reshards to or from a single device stay, and so do those between meshes of other axes. Redundant ones go unless
    they are to be kept.
    """
    if mode not in MODES:
        raise ProgramError(f"option mode of pass reshard-to-collectives is {' or '.join(MODES)}, not {mode!r}")
    pending = [op for op in module.walk("sdy.reshard") if not _dropped(module, op, keep_redundant_reshards)]
    while pending:
        group, pending = _first_group(module, pending, keep_redundant_reshards, mode)
        if group:
            _replace(module, group, mode)


@dataclass(frozen=True)
class Wanted:
    """A reshard op, the value that it reshards (in front of barriers), and from what to what."""

    op: Any
    value: Any
    source: TensorSharding
    target: TensorSharding
    source_mesh: Mesh
    mesh: Mesh

    @property
    def plain(self) -> bool:
        """Whether it stays on its mesh, and keeps its partial values."""
        return self.source.mesh == self.target.mesh and self.keeps_partial_sums

    @property
    def keeps_partial_sums(self) -> bool:
        return self.source.sharding.unreduced == self.target.sharding.unreduced


def _wanted(module: ShardyModule, op: Any, keep_redundant: bool) -> Wanted | None:
    """None for a reshard that stays."""
    value = op.operands[0]
    while (barrier := maker(value, "sdy.propagation_barrier")) is not None:
        value = barrier.operands[0]
    target = TensorSharding.parse(str(op.attributes["sharding"]))
    stated = module.sharding(value)
    source = stated or TensorSharding.fully_open(target.mesh, len(target.dims))
    if (module.on_one_device(source) or module.on_one_device(target)) and stated != target:
        return None
    if keep_redundant and _equivalent(source, target):
        return None
    if not any(target.axes) and not target.sharding.unreduced:
        target = TensorSharding(source.mesh, target.sharding)
    wanted = Wanted(op, value, source, target, module.mesh(source), module.mesh(target))
    return wanted if wanted.source_mesh.axes == wanted.mesh.axes else None


def _dropped(module: ShardyModule, op: Any, keep_redundant: bool) -> bool:
    """Drop a reshard that changes nothing."""
    wanted = None if keep_redundant else _wanted(module, op, keep_redundant)
    if wanted is None or not _equivalent(wanted.source, wanted.target):
        return False
    op.results[0].replace_all_uses_with(wanted.value if any(wanted.target.axes) else op.operands[0])
    op.erase()
    return True


def _first_group(
    module: ShardyModule, pending: list[Any], keep_redundant: bool, mode: str
) -> tuple[list[Wanted], list[Any]]:
    """The first reshard with those of the same value and of their results, in one block, and the ops that are left.

    Ops are compared in lists: the hash of an op changes with its operands.
    """
    first, left = pending[0], []
    group: list[Wanted] = []
    values = [first.operands[0]]
    for op in pending if mode == "global" else pending[:1]:
        if op.block != first.block or op.operands[0] not in values:
            left.append(op)
            continue
        wanted = _wanted(module, op, keep_redundant)
        if wanted is not None and op.operands[0] != values[0] and not wanted.plain:
            left.append(op)
        elif wanted is not None:
            group.append(wanted)
            if wanted.plain:
                values.append(op.results[0])
    return group, left if mode == "global" else pending[1:]


def _replace(module: ShardyModule, group: list[Wanted], mode: str) -> None:
    """Write the collectives of reshards of one value; sequences share their beginnings if mode is global."""
    first = group[0]
    reduction = _reduction_of(module, group) if mode == "global" else None
    ways = _ways_of_group(group, mode, reduction)
    made: dict[Way, Any] = {(): first.value}
    if reduction is not None:
        made = {(): reduction.operands[0]}
        made.update({way[:1]: first.value for options in ways for way in options if way[0].kind == "all_reduce"})
    itemsize, extent = element_bytes_of(first.value), shape(first.value)

    def price(before: TensorSharding | None, step: Collective) -> WireBytes:
        at = before or first.source
        return collective_bytes(step, at.axes, extent, itemsize, module.mesh(step.to), module.mesh(at))

    ops = [wanted.op for wanted in group]
    needed = [i for i, op in enumerate(ops) if any(user not in ops for user, _ in uses(op.results[0]))]
    for i, way in zip(needed, cheapest_together([ways[i] for i in needed], price), strict=True):
        for n in range(1, len(way) + 1):
            if way[:n] not in made:
                made[way[:n]] = way[n - 1].create(made[way[: n - 1]], ops[i])
        ops[i].results[0].replace_all_uses_with(made[way])
    for op in reversed(ops):
        op.erase()
    if reduction is not None and not uses(reduction.results[0]):
        reduction.erase()


def _ways_of_group(group: list[Wanted], mode: str, reduction: Any) -> list[list[Way]]:
    """The ways to each reshard of a group: from the common value, and by way of others of the group."""
    root = group[0]
    ways: list[list[Way]] = []
    for wanted in group:
        parent = next((i for i, other in enumerate(group[: len(ways)]) if other.op.results[0] == wanted.value), None)
        if parent is None:
            ways.append(_ways(wanted, mode, reduction))
            continue
        direct = replace(wanted, value=root.value, source=root.source, source_mesh=root.source_mesh)
        onwards = _ways(wanted, mode, None)
        by_stages = [_at(ways[parent], i) + _at(onwards, i) for i in range(2)]
        ways.append([*by_stages, *_ways(direct, mode, reduction)])
    if 1 < len(group) <= MOST_MEMBERS:
        given = [[_at(options, 1), options[-1]] for options in ways]
        for i, wanted in enumerate(group):
            for j, other in enumerate(group):
                if i != j and wanted.plain and other.plain:
                    between = replace(wanted, source=other.target, source_mesh=other.mesh)
                    onward = () if other.target.axes == wanted.target.axes else _ways(between, mode, None)[-1]
                    ways[i][-1:-1] = [way + onward for way in given[j]]
    return ways


def _at(ways: Sequence[Way], i: int) -> Way:
    return ways[min(i, len(ways) - 1)]


def _reduction_of(module: ShardyModule, group: list[Wanted]) -> Any:
    """The reduction whose result is only resharded, so that it may scatter at once; None if there is none."""
    reduction = maker(group[0].value, "sdy.all_reduce")
    reduced = None if reduction is None else Collective.read(reduction)
    if reduced is None or not reduced.axes:
        return None
    before = module.sharding(reduction.operands[0])
    if before is None or before.axes != group[0].source.axes or not all(w.keeps_partial_sums for w in group):
        return None
    ops = [w.op for w in group if w.value == group[0].value]
    return reduction if all(user in ops for user, _ in uses(reduction.results[0])) else None


def _ways(wanted: Wanted, mode: str, reduction: Any) -> list[Way]:
    """Sequences of collectives that do it, from the operand of a reduction if one is given; Shardy's first."""
    sizes, source, target = wanted.mesh.axes, wanted.source, wanted.target
    stages = greedy(shape(wanted.value), sizes, source, target, wanted.source_mesh != wanted.mesh)
    if stages is not None and mode == "shardy":
        return [_on_meshes(wanted, stages)]
    reduced = Collective.read(reduction) if reduction is not None else None
    partial_sums_ = kept = source.sharding.unreduced
    if reduced is not None:
        partial_sums_ = in_mesh_order((*kept, *reduced.axes), sizes)
        if stages is not None:
            stages = [Move("all_reduce", source.axes, kept, axes=reduced.axes), *stages]
    reshard = Reshard(
        shape(wanted.value), element_bytes_of(wanted.value), wanted.source_mesh, wanted.mesh, source.axes, target.axes,
        partial_sums_, target.sharding.unreduced, at_once=reduced is not None)
    ways = [stages, reshard.fused(stages)] if stages is not None else []
    return [_on_meshes(wanted, moves) for moves in [*ways, planned_moves(reshard, stages)]]


def _on_meshes(wanted: Wanted, moves: Sequence[Move]) -> Way:
    """The first permute leads from the source's mesh to the target's."""
    at = wanted.source.mesh if wanted.source_mesh != wanted.mesh else wanted.target.mesh
    out = []
    for move in moves:
        if move.kind == "collective_permute":
            at = wanted.target.mesh
        out.append(move.on(at))
    return tuple(out)


def greedy(
    shape_: tuple[int, ...], sizes: Sizes, source: TensorSharding, target: TensorSharding, reordered: bool
) -> list[Move] | None:
    """Shardy's moves, after reducing partial values that the target lacks and before making those that it adds."""
    kept, reduced, added = partial_sums(source.sharding.unreduced, target.sharding.unreduced, sizes)
    between = greedy_moves(shape_, sizes, source.axes, target.axes, reordered)
    if between is None:
        return None
    first = [Move("all_reduce", source.axes, kept, axes=reduced)] if reduced else []
    last = [Move("replicated_to_unreduced", target.axes, target.sharding.unreduced, axes=added)] if added else []
    return [*first, *(Move(m.kind, m.after, kept, m.dims, m.axes, m.exchanges) for m in between), *last]


def partial_sums(source: Axes, target: Axes, sizes: Sizes) -> tuple[Axes, Axes, Axes]:
    """The axes of partial values that stay, that are reduced, and that are added."""
    before, after = aligned(source, sorted(target), sizes), aligned(target, sorted(source), sizes)

    def of(axes: Sequence[AxisRef]) -> Axes:
        return in_mesh_order(axes, sizes)

    return (
        of([a for a in before if a in after]), of([a for a in before if a not in after]),
        of([a for a in after if a not in before]),
    )


def _equivalent(source: TensorSharding, target: TensorSharding) -> bool:
    """Whether both mean the same: equal axes on the same mesh, or nothing sharded on any."""
    same = source.axes == target.axes and source.sharding.unreduced == target.sharding.unreduced
    return same and (source.mesh == target.mesh or not (any(target.axes) or target.sharding.unreduced))
