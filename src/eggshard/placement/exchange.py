"""The reshard by pieces: any placement to any other in collective-permutes of equal pieces, at the least bytes.

Both placements are cut to a common grid of cells. Each device misses the cells that it needs and does not hold; each
of those comes from one of the cell's holders, chosen so that loads are even; and the sends are sorted into as many
rounds as the busiest device has sends or receipts (König's theorem: a bipartite multigraph of maximal degree k is
edge-coloured with k colours). So a device receives what it misses and nothing more: no plan moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from eggshard.placement.conversions import changed_axes
from eggshard.placement.placement import Placement
from eggshard.plan.steps import Action, Exchange, Round
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, element_bytes

#: Numbers stay below this.
_NUMBERS = 1 << 62


@dataclass(frozen=True, slots=True)
class ExchangeOutline(Action):
    """What an exchange will cost, before it is worked out: a stand-in for `Exchange` in prices.

    cells: received by the busiest device, of ``cell`` elements each. rounds: collective-permutes.
    """

    shape: tuple[int, ...]
    cell: int
    cells: int
    rounds: int
    over: tuple[str, ...]
    kind = "exchange"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    @property
    def messages(self) -> int:
        return self.rounds

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0].with_shape(self.shape),)

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(self.cells * self.cell * element_bytes(operands[0].dtype))


class Boxes(NamedTuple):
    """A box of a tensor on every device, all of one ``size``: ``corner[device, dim]`` is its first index.

    Corners are multiples of the size, and boxes are equal or disjoint.
    """

    corner: np.ndarray
    size: np.ndarray


@lru_cache(maxsize=4096)
def exchange(mesh: Mesh, shape: tuple[int, ...], source: Placement, target: Placement) -> Exchange:
    """The exchange from ``source`` to ``target``, of a tensor of this global shape.

    Partial placements must be partial over the same axes: their addends travel like shards of further dimensions.
    """
    used = {*source.sharded_axes, *target.sharded_axes}
    over = changed_axes(mesh, source, target)
    return exchange_of_boxes(mesh, shape, _boxes(mesh, source), _boxes(mesh, target), used, over)


def exchange_of_boxes(
    mesh: Mesh, shape: tuple[int, ...], source: Boxes, target: Boxes, used: Collection[str], over: tuple[str, ...]
) -> Exchange:
    """The exchange from boxes that devices hold to boxes that they need.

    used: the axes along which the boxes differ. Devices that hold the same send to those at the same place along the
    other axes.
    """
    cell = np.maximum(1, np.gcd(source.size, target.size))
    held_size, size = source.size // cell, target.size // cell
    end = -(-np.array(shape, int) // cell)
    held, first = source.corner // cell, target.corner // cell
    offsets = np.indices(tuple(size)).reshape(len(size), -1).T
    cells = first[:, None, :] + offsets
    here = (cells >= held[:, None, :]).all(-1) & (cells < (held + held_size)[:, None, :]).all(-1)
    exists = (cells < end).all(-1)

    receiver, which = np.nonzero(exists & ~here)
    wanted = cells[receiver, which]
    sender = _assign(mesh, used, receiver, wanted // held_size * held_size, held)
    colours = colour_edges(sender, receiver, mesh.size)
    source_start, target_start = (wanted - held[sender]) * cell, offsets[which] * cell
    rounds = []
    for colour in range(int(colours.max()) + 1 if colours.size else 0):
        rows = np.nonzero(colours == colour)[0]
        rounds.append(_round(mesh, sender[rows], receiver[rows], source_start[rows], target_start[rows]))

    keeper, which = np.nonzero(exists & here)
    nth = np.arange(len(keeper)) - np.searchsorted(keeper, keeper)
    source_start, target_start = (cells[keeper, which] - held[keeper]) * cell, offsets[which] * cell
    local = []
    for n in range(int(nth.max()) + 1 if nth.size else 0):
        rows = np.nonzero(nth == n)[0]
        local.append(_round(mesh, keeper[rows], keeper[rows], source_start[rows], target_start[rows]))
    piece = tuple(int(c) for c in cell)
    return Exchange(piece, tuple(target.size.tolist()), tuple(rounds), tuple(local), over)


def outline_of_boxes(
    mesh: Mesh, shape: tuple[int, ...], source: Boxes, target: Boxes, used: Collection[str], over: tuple[str, ...]
) -> ExchangeOutline:
    """What `exchange_of_boxes` will cost, where every box lies in the tensor and all boxes of a side make it up.

    Boxes of a side have equally many holders then, and those send no more, each, than a device receives.
    """
    cell = np.maximum(1, np.gcd(source.size, target.size))
    low = np.maximum(source.corner, target.corner)
    high = np.minimum(source.corner + source.size, target.corner + target.size)
    kept = np.prod(np.maximum(high - low, 0) // cell, axis=1)
    cells = int(np.prod(target.size // cell) - kept.min())
    return ExchangeOutline(tuple(target.size.tolist()), int(np.prod(cell)), cells, cells, over)


def _boxes(mesh: Mesh, placement: Placement) -> Boxes:
    corners = [mesh.index(d.axes) * d.tile for d in placement.dims]
    corner = np.stack(corners, axis=1) if corners else np.zeros((mesh.size, 0), int)
    return Boxes(corner, np.array(placement.local_shape, int))


def _assign(
    mesh: Mesh, used: Collection[str], receiver: np.ndarray, corners: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """A sender for each wanted cell, of the box with this corner: its holders at the receiver's place take turns."""
    rest = mesh.index([a for a in mesh.axes if a not in used])
    keys = np.concatenate([np.column_stack([held, rest]), np.column_stack([corners, rest[receiver]])])
    numbers = np.unique(_row_numbers(keys), return_inverse=True)[1].reshape(-1)
    team_of, team = numbers[: mesh.size], numbers[mesh.size :]
    members = np.argsort(team_of, kind="stable").reshape(int(team_of.max()) + 1, -1)
    order = np.argsort(team, kind="stable")
    turn = np.empty(len(team), int)
    turn[order] = np.arange(len(team)) - np.searchsorted(team[order], team[order])
    sender: np.ndarray = members[team, turn % members.shape[1]]
    return sender


def _row_numbers(rows: np.ndarray) -> np.ndarray:
    """A number per row, equal for equal rows and in their order; rows hold no negative numbers."""
    out, most = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        size = int(column.max(initial=0)) + 1
        if most * size > _NUMBERS:
            out = np.unique(out, return_inverse=True)[1].reshape(-1)
            column = np.unique(column, return_inverse=True)[1].reshape(-1)
            most, size = int(out.max(initial=0)) + 1, int(column.max(initial=0)) + 1
        out, most = out * size + column, most * size
    return out


def _round(mesh: Mesh, senders: np.ndarray, receivers: np.ndarray, source_start: np.ndarray,
           target_start: np.ndarray) -> Round:
    starts = np.zeros((2, mesh.size, source_start.shape[1]), int)
    starts[0, senders], starts[1, receivers] = source_start, target_start
    order = np.argsort(senders)
    pairs = tuple(zip(senders[order].tolist(), receivers[order].tolist(), strict=True))
    return Round(pairs, tuple(map(tuple, starts[0].tolist())), tuple(map(tuple, starts[1].tolist())))


def colour_edges(senders: Sequence[int] | np.ndarray, receivers: Sequence[int] | np.ndarray, nodes: int) -> np.ndarray:
    """``[edges]``: colours such that no two edges of a sender, or of a receiver, share one; as few as the degree.

    Parts of the graph that are not connected are coloured each on its own, and equal ones once: what is done along
    some mesh axes is often done alike at all positions along the others.
    """
    out = np.zeros(len(senders), int)
    known: dict[tuple[bytes, bytes], np.ndarray] = {}
    for edges in _components(np.asarray(senders, int), np.asarray(receivers, int), nodes):
        own = [np.unique(np.asarray(ends, int)[edges], return_inverse=True)[1] for ends in (senders, receivers)]
        key = own[0].tobytes(), own[1].tobytes()
        if key not in known:
            known[key] = _coloured(*(ends.reshape(-1).tolist() for ends in own))
        out[edges] = known[key]
    return out


def _components(senders: np.ndarray, receivers: np.ndarray, nodes: int) -> list[np.ndarray]:
    """The edges of each connected part of a bipartite graph, in order."""
    if not len(senders):
        return []
    label = np.arange(nodes)  # of senders: the least one known to be connected
    while True:
        by_receiver = np.full(nodes, nodes)
        np.minimum.at(by_receiver, receivers, label[senders])
        lower = label.copy()
        np.minimum.at(lower, senders, by_receiver[receivers])
        lower = lower[lower]
        if (lower == label).all():
            break
        label = lower
    part = label[senders]
    order = np.argsort(part, kind="stable")
    return np.split(order, np.nonzero(np.diff(part[order]))[0] + 1)


def _coloured(senders: list[int], receivers: list[int]) -> np.ndarray:
    """The same for one part, whose senders and receivers are numbered from 0.

    By alternating paths: where the colour free at the sender is taken at the receiver, swap the two colours along
    the path that starts there; it cannot come back to the sender, because the graph is bipartite.
    """
    edges, nodes = len(senders), max(senders) + 1
    degree = int(max(np.bincount(senders).max(), np.bincount(receivers).max()))
    # Senders are nodes 0..n-1, receivers those from n on; at[node][colour] is the edge of that colour, or -1.
    ends = [(s, nodes + r) for s, r in zip(senders, receivers, strict=True)]
    at = [[-1] * degree for _ in range(nodes + max(receivers) + 1)]
    colours = [-1] * edges
    for edge, (u, v) in enumerate(ends):
        free_u, free_v = at[u].index(-1), at[v].index(-1)
        if free_u != free_v and at[v][free_u] >= 0:
            path, node, colour, other = [], v, free_u, free_v
            while (step := at[node][colour]) >= 0:
                path.append(step)
                a, b = ends[step]
                node, colour, other = (b if node == a else a), other, colour
            for step in path:
                for end in ends[step]:
                    at[end][colours[step]] = -1
            for step in path:
                colours[step] = free_v if colours[step] == free_u else free_u
            for step in path:
                for end in ends[step]:
                    at[end][colours[step]] = step
        colours[edge] = free_u
        at[u][free_u] = at[v][free_u] = edge
    return np.array(colours)
