"""Slabs (halo regions): what devices along a dimension send one another, and where many positions send alike.

Between two windows of one tile size all devices except those near the ends do alike. The slabs are therefore computed
for a few devices and repeated.
"""

from __future__ import annotations

from typing import NamedTuple

from eggshard.program.placement import Dim


class Slab(NamedTuple):
    """One round of a halo exchange along a dimension: halo regions of equal width that some devices send to others.

    pairs: (sender, receiver), numbered along the axes, each at most once on either side. width: indices of a slab.
    source_starts, target_starts: per device where its slab begins in its old and in its new shard (0 where unused).
    """

    pairs: tuple[tuple[int, int], ...]
    width: int
    source_starts: tuple[int, ...]
    target_starts: tuple[int, ...]


class SlabExchange(NamedTuple):
    """The rounds from one window to another. ``offsets``: per device where its old shard begins in the new one."""

    rounds: tuple[Slab, ...]
    offsets: tuple[int, ...]

    @property
    def width(self) -> int:
        """Indices received in all rounds, by the busiest device of each."""
        return sum(slab.width for slab in self.rounds)


class Repetition(NamedTuple):
    """A dimension in short, with ``extra`` devices and their tiles of ``tile`` indices taken out behind ``middle``.

    reach: how far apart a sender and a receiver are but for those at opposite ends. All devices at most ``reach`` from
    the middle one send and receive alike; those taken out do as well.
    """

    middle: int
    extra: int
    tile: int
    reach: int

    def shortened(self, dim: Dim) -> Dim:
        """A window in the short dimension."""
        if dim.wrapped is None:
            return dim
        return dim._replace(wrapped=(dim.wrapped[0], dim.wrapped[1] - self.extra * self.tile))

    def stretched(self, rounds: tuple[Slab, ...]) -> tuple[Slab, ...]:
        """The rounds of the whole dimension, from those of the short one."""
        return tuple(self._stretched(slab) for slab in rounds)

    def _stretched(self, slab: Slab) -> Slab:
        pairs = []
        for sender, receiver in slab.pairs:
            for place in self._places(receiver):
                near = abs(sender - receiver) <= self.reach
                pairs.append((place + sender - receiver if near else self._places(sender)[0], place))
        starts = self._repeated(slab.source_starts), self._repeated(slab.target_starts)
        return Slab(tuple(sorted(pairs)), slab.width, *starts)

    def _places(self, device: int) -> range:
        """Where a device of the short dimension stands in the whole one; the middle one stands for all taken out."""
        if device == self.middle:
            return range(device, device + self.extra + 1)
        place = device + self.extra * (device > self.middle)
        return range(place, place + 1)

    def _repeated(self, starts: tuple[int, ...]) -> tuple[int, ...]:
        middle = self.middle
        return starts[:middle] + starts[middle : middle + 1] * (self.extra + 1) + starts[middle + 1 :]


def repetition(n: int, count: int, source: Dim, target: Dim) -> Repetition | None:
    """How messages from one window to another repeat along a dimension of size n that ``count`` devices share.

    None where the tiles differ, or there are too few devices between the ends for any to be taken out.
    """
    tile = source.tile
    if tile != target.tile or tile < 1:
        return None
    ranges = source.specified(n), target.specified(n)
    # Indices in [start, stop) have one place each: none that is beyond an end, or that some other place wraps to.
    start = max(0, *(low for low, _ in ranges)) + max(0, *(high - n for _, high in ranges))
    stop = min(n, *(high for _, high in ranges)) - max(0, *(-low for low, _ in ranges))
    # Two shards that hold an index at the same place are no further apart than this.
    reach = max(0, (tile + source.high - target.low - 1) // tile, (tile + target.high - source.low - 1) // tile)
    low, high = min(source.low, target.low), max(source.high, target.high)
    # Those from first to last and all within reach of them are devices, and hold and need only such indices.
    first = reach + max(0, -((low - start) // tile))
    last = min(count - 1, (stop - high) // tile - 1) - reach
    extra = last - first - 2 * reach
    return Repetition(first + reach, extra, tile, reach) if extra > 0 else None
