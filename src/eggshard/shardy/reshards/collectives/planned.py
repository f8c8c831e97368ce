"""The cheapest sequence of Shardy's collectives from one sharding to another, by bytes on the wire.

Shortest paths over shardings by the parts of axes (`Parts`): one edge is one op that Shardy verifies, priced by
`eggshard.shardy.wire_bytes`. What devices lack of the target bounds from below what is still to be paid (A*). Shardy's
own sequence is a candidate always: where the space of shardings is too large to search, it is the answer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counter

from eggshard.program.axes import Axes, shard_count
from eggshard.program.mesh import Mesh
from eggshard.shardy.reshards.collectives.kinds import Move, fused, well_formed
from eggshard.shardy.reshards.collectives.parts import Edge, Parts, State, partitions
from eggshard.shardy.wire_bytes import Dims, WireBytes, lacks, step_bytes

#: Spaces of more shardings than this are not searched, ...
MOST_STATES = 6000
#: ... nor those of more shardings times devices: what each device lacks is computed for every sharding.
MOST_SHARDS = 3_000_000
#: Bytes that differ by less are equal.
TIE = 1e-6


@dataclass(frozen=True)
class Reshard:
    """A reshard of a tensor between shardings on meshes that differ in the order of their devices at most.

    at_once: the source's partial values are not stated as its sharding, so that the first collective must reduce all
    that the target does not have.
    """

    shape: tuple[int, ...]
    itemsize: int
    source_mesh: Mesh
    mesh: Mesh
    source: Dims
    target: Dims
    partial_sums: Axes = ()
    target_partial_sums: Axes = ()
    at_once: bool = False

    @property
    def reordered(self) -> bool:
        return self.source_mesh != self.mesh

    def fused(self, moves: Sequence[Move]) -> list[Move]:
        """Moves of this reshard, fused where two are one."""
        return fused(moves, self.mesh.axes, self.source, self.reordered)


def price(reshard: Reshard, moves: Sequence[Move]) -> WireBytes:
    """What moves take together."""
    total, at, mesh = WireBytes(), reshard.source, reshard.source_mesh
    for move in moves:
        before = mesh
        if move.kind == "collective_permute":
            mesh = reshard.mesh
        moved = (*(a for d in move.dims for a in d), *move.axes, *(a for e in move.exchanges for a in e.axes))
        total = total.plus(step_bytes(
            move.kind, shard_count(moved, mesh.axes), at, move.after, reshard.shape, reshard.itemsize, mesh, before))
        at = move.after
    return total


def planned_moves(reshard: Reshard, given: Sequence[Move] | None) -> list[Move]:
    """The cheapest moves found, by bytes of the busiest device, then on average, then by their number.

    given: moves that the result is never dearer than, by either count of bytes; None if there are none.
    """
    return list(_planned(reshard, None if given is None else tuple(reshard.fused(given))))


@lru_cache(maxsize=4096)
def _planned(reshard: Reshard, given: tuple[Move, ...] | None) -> tuple[Move, ...]:
    best = None if given is None else (_key(price(reshard, given), given), given)
    if best is not None and not reshard.partial_sums and not reshard.target_partial_sums and not reshard.reordered:
        lacking = lacks(reshard.shape, reshard.source, reshard.target, reshard.mesh) * reshard.itemsize
        if best[0][0] <= lacking.max() + TIE and best[0][1] <= lacking.mean() + TIE and best[0][2] <= 1:
            return best[1]
    limit = None if best is None else best[0]
    for parts in _spaces(reshard):
        for by_average in (False, True):
            found = _Search(reshard, parts, by_average, limit).run()
            if found is None:
                continue
            moves = tuple(reshard.fused(found))
            key = _key(price(reshard, moves), moves)
            never_dearer = limit is None or (key[0] <= limit[0] + TIE and key[1] <= limit[1] + TIE)
            if never_dearer and (best is None or key < best[0]):
                best = key, moves
            if never_dearer:
                break
    return best[1] if best is not None else tuple(_by_way_of_replication(reshard))


def _key(bytes_: WireBytes, moves: Sequence[Move]) -> tuple[float, float, int, int]:
    return round(bytes_.busiest, 6), round(bytes_.average, 6), bytes_.collectives, len(moves)


def _spaces(reshard: Reshard) -> list[Parts]:
    """The finest parts of axes whose space is small enough, in each order of their prime factors; else none."""
    sharded = (a for d in (*reshard.source, *reshard.target) for a in d)
    axes = [*sharded, *reshard.partial_sums, *reshard.target_partial_sums]
    if not all(well_formed((*dims, partial_sums), reshard.mesh.axes) for dims, partial_sums in (
            (reshard.source, reshard.partial_sums), (reshard.target, reshard.target_partial_sums))):
        return []
    used = {axis.name for axis in axes}
    for names, primes, fixed in ((set(reshard.mesh.axes), True, False), (used, True, True), (used, False, True)):
        found = partitions(reshard.mesh.axes, axes, names, primes)
        if not found:
            return []
        spaces = [Parts(reshard.mesh.axes, p, reshard.source, reshard.target, fixed) for p in found]
        most = min(MOST_STATES, MOST_SHARDS // reshard.mesh.size)
        if all(space.states <= most for space in spaces):
            return spaces
    return []


def _by_way_of_replication(reshard: Reshard) -> Iterator[Move]:
    """Reduce and gather everything, permute if the mesh is another, and slice: what is always possible."""
    nothing: Dims = tuple(() for _ in reshard.shape)
    if reshard.partial_sums:
        yield Move("all_reduce", reshard.source, axes=reshard.partial_sums)
    if any(reshard.source):
        yield Move("all_gather", nothing, dims=reshard.source)
    if reshard.reordered:
        yield Move("collective_permute", nothing)
    if any(reshard.target):
        yield Move("all_slice", reshard.target, dims=reshard.target)
    if reshard.target_partial_sums:
        partial = reshard.target_partial_sums
        yield Move("replicated_to_unreduced", reshard.target, partial, axes=partial)


class _Search:
    """One search for the way from source to target."""

    def __init__(
        self, reshard: Reshard, parts: Parts, by_average: bool, limit: tuple[float, float, int, int] | None
    ) -> None:
        self.reshard, self.parts, self.by_average = reshard, parts, by_average
        self.limit = math.inf if limit is None else limit[1 if by_average else 0] + TIE
        self.meshes = (reshard.source_mesh, reshard.mesh) if reshard.reordered else (reshard.mesh,)
        self.start = State(0, parts.of(reshard.source), parts.set_of(reshard.partial_sums))
        self.goal = State(len(self.meshes) - 1, parts.of(reshard.target), parts.set_of(reshard.target_partial_sums))
        # New partial values are made of nothing.
        self.bounded = set(self.goal.partial_sums) <= set(self.start.partial_sums)
        self.bounds: dict[State, tuple[float, float]] = {}

    def run(self) -> list[Move] | None:
        """The moves of the cheapest path, None if the limit excludes all."""
        order = counter()
        came: dict[State, tuple[State, Edge] | None] = {}
        queue: list[tuple[tuple[float, ...], int, tuple[float, ...], State, tuple[State, Edge] | None]] = []
        start = (0.0, 0.0, 0, 0)
        heapq.heappush(queue, (start, next(order), start, self.start, None))
        best: dict[State, tuple[float, ...]] = {self.start: start}
        while queue:
            _, _, cost, state, by = heapq.heappop(queue)
            if state in came:
                continue
            came[state] = by
            if state == self.goal:
                return self._path(came)
            for edge in self.parts.edges(state, self.goal, self.reshard.shape, self.reshard.at_once):
                after = edge.state
                if after in came:
                    continue
                paid = self._paid(state, edge)
                total = tuple(round(a + b, 6) for a, b in zip(cost, paid, strict=True))
                if after in best and best[after] <= total:
                    continue
                left = self._left(after)
                if total[0] + left[0] > self.limit:
                    continue
                best[after] = total
                estimate = (total[0] + left[0], total[1] + left[1], *total[2:])
                heapq.heappush(queue, (estimate, next(order), total, after, (state, edge)))
        return None

    def _paid(self, state: State, edge: Edge) -> tuple[float, ...]:
        found = step_bytes(
            edge.kind, edge.group, self.parts.axes(state.dims), self.parts.axes(edge.state.dims), self.reshard.shape,
            self.reshard.itemsize, self.meshes[edge.state.mesh], self.meshes[state.mesh])
        first, second = (found.average, found.busiest) if self.by_average else found[:2]
        return first, second, found.collectives, 1

    def _left(self, state: State) -> tuple[float, float]:
        """Bytes that are still to be received at least."""
        if not self.bounded:
            return 0.0, 0.0
        if state not in self.bounds:
            axes = self.parts.axes(state.dims)
            lacking = lacks(
                self.reshard.shape, axes, self.reshard.target, self.reshard.mesh, self.meshes[state.mesh])
            busiest, average = (float(x) * self.reshard.itemsize for x in (lacking.max(), lacking.mean()))
            self.bounds[state] = (average, busiest) if self.by_average else (busiest, average)
        return self.bounds[state]

    def _path(self, came: dict[State, tuple[State, Edge] | None]) -> list[Move]:
        moves: list[Move] = []
        at = self.goal
        while (by := came[at]) is not None:
            moves.append(self.parts.move(by[1]))
            at = by[0]
        return moves[::-1]
