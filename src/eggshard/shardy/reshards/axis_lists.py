"""Lists of axes and sub-axes: what they share, what is left of one beside another, and their normal form.

A (sub-)axis spans the range of strides ``[pre, pre * size)`` of its axis; a list names them major to minor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eggshard.program.mesh import AxisRef, Mesh
from eggshard.shardy.attributes import Axes


def size_of(axis: AxisRef, mesh: Mesh) -> int:
    """The number of devices along a (sub-)axis."""
    return axis.size or mesh.axes[axis.name]


def count_of(axes: Iterable[AxisRef], mesh: Mesh) -> int:
    """The number of shards that a list of axes makes."""
    return math.prod(size_of(axis, mesh) for axis in axes)


def sub_axis(name: str, pre: int, size: int, mesh: Mesh) -> AxisRef:
    """The sub-axis, or the whole axis if that is what it is."""
    return AxisRef(name) if size == mesh.axes[name] else AxisRef(name, pre, size)


def span(axis: AxisRef, mesh: Mesh) -> tuple[int, int]:
    """Where a (sub-)axis begins and ends."""
    return axis.pre, axis.pre * size_of(axis, mesh)


def order(axis: AxisRef) -> tuple[bytes, int, float]:
    """Shardy's order of axes: by name, then those that begin earlier, then the smaller."""
    return axis.name.encode(), axis.pre, axis.size or math.inf


def overlap(first: AxisRef, second: AxisRef, mesh: Mesh) -> bool:
    """Whether two (sub-)axes share devices' coordinates."""
    if first.name != second.name:
        return False
    (begin, end), (other_begin, other_end) = span(first, mesh), span(second, mesh)
    return begin < other_end and other_begin < end


def any_overlap(first: Iterable[AxisRef], second: Sequence[AxisRef], mesh: Mesh) -> bool:
    """Whether an axis of one list overlaps one of the other."""
    return any(overlap(a, b, mesh) for a in first for b in second)


def coexist(first: AxisRef, second: AxisRef, mesh: Mesh) -> bool:
    """Whether one refinement of the axis has both as (groups of) parts."""
    if first.name != second.name:
        return True
    begins, ends = zip(span(first, mesh), span(second, mesh), strict=True)
    begin, end = max(begins), min(ends)
    if begin < end:
        return end % begin == 0 and begin % min(begins) == 0 and max(ends) % end == 0
    return begin % end == 0


def before(axis: AxisRef, others: Iterable[AxisRef], mesh: Mesh) -> AxisRef | None:
    """The largest major part of an axis that overlaps none of the others; None if there is none."""
    left = axis
    for other in others:
        if not coexist(left, other, mesh):
            return None
        if overlap(left, other, mesh):
            if left.pre >= other.pre:
                return None
            left = AxisRef(axis.name, left.pre, other.pre // left.pre)
    return left


def after(axis: AxisRef, other: AxisRef, mesh: Mesh) -> AxisRef | None:
    """The largest minor part of an axis that does not overlap another; None if there is none."""
    if not coexist(axis, other, mesh):
        return None
    if not overlap(axis, other, mesh):
        return axis
    (_, end), (_, other_end) = span(axis, mesh), span(other, mesh)
    return AxisRef(axis.name, other_end, end // other_end) if other_end < end else None


def without_overlap(axes: Axes, others: Sequence[AxisRef], mesh: Mesh) -> Axes:
    """The longest prefix of a list that overlaps none of the others; its last axis may be cut."""
    for i, axis in enumerate(axes):
        left = before(axis, others, mesh)
        if left != axis:
            return axes[:i] + ((left,) if left else ())
    return axes


def is_prefix(first: AxisRef, second: AxisRef, mesh: Mesh) -> bool:
    """Whether a (sub-)axis is the major part of another, or all of it."""
    return first.name == second.name and first.pre == second.pre and size_of(second, mesh) >= size_of(first, mesh)


def extends(longer: Axes, shorter: Axes, mesh: Mesh) -> bool:
    """Whether a list continues another, strictly; the last axis of the shorter may be a major part."""
    if not shorter or longer == shorter:
        return bool(longer) and longer != shorter
    at = len(shorter) - 1
    return len(shorter) <= len(longer) and longer[:at] == shorter[:at] and is_prefix(shorter[at], longer[at], mesh)


def common_prefix(first: Axes, second: Axes, mesh: Mesh) -> Axes:
    """The longest list that both continue."""
    out: list[AxisRef] = []
    for a, b in zip(first, second, strict=False):
        if a == b:
            out.append(a)
            continue
        if a.name == b.name and a.pre == b.pre and coexist(a, b, mesh):
            out.append(min(a, b, key=lambda axis: size_of(axis, mesh)))
        break
    return tuple(out)


def joined(axes: Axes, more: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """A list and what follows it, with adjacent sub-axes merged."""
    out = list(axes)
    for axis in more:
        last = out[-1] if out else None
        if last and last.size and axis.size and last.name == axis.name and last.pre * last.size == axis.pre:
            out[-1] = sub_axis(axis.name, last.pre, last.size * axis.size, mesh)
        else:
            out.append(axis)
    return tuple(out)


def in_mesh_order(axes: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """A set of axes in the order of the mesh, with adjacent sub-axes merged."""
    names = list(mesh.axes)
    return joined((), sorted(axes, key=lambda axis: (names.index(axis.name), axis.pre)), mesh)


def difference(axes: Iterable[AxisRef], others: Sequence[AxisRef], mesh: Mesh) -> Axes:
    """What is left of a set of axes without others, which do not overlap each other."""
    ordered = sorted(others, key=order)
    out: list[AxisRef] = []
    for axis in axes:
        rest: AxisRef | None = axis
        while rest is not None:
            met = next((other for other in ordered if overlap(rest, other, mesh)), None)
            if met is None:
                out.append(rest)
                break
            left = before(rest, (met,), mesh)
            if left is not None:
                out.append(left)
            rest = after(rest, met, mesh)
    return tuple(out)
