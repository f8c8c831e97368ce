"""Halos of the values that a loop carries: how far its iterations reach, and where several find all that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eggshard.program.placement import Dim, Placement
from eggshard.program.program import Region

Placements = tuple[Placement, ...]
#: Where a body's inputs must lie for its outputs to be computed at these placements without communication.
Demanded = Callable[[Placements], Placements]


@dataclass(frozen=True)
class Halos:
    """How far the iterations of a loop reach. ``tiles``: where its carried values lie.

    growth: per axes of a dimension how far an iteration reaches below and above. wide: the carried values that are held
    with a halo, and along which dimensions it is wrapped. fixed: which of all values the body does not change.
    """

    tiles: Placements
    shapes: tuple[tuple[int, ...], ...]
    growth: dict[tuple[str, ...], tuple[int, int]]
    wide: dict[int, frozenset[int]]
    fixed: frozenset[int]

    @classmethod
    def of(cls, body: Region, tiles: Placements, demanded: Demanded) -> Halos | None:
        """None where iterations look at no neighbours, or at other tiles than their own and those beside it."""
        shapes = tuple(body.types[v].shape for v in body.inputs)
        fixed = frozenset(i for i, (v, w) in enumerate(zip(body.inputs, body.outputs, strict=True)) if v == w)
        growth: dict[tuple[str, ...], tuple[int, int]] = {}
        found = demanded(tiles)
        if any(a.tile != b.tile or a.axes != b.axes
               for p, q in zip(tiles, found, strict=True) for a, b in zip(p.dims, q.dims, strict=True)):
            return None
        for p in found:
            for d in p.dims:
                if d.windowed:
                    low, high = growth.get(d.axes, (0, 0))
                    growth[d.axes] = min(low, d.low), max(high, d.high)
        halos = cls(tiles, shapes, growth, {}, fixed)
        while growth:
            wide = {
                i: frozenset(d for d, dim in enumerate(p.dims) if dim.wrapped) | halos.wide.get(i, frozenset())
                for i, p in enumerate(found) if p.windowed or i in halos.wide
            }
            if wide == halos.wide:
                return halos
            halos = cls(tiles, shapes, growth, wide, fixed)
            held = halos.held(1)
            found = demanded(tuple(t if i in fixed else p for i, (t, p) in enumerate(zip(tiles, held, strict=True))))
        return None

    def held(self, times: int, fixed: int | None = None) -> Placements:
        """Where the values lie of which so many iterations can be computed; those that do not change, of others."""
        return tuple(
            self._widened(i, fixed if i in self.fixed and fixed is not None else times) if i in self.wide else p
            for i, p in enumerate(self.tiles)
        )

    def fit(self, times: int) -> bool:
        """Whether what so many iterations reach lies on the devices beside one's own."""
        return all(
            times * max(-low, high) <= d.tile
            for i in self.wide for d in self.tiles[i].dims for low, high in (self.growth.get(d.axes, (0, 0)),)
        )

    def _widened(self, i: int, times: int) -> Placement:
        def wide(at: int, n: int, d: Dim) -> Dim:
            low, high = (times * reach for reach in self.growth.get(d.axes, (0, 0)))
            if not times or (not low and not high):
                return d
            return d._replace(low=low, high=high, wrapped=(low, n + high) if at in self.wide[i] else None)

        dims = enumerate(zip(self.shapes[i], self.tiles[i].dims, strict=True))
        return self.tiles[i]._replace(dims=tuple(wide(at, n, d) for at, (n, d) in dims))
