"""Translation of Shardy's collectives into the physical steps of plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eggshard.program.axes import Axes, difference, in_mesh_order
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import atoms
from eggshard.shardy.attributes import Exchange as Parameter, axes_text
from eggshard.shardy.local.decisions import Refusal
from eggshard.shardy.local.layouts import Layout, refined, same_tiles
from eggshard.shardy.reshards.axis_lists import positions_along
from eggshard.shardy.reshards.collectives.kinds import PER_TENSOR, Collective
from eggshard.steps.moves import Moves
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    ReduceScatter,
    Slice,
)


@dataclass(frozen=True)
class CollectiveOptions:
    """per_dim_all_gather, combine_reduce_scatter: whether what several dimensions need is one collective, or one each.

    mesh_groups: groups of devices are written as axes of the mesh.
    """

    per_dim_all_gather: bool = False
    combine_reduce_scatter: bool = False
    mesh_groups: bool = False


def steps_of(
    collective: Collective, source: Layout, target: Layout, options: CollectiveOptions
) -> tuple[Mesh, list[Action], Layout]:
    """A collective as steps on a refined mesh, and what its result is, partial values included.

    ``target`` is what its sharding says. Refusal where that is not what the collective makes of its operand.
    """
    kind = collective.kind
    if kind == "collective_permute":
        if source.unreduced != target.unreduced or source.counts != target.counts:
            raise Refusal(f"{source.type} sharded as {source} has no permutation to {target}")
        pairs = _pairs(source, target)
        return target.mesh, [CollectivePermute(pairs)] if any(s != t for s, t in pairs) else [], target.partial(
            target.unreduced, source.monoid)
    mesh = target.mesh if target.mesh.size > 1 else source.mesh
    if not source.plain and source.mesh != mesh:
        raise Refusal(f"its operand lies on mesh {source.mesh}, its result on {mesh}; only a permute changes the mesh")
    lists = (collective.axes,) if kind in PER_TENSOR else (*collective.dims, *(e.axes for e in collective.exchanges))
    lists = tuple(tuple(a for a in axes if a.devices(mesh.axes) > 1) for axes in lists)
    fine = refined(mesh, *source.dims, *target.dims, *lists, source.unreduced, target.unreduced)
    moves = tuple((d, atoms(axes, fine)) for d, axes in enumerate(lists) if axes)
    made, partial, monoid = source.placement(fine), source.unreduced, source.monoid
    dims = [list(d.axes) for d in made.dims]
    actions: list[Action] = []

    def cut(given: Moves) -> None:
        for d, axes in given:
            dims[d] += axes

    def joined(given: Moves) -> None:
        for d, axes in given:
            if tuple(dims[d][len(dims[d]) - len(axes):]) != axes:
                raise Refusal(f"dimension {d} of {source.type} sharded as {source} does not end with {' '.join(axes)}")
            del dims[d][len(dims[d]) - len(axes):]

    match kind:
        case "all_gather":
            joined(moves)
            actions = [AllGather((m,)) for m in reversed(moves)] if options.per_dim_all_gather else [AllGather(moves)]
        case "all_slice":
            cut(moves)
            actions = [Slice(moves)]
        case "all_to_all":
            leaving, arriving = _exchanged(fine, collective.exchanges, mesh)
            joined(leaving)
            cut(arriving)
            actions = [AllToAll(leaving, arriving)]
        case "all_reduce" | "reduce_scatter":
            over = in_mesh_order((a for axes in lists for a in axes), mesh.axes)
            _require_partial_sums(source, mesh, over)
            partial = difference(partial, over, mesh.axes)
            if kind == "all_reduce":
                actions = [AllReduce(atoms(over, fine), monoid)]
            else:
                cut(moves)
                whole = options.combine_reduce_scatter
                actions = [ReduceScatter(moves, monoid)] if whole else [ReduceScatter((m,), monoid) for m in moves]
        case "replicated_to_unreduced":
            monoid = target.monoid
            actions = [KeepFirst(atoms(lists[0], fine), monoid)]
            partial = in_mesh_order((*partial, *lists[0]), mesh.axes)
        case "sharded_to_unreduced":
            joined(moves)
            monoid = target.monoid
            actions = [_in_zeros(fine, source, moves)]
            partial = in_mesh_order((*partial, *(a for axes in lists for a in axes)), mesh.axes)
    if tuple(tuple(d) for d in dims) != tuple(d.axes for d in target.placement(fine).dims):
        raise Refusal(f"of {source.type} sharded as {source} it does not make {target}")
    if not any(lists):
        actions = []
    if target.unreduced != partial and difference(target.unreduced, partial, mesh.axes):
        raise Refusal(f"its result is said to hold partial sums over {axes_text(target.unreduced)}, and does not")
    return fine, actions, target.partial(partial, monoid)


def _exchanged(fine: Mesh, parameters: Iterable[Parameter], mesh: Mesh) -> tuple[Moves, Moves]:
    """What leaves and what arrives, per dimension."""
    leaving: dict[int, tuple[str, ...]] = {}
    arriving: dict[int, tuple[str, ...]] = {}
    for parameter in parameters:
        axes = atoms(tuple(a for a in parameter.axes if a.devices(mesh.axes) > 1), fine)
        if axes:
            leaving[parameter.source] = leaving.get(parameter.source, ()) + axes
            arriving[parameter.target] = arriving.get(parameter.target, ()) + axes
    return tuple(leaving.items()), tuple(arriving.items())


def _require_partial_sums(source: Layout, mesh: Mesh, over: Axes) -> None:
    if difference(over, source.unreduced, mesh.axes):
        held = f"partial sums over {axes_text(source.unreduced)}" if source.unreduced else "no partial sums"
        raise Refusal(
            f"it reduces over {axes_text(over)}, and its operand {source.type} holds {held}: whole values would be "
            "counted once per device; reduce what is sharded or unreduced along these axes only"
        )


def _pairs(source: Layout, target: Layout) -> tuple[tuple[int, int], ...]:
    """Pair senders with receivers: every device gets a shard of its position, from itself where it has that shard."""
    if same_tiles(source, target):
        return tuple((d, d) for d in range(target.mesh.size))
    places = []
    for layout in (source, target):
        rank = len(layout.dims)
        starts = np.stack([layout.starts(d) for d in range(rank)], axis=1)
        partial_sums = positions_along(layout.mesh, layout.unreduced).tolist()
        places.append([(*row, partial_sum) for row, partial_sum in zip(starts.tolist(), partial_sums, strict=True)])
    senders: dict[tuple[int, ...], list[int]] = {}
    for device, place in enumerate(places[0]):
        senders.setdefault(place, []).append(device)
    pairs = {}
    for device, place in enumerate(places[1]):
        if places[0][device] == place:
            pairs[device] = device
            senders[place].remove(device)
    for device, place in enumerate(places[1]):
        if device not in pairs:
            pairs[device] = senders[place].pop(0)
    return tuple((pairs[device], device) for device in sorted(pairs))


def _in_zeros(fine: Mesh, source: Layout, moves: Moves) -> Action:
    """Each device's shard at its place among zeros."""
    shape, corners = list(source.local.shape), np.zeros((fine.size, source.type.rank), np.int64)
    for d, axes in moves:
        corners[:, d] = fine.index(axes) * shape[d]
        shape[d] *= fine.count(axes)
    rows = tuple(tuple(row) for row in corners.tolist())
    here = tuple((device, device) for device in range(fine.size))
    origin = ((0,) * source.type.rank,) * fine.size
    return Exchange(source.local.shape, tuple(shape), (), (Round(here, origin, rows),))
