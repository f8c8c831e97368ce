"""Halos of the values that a loop carries: where several iterations find all that they need."""

from __future__ import annotations

from collections.abc import Callable

from eggshard.placement.windows import bounding_window
from eggshard.program.placement import Dim, Placement
from eggshard.program.program import Region

Placements = tuple[Placement, ...]
#: Where a body's inputs must lie for its outputs to be computed at these placements without communication.
Demanded = Callable[[Placements], Placements]


#: The number of iterations after which windows are taken to grow by as much with each.
STEADY = 3


class Halos:
    """Where the values that a loop carries lie for so many of its iterations. tiles: where they lie before and after.

    fixed: those that the body does not change. They are held as wide as any iteration needs, and the others after each
    iteration as the rest of them needs.
    """

    def __init__(self, body: Region, tiles: Placements, demanded: Demanded):
        self.tiles, self.demanded = tiles, demanded
        self.shapes = tuple(body.types[v].shape for v in body.inputs)
        self.fixed = frozenset(i for i, (v, w) in enumerate(zip(body.inputs, body.outputs, strict=True)) if v == w)
        self._held: dict[int, Placements | None] = {0: tiles}

    def held(self, times: int) -> Placements | None:
        """Where the values lie of which so many iterations can be computed.

        None where iterations look at no neighbours, at other tiles than their own and those beside it, or past those.
        """
        if times not in self._held:
            steady = self._steady(times) if times > STEADY else None
            if steady is not None and self._before(steady[0]) == steady[1]:
                self._held[times - 1], self._held[times] = steady
            else:
                last = self.held(times - 1)
                self._held[times] = None if last is None else self._before(last)
        return self._held[times]

    def _steady(self, times: int) -> tuple[Placements, Placements] | None:
        """Where the values lie for one iteration less and for so many, if each is as much wider as the last known one;
        None where some dimension would not do."""
        before, after = self.held(STEADY - 1), self.held(STEADY)
        if before is None or after is None:
            return None

        def wider(more: int) -> Placements:
            return tuple([
                p._replace(dims=tuple([_wider(c, d, more) for c, d in zip(o.dims, p.dims, strict=True)]))
                for o, p in zip(before, after, strict=True)
            ])

        found = wider(times - STEADY)
        if any(max(-d.low, d.high) > d.tile for p in found for d in p.dims):
            return None
        return wider(times - 1 - STEADY), found

    def left(self, times: int) -> Placements:
        """Where the values lie after the first of so many iterations."""
        before, after = self.held(times), self.held(times - 1)
        assert before is not None and after is not None
        return tuple(p if i in self.fixed else q for i, (p, q) in enumerate(zip(before, after, strict=True)))

    def _before(self, after: Placements) -> Placements | None:
        """Where the values lie of which the first iteration leaves these, the widest windows included."""
        found = self.demanded(tuple(t if i in self.fixed else p for i, (t, p) in enumerate(
            zip(self.tiles, after, strict=True))))
        out = []
        for shape, p, q in zip(self.shapes, found, after, strict=True):
            if any((a.axes, a.tile) != (b.axes, b.tile) for a, b in zip(p.dims, q.dims, strict=True)):
                return None
            dims = [bounding_window(pair, n) for n, *pair in zip(shape, p.dims, q.dims, strict=True)]
            if any(max(-d.low, d.high) > d.tile for d in dims):
                return None
            out.append(p._replace(dims=tuple(dims)))
        return tuple(out) if any(p.windowed for p in out) else None


def _wider(before: Dim, after: Dim, more: int) -> Dim:
    """A dimension that grows as often again as it grew from one window to another."""
    wrapped = after.wrapped
    if wrapped is not None and before.wrapped is not None:
        (a, b), (c, d) = before.wrapped, wrapped
        wrapped = c + more * (c - a), d + more * (d - b)
    return after._replace(low=after.low + more * (after.low - before.low),
                          high=after.high + more * (after.high - before.high), wrapped=wrapped)
