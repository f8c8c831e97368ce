"""Lists of axes, major to minor, beside each other: what they share, and what is left of one without the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eggshard.program.mesh import AxisRef, Mesh
from eggshard.shardy.attributes import Axes
from eggshard.shardy.axes import append, axis_size, begins_with, fit_together, is_prefix, overlap, prefix_apart


def order(axis: AxisRef) -> tuple[bytes, int, float]:
    """Shardy's order of axes: by name, then those that begin earlier, then the smaller."""
    return axis.name.encode(), axis.pre, axis.size or math.inf


def any_overlap(first: Iterable[AxisRef], second: Sequence[AxisRef]) -> bool:
    """Whether an axis of one list overlaps one of the other."""
    return any(overlap(a, b) for a in first for b in second)


def suffix_apart(axis: AxisRef, other: AxisRef, mesh: Mesh) -> AxisRef | None:
    """The longest suffix of an axis that does not overlap another, None if there is none."""
    if not fit_together(axis, other):
        return None
    if not overlap(axis, other):
        return axis
    end, other_end = (a.pre * axis_size(a, mesh) for a in (axis, other))
    return AxisRef(axis.name, other_end, end // other_end) if other_end < end else None


def truncated(axes: Axes, others: Sequence[AxisRef]) -> Axes:
    """The longest prefix of a list that overlaps none of the others; its last axis may be cut."""
    for i, axis in enumerate(axes):
        left = prefix_apart(axis, others)
        if left != axis:
            return axes[:i] + ((left,) if left else ())
    return axes


def extends(longer: Axes, shorter: Axes) -> bool:
    """Whether a list continues another, strictly; the last axis of the shorter may be a prefix of one."""
    return longer != shorter and begins_with(longer, shorter)


def continuation(longer: Axes, shorter: Axes, mesh: Mesh) -> Axes | None:
    """The axes with which a list continues another; None if it does not."""
    if not begins_with(longer, shorter):
        return None
    at = len(shorter)
    if not shorter or longer[at - 1] == shorter[-1]:
        return longer[at:]
    rest = suffix_apart(longer[at - 1], shorter[-1], mesh)
    return ((rest,) if rest else ()) + longer[at:]


def common_prefix(first: Axes, second: Axes) -> Axes:
    """The longest list that both begin with."""
    out: list[AxisRef] = []
    for a, b in zip(first, second, strict=False):
        if a == b:
            out.append(a)
            continue
        if fit_together(a, b):
            out += [x for x, y in ((a, b), (b, a)) if is_prefix(x, y)]
        break
    return tuple(out)


def joined(axes: Iterable[AxisRef], more: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """A list and what follows it, with adjacent sub-axes merged."""
    out = list(axes)
    for axis in more:
        append(out, axis, mesh)
    return tuple(out)
