"""Axis lists, major to minor: what they share, what is left of one without the other, and devices' positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from eggshard.program.axes import Axes, AxisRef, append, begins_with
from eggshard.program.mesh import Mesh


def order(axis: AxisRef) -> tuple[bytes, int, float]:
    """Shardy's order of axes: by name, then those that begin earlier, then the smaller."""
    return axis.name.encode(), axis.pre, axis.size or math.inf


def truncated(axes: Axes, others: Sequence[AxisRef]) -> Axes:
    """The longest prefix of a list that overlaps none of the others; its last axis may be cut."""
    for i, axis in enumerate(axes):
        left = axis.prefix_without_overlap(others)
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
    rest = longer[at - 1].suffix_without_overlap(shorter[-1], mesh.axes)
    return ((rest,) if rest else ()) + longer[at:]


def common_prefix(first: Axes, second: Axes) -> Axes:
    """The longest list that both begin with."""
    out: list[AxisRef] = []
    for a, b in zip(first, second, strict=False):
        if a == b:
            out.append(a)
            continue
        if a.can_coexist(b):
            out += [x for x, y in ((a, b), (b, a)) if x.is_prefix_of(y)]
        break
    return tuple(out)


def joined(axes: Iterable[AxisRef], more: Iterable[AxisRef], mesh: Mesh) -> Axes:
    """A list and what follows it, with adjacent sub-axes merged."""
    out = list(axes)
    for axis in more:
        append(out, axis, mesh.axes)
    return tuple(out)


@lru_cache(maxsize=65536)
def positions_along(mesh: Mesh, axes: Axes) -> np.ndarray:
    """``[devices]``: the position of every logical device along axes, the first major."""
    out = np.zeros(mesh.size, np.int64)
    for axis in axes:
        begin, end = axis.span(mesh.axes)
        out = out * (end // begin) + mesh.coordinates[axis.name] // (mesh.axes[axis.name] // end) % (end // begin)
    return out
