"""Lists of mesh axes, major to minor, and their sub-axes: what overlaps, what is a prefix of what, what merges.

A sub-axis ``"x":(2)4`` of an axis of size n is the middle of n reshaped to [2, 4, n / 8]; its *end* is 8. Two sub-axes
of one axis *fit together* if the axis can be cut so that both are made of whole pieces.
"""

from __future__ import annotations

from collections.abc import Iterable

from eggshard.program.mesh import AxisRef, Mesh
from eggshard.shardy.attributes import Axes


def axis_size(axis: AxisRef, mesh: Mesh) -> int:
    """The number of devices along an axis or sub-axis."""
    return axis.size or mesh.axes[axis.name]


def total_size(axes: Iterable[AxisRef], mesh: Mesh) -> int:
    """The number of shards that axes make together."""
    size = 1
    for axis in axes:
        size *= axis.size or mesh.axes[axis.name]
    return size


def contains(axis: AxisRef, other: AxisRef) -> bool:
    """Whether the other is the axis itself or a piece of it."""
    if axis.name != other.name:
        return False
    if not axis.size or not other.size:
        return not axis.size
    return axis.pre <= other.pre and other.pre * other.size <= axis.pre * axis.size


def is_prefix(axis: AxisRef, other: AxisRef) -> bool:
    """Whether the other begins with the axis, or is it."""
    return axis.pre == other.pre and contains(other, axis)


def overlap(axis: AxisRef, other: AxisRef) -> bool:
    """Whether two axes have a piece in common."""
    if axis.name != other.name:
        return False
    if not axis.size or not other.size:
        return True
    return axis.pre < other.pre * other.size and other.pre < axis.pre * axis.size


def fit_together(axis: AxisRef, other: AxisRef) -> bool:
    """Whether one mesh refines both: the cuts of the one divide those of the other."""
    if axis.name != other.name or not axis.size or not other.size:
        return True
    starts = sorted((axis.pre, other.pre))
    ends = sorted((axis.pre * axis.size, other.pre * other.size))
    if ends[0] <= starts[1]:
        return starts[1] % ends[0] == 0
    return ends[0] % starts[1] == 0 and starts[1] % starts[0] == 0 and ends[1] % ends[0] == 0


def prefix_apart(axis: AxisRef, others: Iterable[AxisRef]) -> AxisRef | None:
    """The longest prefix of an axis that overlaps none of the others, None if there is none."""
    for other in others:
        if axis.name != other.name:
            continue
        if not fit_together(axis, other):
            return None
        if overlap(axis, other):
            if axis.pre >= other.pre:
                return None
            axis = AxisRef(axis.name, axis.pre, other.pre // axis.pre)
    return axis


def merges(axis: AxisRef, after: AxisRef) -> bool:
    """Whether two axes in this order are one sub-axis cut in two."""
    return bool(axis.name == after.name and axis.size and after.size and axis.pre * axis.size == after.pre)


def merged(axis: AxisRef, after: AxisRef, mesh: Mesh) -> AxisRef:
    """The one axis of two that `merges` says are one."""
    size = axis.size * after.size
    return AxisRef(axis.name) if size == mesh.axes[axis.name] else AxisRef(axis.name, axis.pre, size)


def append(axes: list[AxisRef], axis: AxisRef, mesh: Mesh) -> None:
    """Add an axis at the minor end of a list, merged with the last one where they are one."""
    if axes and merges(axes[-1], axis):
        axes[-1] = merged(axes[-1], axis, mesh)
    else:
        axes.append(axis)


def begins_with(axes: Axes, prefix: Axes) -> bool:
    """Whether a list of axes begins with another, whose last axis may be a prefix of the one at its place."""
    if not prefix:
        return True
    if len(prefix) > len(axes):
        return False
    last = len(prefix) - 1
    return axes[:last] == prefix[:last] and is_prefix(prefix[last], axes[last])


def in_mesh_order(axes: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """Axes that do not overlap in the mesh's order, merged where they can be."""
    order = {name: i for i, name in enumerate(mesh.axes)}
    out: list[AxisRef] = []
    for axis in sorted(axes, key=lambda a: (order[a.name], a.pre)):
        append(out, axis, mesh)
    return tuple(out)


def difference(axes: Iterable[AxisRef], others: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """The pieces of some axes that overlap none of the others."""
    taken = sorted((o for o in others), key=lambda o: (o.name, o.pre))
    out: list[AxisRef] = []
    for axis in axes:
        end = mesh.axes[axis.name] if not axis.size else axis.pre * axis.size
        at, whole = axis.pre, True
        for other in taken:
            if not overlap(axis, other):
                continue
            whole = False
            if other.pre > at:
                out.append(AxisRef(axis.name, at, other.pre // at))
            at = max(at, other.pre * axis_size(other, mesh))
        if whole:
            out.append(axis)
        elif at < end:
            out.append(AxisRef(axis.name, at, end // at))
    return tuple(out)
