"""Arithmetic of axes and sub-axes: overlaps, cuts, merges and sizes, in Shardy's normal form.

A sub-axis ``x:(p)k`` of an axis of size n is the middle of ``[p, k, n/(p*k)]``; it covers the span ``[p, p*k)`` of the
divisors of n, and a whole axis covers ``[1, n)``. Two sub-axes of one axis fit together if the ends of their spans
divide one another; only then can both be parts of one refinement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from eggshard.program.mesh import AxisRef
from eggshard.shardy.attributes import Axes

#: Sizes of the axes of a mesh, by name.
Sizes = Mapping[str, int]


def size_of(axis: AxisRef, sizes: Sizes) -> int:
    """The number of devices along a (sub-)axis."""
    return axis.size or sizes[axis.name]


def count(axes: Iterable[AxisRef], sizes: Sizes) -> int:
    """The number of shards that axes make."""
    return math.prod(size_of(axis, sizes) for axis in axes)


def span(axis: AxisRef, sizes: Sizes) -> tuple[int, int]:
    """Where a (sub-)axis begins and ends."""
    return axis.pre, axis.pre * size_of(axis, sizes)


def between(name: str, start: int, end: int, sizes: Sizes) -> AxisRef:
    """The (sub-)axis of a span; the whole axis is written plain."""
    return AxisRef(name) if (start, end) == (1, sizes[name]) else AxisRef(name, start, end // start)


def fits(first: AxisRef, second: AxisRef, sizes: Sizes) -> bool:
    """Whether both can be parts of one refinement of the mesh."""
    if first.name != second.name:
        return True
    (a, b), (c, d) = span(first, sizes), span(second, sizes)
    low, high = sorted((a, c))
    low_end, high_end = sorted((b, d))
    if high_end == low_end and high == low:
        return True
    if low_end <= high:  # apart
        return high % low_end == 0
    return high % low == 0 and high_end % low_end == 0 and low_end % high == 0


def overlap(first: AxisRef, second: AxisRef, sizes: Sizes) -> bool:
    """Whether they fit together and share a part."""
    if first.name != second.name:
        return False
    (a, b), (c, d) = span(first, sizes), span(second, sizes)
    same = (a, b) == (c, d)
    return same or (max(a, c) < min(b, d) and fits(first, second, sizes))


def contains(outer: AxisRef, inner: AxisRef, sizes: Sizes) -> bool:
    """Whether one covers all of the other."""
    (a, b), (c, d) = span(outer, sizes), span(inner, sizes)
    return outer.name == inner.name and a <= c and d <= b


def merged(axes: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """Adjacent sub-axes become one, a whole axis plain."""
    out: list[AxisRef] = []
    for axis in axes:
        last = out[-1] if out else None
        if last and axis.size and last.size and last.name == axis.name and last.pre * last.size == axis.pre:
            out[-1] = between(axis.name, last.pre, axis.pre * axis.size, sizes)
        else:
            out.append(axis)
    return tuple(out)


def in_mesh_order(axes: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """A set of axes as Shardy writes it."""
    order = {name: i for i, name in enumerate(sizes)}
    return merged(sorted(axes, key=lambda a: (order[a.name], a.pre)), sizes)


def cut(axis: AxisRef, points: Iterable[int], sizes: Sizes) -> Axes:
    """The parts of an axis between the points that lie within it."""
    start, end = span(axis, sizes)
    edges = [start, *sorted({p for p in points if start < p < end}), end]
    return tuple(between(axis.name, a, b, sizes) for a, b in zip(edges, edges[1:], strict=False)) or (axis,)


def without_suffix(axes: Sequence[AxisRef], suffix: Sequence[AxisRef], sizes: Sizes) -> Axes | None:
    """The axes without some at their end, which may be minor parts of theirs; None if they do not end in them."""
    kept = list(axes)
    for axis in reversed(suffix):
        if not kept:
            return None
        last = kept.pop()
        (a, b), (c, d) = span(last, sizes), span(axis, sizes)
        if last.name != axis.name or b != d or c < a or (b > a and c % a):
            return None
        if a < c:
            kept.append(between(last.name, a, c, sizes))
    return tuple(kept)
