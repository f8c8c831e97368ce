"""Single-collective reshardings: the actions that lead from one placement of a tensor to another.

A conversion of a given kind is a list of steps ``(action, placement after it)``. Uneven dimensions are padded before an
action that splits them and cropped after one that gathers them; placements in between have tiles of their own.
`eggshard.reshard.states` determines which pairs of placements are one collective apart.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.steps.moves import Moves
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Pairs,
    ReduceScatter,
    Resize,
    Slice,
)

Steps = tuple[tuple[Action, Placement], ...]


class Kind(IntEnum):
    """The one-collective conversions, ``NONE`` where there is none. At most one of them joins two placements."""

    NONE = 0
    RELABEL = 1
    SLICE = 2
    ALL_GATHER = 3
    ALL_TO_ALL = 4
    PERMUTE = 5
    ALL_REDUCE = 6
    REDUCE_SCATTER = 7
    KEEP_FIRST = 8


def grown(source: Placement, target: Placement) -> Moves:
    """The axes that ``target`` has beyond the common prefix of each dimension; ShardingError if there are others."""
    moves = []
    for i, (a, b) in enumerate(zip(source.dims, target.dims, strict=True)):
        shorter = min(len(a.axes), len(b.axes))
        if a.axes[:shorter] != b.axes[:shorter]:
            raise ShardingError(f"dimension {i} of {source} and {target} differs in more than its minor axes")
        if len(b.axes) > shorter:
            moves.append((i, b.axes[shorter:]))
    return tuple(moves)


def changed_axes(mesh: Mesh, source: Placement, target: Placement) -> tuple[str, ...]:
    """The axes along which data must travel, in mesh order.

    An axis that cuts the same dimension at the same stride in both placements, or cuts neither, leaves every element
    on devices of the same coordinate: all senders can be found without crossing it.
    """

    def strides(placement: Placement) -> dict[str, tuple[int, int]]:
        out = {}
        for i, dim in enumerate(placement.dims):
            stride = dim.tile
            for axis in reversed(dim.axes):
                out[axis] = (i, stride)
                stride *= mesh.axes[axis]
        return out

    before, after = strides(source), strides(target)
    return tuple(a for a, size in mesh.axes.items() if size > 1 and before.get(a) != after.get(a))


def permute_pairs(mesh: Mesh, source: Placement, target: Placement) -> Pairs:
    """Pair senders with receivers of shards, each device once on either side; a device that has its new shard keeps it.

    Both placements cut every dimension into as many tiles. The pairs do not cross unchanged axes.
    """
    changed = set(changed_axes(mesh, source, target))
    fixed = mesh.index(a for a in mesh.axes if a not in changed)
    have, need = shard_index(mesh, source), shard_index(mesh, target)
    span = int(max(have.max(), need.max())) + 1
    have, need = have + span * fixed, need + span * fixed
    keeps = have == need
    moving = np.nonzero(~keeps)[0]
    senders = moving[np.argsort(have[moving], kind="stable")]
    receivers = moving[np.argsort(need[moving], kind="stable")]
    kept = np.nonzero(keeps)[0].tolist()
    pairs = [(i, i) for i in kept] + list(zip(senders.tolist(), receivers.tolist(), strict=True))
    return tuple(sorted(pairs))


def shard_index(mesh: Mesh, placement: Placement) -> np.ndarray:
    """``[devices]``: the number of the shard that each device holds, dimensions in order, first is major."""
    return mesh.index(placement.sharded_axes)


def convert(mesh: Mesh, kind: Kind, source: Placement, target: Placement) -> Steps:
    """The steps of the conversion of this kind. ShardingError if the placements are not that conversion apart."""
    steps: list[tuple[Action, Placement]] = []
    padded, gathered = list(source.dims), list(target.dims)
    more, less = ((), ()) if kind in (Kind.PERMUTE, Kind.RELABEL) else (grown(source, target), grown(target, source))
    for i, axes in more:
        padded[i] = Dim(source.dims[i].axes, target.dims[i].tile * mesh.count(axes))
    for i, axes in less:
        gathered[i] = Dim(target.dims[i].axes, source.dims[i].tile * mesh.count(axes))
    before = Placement(tuple(padded), source.partial, source.monoid)
    after = Placement(tuple(gathered), target.partial, target.monoid)
    if before != source:
        steps.append((Resize(before.local_shape), before))
    steps.append((_action(mesh, kind, source, target, more, less), after))
    if after != target:
        steps.append((Resize(target.local_shape), target))
    return tuple(steps)


def _action(mesh: Mesh, kind: Kind, source: Placement, target: Placement, more: Moves, less: Moves) -> Action:
    combined = tuple(a for a in source.partial if a not in target.partial)
    match kind:
        case Kind.RELABEL:
            return Resize(target.local_shape)
        case Kind.SLICE:
            return Slice(more)
        case Kind.ALL_GATHER:
            return AllGather(less)
        case Kind.ALL_TO_ALL:
            return AllToAll(less, more)
        case Kind.PERMUTE:
            return CollectivePermute(permute_pairs(mesh, source, target), changed_axes(mesh, source, target))
        case Kind.ALL_REDUCE:
            return AllReduce(combined, source.monoid)
        case Kind.REDUCE_SCATTER:
            return ReduceScatter(more, source.monoid)
        case Kind.KEEP_FIRST:
            return KeepFirst(tuple(a for a in target.partial if a not in source.partial), target.monoid)
    raise ShardingError(f"no conversion leads from {source} to {target} by one collective")
