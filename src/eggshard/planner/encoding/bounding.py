"""Windows of one value beside one another: which are of one grid, near, or inside one another, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eggshard.planner.encoding.logical_dims import Axes
from eggshard.program.placement import Dim, Placement
from eggshard.reshard.window_routes import bounding_window_of


def bounding_windows(shape: tuple[int, ...], windows: Mapping[Placement, int], limit: int) -> list[Placement]:
    """Placements that each contain some of these windows, narrower ones first; at most ``limit`` of each kind a grid.

    Per grid, of neighbouring windows, the bounding window of the narrowest, then of those and the next wider, and so
    on; of too many the widest, which serves all users, is kept beside the narrowest. And in the same way by levels,
    ``windows[p]``: windows of a kind that consumers on one level take are not of one width where shifts differ.
    """
    grids: dict[object, list[Placement]] = {}
    for p in windows:
        grids.setdefault(grid_of(p), []).append(p)
    found: dict[Placement, None] = {}
    for grid in grids.values():
        for cluster in clusters(grid, touch):
            for ranks in ([windows[p] for p in cluster], [width_of(p) for p in cluster]):
                steps = sorted(set(ranks))
                if 1 < limit < len(steps):
                    steps[limit - 1] = steps[-1]
                for most in steps[:limit]:
                    inner = [p for p, rank in zip(cluster, ranks, strict=True) if rank <= most]
                    found[bounding_window_of(shape, inner)] = None
    return sorted(found, key=width_of)


def within(shape: tuple[int, ...], narrow: Placement, wide: Placement) -> bool:
    """Whether a window is the bounding window of itself and another one of its grid."""
    if all(a.wrapped is None and b.wrapped is None for a, b in zip(narrow.dims, wide.dims, strict=True)):
        return all(b.low <= a.low and a.high <= b.high for a, b in zip(narrow.dims, wide.dims, strict=True))
    return bounding_window_of(shape, [wide, narrow]) == wide


def grid_of(placement: Placement) -> tuple[tuple[Axes, int], ...]:
    """What windows of one grid have in common: the axes and tiles of their dimensions."""
    return tuple([(d.axes, d.tile) for d in placement.dims])


def axes_of(placement: Placement) -> tuple[Axes, ...]:
    """The axes of each dimension: of other ones, no window is cut."""
    return tuple([d.axes for d in placement.dims])


def width_of(placement: Placement) -> int:
    """How many more indices than a tile a device holds, along the dimension where these are most."""
    return max((d.high - d.low for d in placement.dims), default=0)


def clusters(
    windows: Iterable[Placement], near: Callable[[Placement, Placement], bool]
) -> list[list[Placement]]:
    """Windows grouped so that no two of different groups are near one another."""
    found: list[list[Placement]] = []
    for p in windows:
        joined = [c for c in found if any(near(p, q) for q in c)]
        found = [c for c in found if c not in joined] + [[p, *(q for c in joined for q in c)]]
    return found


def touch(p: Placement, q: Placement) -> bool:
    """Whether windows overlap, or lie side by side, along every dimension."""
    def near(a: Dim, b: Dim) -> bool:
        return max(a.low, b.low) <= min(a.tile + a.high, b.tile + b.high)

    return all(near(a, b) for a, b in zip(p.dims, q.dims, strict=True))
