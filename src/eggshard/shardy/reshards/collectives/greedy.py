"""Shardy's own sequence of collectives between two shardings: slice, permute, exchange, gather, at most twice over.

Shard counts decide what each stage takes, never bytes. A stage works on the difference of the two shardings: per
dimension, the axes present that should not stay where they are (``have``), and those that should be there (``want``),
after the common prefix. Sub-axes are split first so that overlapping axes of both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from eggshard.program.axes import Axes, AxisRef, Sizes, merged, shard_count
from eggshard.shardy.attributes import Exchange
from eggshard.shardy.reshards.collectives.kinds import Move

#: Rounds end when there are more moves than this.
MOST_MOVES = 64


def greedy_moves(
    shape: tuple[int, ...], sizes: Sizes, source: Sequence[Axes], target: Sequence[Axes], reordered: bool = False
) -> list[Move] | None:
    """The moves from one sharding to another; reordered: the target is on a mesh with another order of devices.

    Shardy stops after two rounds, where sizes do not divide one another sometimes short of the target; here rounds go
    on. None if they come to a standstill, or to sub-axes that do not fit together.
    """
    work = _Greedy(shape, sizes, source, target, reordered)
    while not work.done:
        before = len(work.moves)
        work.round()
        if len(work.moves) == before or len(work.moves) > MOST_MOVES:
            break
    at = tuple(map(tuple, source))
    for move in work.moves:
        if not move.follows(at, sizes):
            return None
        at = move.after
    return work.moves if work.done and at == tuple(map(tuple, target)) else None


class _Greedy:
    def __init__(
        self, shape: tuple[int, ...], sizes: Sizes, source: Sequence[Axes], target: Sequence[Axes], reordered: bool
    ) -> None:
        self.shape, self.sizes, self.reordered = shape, sizes, reordered
        self.now = [list(axes) for axes in source]
        before, after = _ordered(source), _ordered(target)
        self.have = [aligned(axes, after, sizes) for axes in source]
        self.want = [aligned(axes, before, sizes) for axes in target]
        for have, want in zip(self.have, self.want, strict=True):
            while have and want and have[0] == want[0]:
                del have[0], want[0]
        self.capacity = [1] * len(shape)
        self.held = {axis for have in self.have for axis in have}
        self.moves: list[Move] = []
        self._find_places()

    @property
    def done(self) -> bool:
        return not self.reordered and not any(self.have) and not any(self.want)

    @property
    def current(self) -> tuple[Axes, ...]:
        return tuple(map(tuple, self.now))

    def round(self) -> None:
        """The four stages in order."""
        self._slice()
        due = self._permute_is_due()
        if due:
            self._permute()
        if due or self.reordered:
            self.reordered = False
            self.moves.append(Move("collective_permute", self.current))
        self._exchange(anywhere=False)
        self._exchange(anywhere=True)
        self._gather()

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def _find_places(self) -> None:
        """Where each wanted axis belongs: its dimension, and its number there."""
        self.place: dict[AxisRef, tuple[int, int]] = {}
        for dim, axes in enumerate(self.want):
            for number, axis in enumerate(axes):
                self.place.setdefault(axis, (dim, number))

    def _append(self, axes: list[AxisRef], axis: AxisRef) -> None:
        axes[:] = merged([*axes, axis], self.sizes)

    def _drop(self, dim: int, axes: Sequence[AxisRef]) -> None:
        """Take axes, which may be parts of those written, off the end of a dimension of the current sharding."""
        now = self.now[dim]
        for axis in reversed(axes):
            if now:
                left = now[-1].prefix_without_overlap([axis])
                now[-1:] = [] if left is None else [left]

    def _within(self, axis: AxisRef, dim: int) -> tuple[AxisRef, AxisRef | None] | None:
        """The part of an axis that a dimension's capacity admits, and the rest; the capacity shrinks by the part."""
        found = _admitted(axis, self.capacity[dim], self.sizes)
        if found is not None:
            self.capacity[dim] //= found[0].devices(self.sizes)
        return found

    def _distribute(
        self, front: bool, available: Callable[[int], list[AxisRef]],
        taken: Callable[[AxisRef, int], None] = lambda axis, dim: None,
    ) -> None:
        """Put available axes at the front or the back of dimensions that have capacity for them."""
        cuts: list[AxisRef] = []
        for dim, have in enumerate(self.have):
            at, axes, i = (0 if front else len(have)), available(dim), 0
            while i < len(axes) and self.capacity[dim] > 1:
                found = self._within(axes[i], dim)
                if found is None:
                    i += 1
                    continue
                part, rest = found
                del axes[i]
                have.insert(at, part)
                at += 1
                self.held.add(part)
                taken(part, dim)
                if rest is not None:
                    cuts.append(part)
                    axes.insert(0, rest)
        if cuts:
            cuts.sort(key=_key)
            self.want = [aligned(axes, cuts, self.sizes) for axes in self.want]

    # -- slices ------------------------------------------------------------------------------------------------------

    def _slice(self) -> None:
        """Slice as many wanted axes as dimensions have room for; where they belong first, then anywhere."""
        for dim, (have, want) in enumerate(zip(self.have, self.want, strict=True)):
            there, goal = shard_count(have, self.sizes), shard_count(want, self.sizes)
            self.capacity[dim] = goal // math.gcd(there, goal)
        sliced: list[list[AxisRef]] = [[] for _ in self.shape]

        def take(axis: AxisRef, dim: int) -> None:
            self._append(sliced[dim], axis)
            self._append(self.now[dim], axis)

        for dim in range(len(self.shape)):
            for axis in self._ahead_of_exchange(dim):
                self.have[dim].append(axis)
                self.held.add(axis)
                take(axis, dim)
        left: list[AxisRef] = []
        for dim in range(len(self.shape)):
            left += self._slice_in_place(dim, take)
        self._distribute(False, lambda dim: left, take)
        self._find_places()
        if any(sliced):
            self.moves.append(Move("all_slice", self.current, dims=tuple(map(tuple, sliced))))

    def _slice_in_place(self, dim: int, take: Callable[[AxisRef, int], None]) -> list[AxisRef]:
        """Slice the axes that a dimension wants, and return those that are left."""
        have, want, left = self.have[dim], self.want[dim], []
        i = 0
        while i < len(want):
            if want[i] in self.held:
                i += 1
                continue
            found = self._within(want[i], dim)
            if found is None:
                left.append(want[i])
                i += 1
                continue
            part, rest = found
            take(part, dim)
            if not have and i == 0:
                del want[0]
            else:
                self.held.add(part)
                have.append(part)
                want[i] = part
                i += 1
            if rest is not None:
                want.insert(i, rest)
                left.append(rest)
                i += 1
        return left

    def _ahead_of_exchange(self, dim: int) -> list[AxisRef]:
        """Axes to slice at this dimension that belong behind its last axes, which are to move to another dimension.

        They then move together, and no permute is needed; only if nothing else has to change at either dimension, and
        the dimension's size allows it.
        """
        have = self.have[dim]
        if not have or self.want[dim] or have[-1] not in self.place:
            return []
        target = self.place[have[-1]][0]
        wanted = self.want[target]
        if self.have[target] or have[-1] not in wanted:
            return []
        start = wanted.index(have[-1]) + 1
        together = 0
        while together < min(len(have), start) and have[-1 - together] == wanted[start - 1 - together]:
            together += 1
        if any(self.place.get(axis, (-1, 0))[0] == target for axis in have[: len(have) - together]):
            return []
        stop = start
        while stop < len(wanted) and wanted[stop] not in self.held:
            stop += 1
        added = wanted[start:stop]
        if not added or self.shape[dim] % (shard_count(self.now[dim], self.sizes) * shard_count(added, self.sizes)):
            return []
        self.capacity[target] //= shard_count(have[len(have) - together :], self.sizes) * shard_count(added, self.sizes)
        return added

    # -- permutes ----------------------------------------------------------------------------------------------------

    def _permute_is_due(self) -> bool:
        """Whether axes can be replaced at equal shard counts, or stand in an order that no exchange repairs."""
        unplaced: AxisRef | None = None
        unheld: AxisRef | None = None
        for dim, (have, want) in enumerate(zip(self.have, self.want, strict=True)):
            if have and want and self._divide(have[0], want[0]):
                return True
            unheld = next((axis for axis in reversed(want) if axis not in self.held), unheld)
            last: tuple[int, int] | None = None
            seen: set[int] = set()
            for axis in have:
                at = self.place.get(axis)
                if at is None:
                    if last is not None and not want:
                        return True  # it is to be gathered, but stands behind one that moves
                    unplaced = axis
                else:
                    follows = last is not None and at == (last[0], last[1] + 1)
                    if (at[0] == dim or at[0] in seen) and not follows:
                        return True
                    seen.add(at[0])
                last = at
        return unheld is not None and unplaced is not None and self._divide(unheld, unplaced)

    def _divide(self, a: AxisRef, b: AxisRef) -> bool:
        small, large = sorted((a.devices(self.sizes), b.devices(self.sizes)))
        return large % small == 0

    def _permute(self) -> None:
        """Replace what is held by what is wanted, as far as the shard counts go; then by what is to be gathered."""
        self.held.clear()
        wanted: list[AxisRef] = []
        unwanted: list[list[AxisRef]] = []
        for dim in range(len(self.shape)):
            have, want = self.have[dim], self.want[dim]
            total = self.capacity[dim] = shard_count(have, self.sizes)
            self._drop(dim, have)
            while self.capacity[dim] > 1 and want:
                found = self._within(want[0], dim)
                if found is None:
                    break
                self._append(self.now[dim], found[0])
                want[:1] = [] if found[1] is None else [found[1]]
            wanted += want
            unwanted.append(self._unreplaced(dim, total // self.capacity[dim]))
            have.clear()
        self._distribute(False, lambda dim: wanted)
        self._distribute(True, lambda dim: unwanted[dim])
        rest = [axis for axes in unwanted for axis in axes]
        self._distribute(True, lambda dim: rest)
        self._find_places()
        for dim, have in enumerate(self.have):
            for axis in have:
                self._append(self.now[dim], axis)

    def _unreplaced(self, dim: int, replaced: int) -> list[AxisRef]:
        """The axes of a dimension that are wanted nowhere, those beyond the replaced shard count first."""
        axes = [axis for axis in self.have[dim] if axis not in self.place]
        last: list[AxisRef] = []
        while axes and (found := _admitted(axes[0], replaced, self.sizes)):
            last.append(found[0])
            replaced //= found[0].devices(self.sizes)
            axes[:1] = [] if found[1] is None else [found[1]]
        return axes + last

    # -- exchanges and gathers ---------------------------------------------------------------------------------------

    def _exchange(self, anywhere: bool) -> None:
        """All-to-alls of the last axes of a dimension that belong to one other; anywhere: in whatever order."""
        for dim in range(len(self.shape)):
            while self._exchange_from(dim, anywhere):
                pass

    def _exchange_from(self, dim: int, anywhere: bool) -> bool:
        have = self.have[dim]
        start, target = len(have), -1
        while start and have[start - 1] in self.place:
            to = self.place[have[start - 1]][0]
            if to == dim or target not in (-1, to):
                break
            start, target = start - 1, to
        moved = have[start:]
        if not moved or (not anywhere and moved != self.want[target][: len(moved)]):
            return False
        self._drop(dim, moved)
        del have[start:]
        for axis in moved:
            self._append(self.now[target], axis)
            if not self.have[target] and self.want[target] and self.want[target][0] == axis:
                del self.want[target][0]
                self.held.discard(axis)
            else:
                self.have[target].append(axis)
        exchange = Exchange(merged(moved, self.sizes), dim, target)
        self.moves.append(Move("all_to_all", self.current, exchanges=(exchange,)))
        return True

    def _gather(self) -> None:
        """Gather the dimensions whose last axis is wanted nowhere: all of what they have."""
        gathered: list[Axes] = []
        for dim, have in enumerate(self.have):
            if not have or have[-1] in self.place:
                gathered.append(())
                continue
            self.held.discard(have[-1])
            self._drop(dim, have)
            gathered.append(merged(have, self.sizes))
            have.clear()
        if any(gathered):
            self.moves.append(Move("all_gather", self.current, dims=tuple(gathered)))


def _admitted(axis: AxisRef, capacity: int, sizes: Sizes) -> tuple[AxisRef, AxisRef | None] | None:
    """The major part of an axis that makes at most this many shards, and the rest of it; None if sizes do not fit."""
    size = axis.devices(sizes)
    if capacity <= 1 or (size % capacity and capacity % size):
        return None
    if capacity >= size:
        return axis, None
    return axis.split(capacity, sizes)


def _key(axis: AxisRef) -> tuple[str, int, float]:
    return axis.name, axis.pre, axis.size or math.inf


def _ordered(dims: Sequence[Axes]) -> list[AxisRef]:
    return sorted((axis for axes in dims for axis in axes), key=_key)


def aligned(axes: Iterable[AxisRef], others: Sequence[AxisRef], sizes: Sizes) -> list[AxisRef]:
    """The axes cut where parts of them are axes of the others."""
    return [
        part for axis in axes for part in axis.cut(
            (point for other in others if axis.overlap(other) for point in other.span(sizes)), sizes)]
