"""Mesh axes, their sub-axes, and lists of them from major to minor, with overlap, prefix and merge relations.

A sub-axis ``"x":(2)4`` of an axis of size n is the middle of n reshaped to ``[2, 4, n / 8]``. It *begins* at 2 and
*ends* at 8; a whole axis begins at 1 and ends at n. The relations are Shardy's of axis references. In normal form
adjacent sub-axes of a list are merged, and a whole axis is written plain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eggshard.errors import ShardingError
from eggshard.program.codec import String

#: Sizes of a mesh's axes, by name.
Sizes = Mapping[str, int]


class AxisRef(NamedTuple):
    """A mesh axis, or the sub-axis got by reshaping the axis to ``[pre, size, rest]`` and taking the middle.

    ``size == 0`` means the whole axis.
    """

    name: str
    pre: int = 1
    size: int = 0

    @classmethod
    def between(cls, name: str, begin: int, end: int, sizes: Sizes) -> AxisRef:
        """The (sub-)axis that begins and ends there."""
        return cls(name) if (begin, end) == (1, sizes[name]) else cls(name, begin, end // begin)

    def devices(self, sizes: Sizes) -> int:
        """The number of devices along it."""
        return self.size or sizes[self.name]

    def span(self, sizes: Sizes) -> tuple[int, int]:
        """Return the (sub-)axis's begin and end, as defined in the module's docstring."""
        return self.pre, self.pre * self.devices(sizes)

    def contains(self, other: AxisRef) -> bool:
        """Whether the other is this axis or a part of it."""
        if self.name != other.name:
            return False
        if not self.size or not other.size:
            return not self.size
        return self.pre <= other.pre and other.pre * other.size <= self.pre * self.size

    def is_prefix_of(self, other: AxisRef) -> bool:
        """Whether the other is this axis or begins with it."""
        return self.pre == other.pre and other.contains(self)

    def overlaps(self, other: AxisRef) -> bool:
        """Whether both cover a common range, be it that no refinement of the mesh has it as an axis."""
        if self.name != other.name:
            return False
        if not self.size or not other.size:
            return True
        return self.pre < other.pre * other.size and other.pre < self.pre * self.size

    def can_coexist(self, other: AxisRef) -> bool:
        """Whether one refinement of the mesh has both made of its axes: of what begins and ends, each divides the next.
        """
        if self.name != other.name or not self.size or not other.size:
            return True
        low, high = sorted((self.pre, other.pre))
        low_end, high_end = sorted((self.pre * self.size, other.pre * other.size))
        if low_end <= high:
            return high % low_end == 0
        return low_end % high == 0 and high % low == 0 and high_end % low_end == 0

    def overlap(self, other: AxisRef) -> AxisRef | None:
        """The largest part of both; None where they are apart or cannot coexist."""
        if not self.overlaps(other) or not self.can_coexist(other):
            return None
        if not self.size or not other.size:
            return self if self.size else other
        begin, end = max(self.pre, other.pre), min(self.pre * self.size, other.pre * other.size)
        return AxisRef(self.name, begin, end // begin)

    def prefix_without_overlap(self, others: Iterable[AxisRef]) -> AxisRef | None:
        """The longest prefix that overlaps none of the others; None if there is none, or one cannot coexist with it."""
        axis = self
        for other in others:
            if axis.name != other.name:
                continue
            if not axis.can_coexist(other):
                return None
            if axis.overlaps(other):
                if axis.pre >= other.pre:
                    return None
                axis = AxisRef(axis.name, axis.pre, other.pre // axis.pre)
        return axis

    def suffix_without_overlap(self, other: AxisRef, sizes: Sizes) -> AxisRef | None:
        """The longest suffix that does not overlap another; None if there is none, or they cannot coexist."""
        if not self.can_coexist(other):
            return None
        if not self.overlaps(other):
            return self
        end, other_end = self.span(sizes)[1], other.span(sizes)[1]
        return AxisRef(self.name, other_end, end // other_end) if other_end < end else None

    def can_merge(self, minor: AxisRef) -> bool:
        """Whether it and another behind it are one sub-axis cut in two."""
        return bool(self.name == minor.name and self.size and minor.size and self.pre * self.size == minor.pre)

    def merge(self, minor: AxisRef, sizes: Sizes) -> AxisRef:
        """The one axis of two that `can_merge`."""
        return AxisRef.between(self.name, self.pre, minor.pre * minor.size, sizes)

    def split(self, count: int, sizes: Sizes) -> tuple[AxisRef, AxisRef]:
        """The major part of so many devices, and the rest; ``count`` is a proper divisor of theirs."""
        begin, end = self.span(sizes)
        return AxisRef(self.name, begin, count), AxisRef(self.name, begin * count, end // (begin * count))

    def cut(self, points: Iterable[int], sizes: Sizes) -> Axes:
        """Split the (sub-)axis at those of ``points`` that are strictly inside its span."""
        begin, end = self.span(sizes)
        edges = [begin, *sorted({p for p in points if begin < p < end}), end]
        return tuple(AxisRef.between(self.name, a, b, sizes) for a, b in zip(edges, edges[1:], strict=False))

    def __str__(self) -> str:
        """``"x"`` or ``"x":(1)2``, with MLIR's escapes."""
        return String().encode(self.name) + (f":({self.pre}){self.size}" if self.size else "")


#: Axes, major to minor, or a set of them in the mesh's order.
Axes = tuple[AxisRef, ...]


def axis_ref(name: str) -> AxisRef:
    """The (sub-)axis that an axis name of a refined mesh spells: ``x:(2)4`` or plain ``x``."""
    base, colon, tail = name.partition(":(")
    if not colon:
        return AxisRef(name)
    pre, _, size = tail.partition(")")
    return AxisRef(base, int(pre), int(size))


def shard_count(axes: Iterable[AxisRef], sizes: Sizes) -> int:
    """The number of shards that axes make together."""
    return math.prod(axis.size or sizes[axis.name] for axis in axes)


def any_overlap(axes: Iterable[AxisRef], others: Sequence[AxisRef]) -> bool:
    """Whether an axis of one list overlaps one of the other."""
    return any(a.overlaps(b) for a in axes for b in others)


def append(axes: list[AxisRef], axis: AxisRef, sizes: Sizes) -> None:
    """Add an axis at the minor end of a list, merged with the last one where they are one."""
    if axes and axes[-1].can_merge(axis):
        axes[-1] = axes[-1].merge(axis, sizes)
    else:
        axes.append(axis)


def merged(axes: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """A list in normal form."""
    out: list[AxisRef] = []
    for axis in axes:
        append(out, AxisRef(axis.name) if axis[1:] == (1, sizes.get(axis.name)) else axis, sizes)
    return tuple(out)


def in_mesh_order(axes: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """A set of axes that do not overlap, in normal form; axes that the mesh does not have come last."""
    order = {name: i for i, name in enumerate(sizes)}
    return merged(sorted(axes, key=lambda a: (order.get(a.name, len(order)), a.pre)), sizes)


def begins_with(axes: Axes, prefix: Axes) -> bool:
    """Whether a list of axes begins with another, whose last axis may be a prefix of the one at its place."""
    if not prefix:
        return True
    if len(prefix) > len(axes):
        return False
    last = len(prefix) - 1
    return axes[:last] == prefix[:last] and prefix[last].is_prefix_of(axes[last])


def without_suffix(axes: Sequence[AxisRef], suffix: Sequence[AxisRef], sizes: Sizes) -> Axes | None:
    """The axes without some at their end, which may be minor parts of theirs; None if they do not end in them."""
    kept = list(axes)
    for axis in reversed(suffix):
        if not kept:
            return None
        last = kept.pop()
        if not last.contains(axis) or not last.can_coexist(axis) or last.span(sizes)[1] != axis.span(sizes)[1]:
            return None
        if last.pre < axis.pre:
            kept.append(AxisRef(last.name, last.pre, axis.pre // last.pre))
    return tuple(kept)


def difference(axes: Iterable[AxisRef], others: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """The parts of some axes that overlap none of the others; ShardingError for axes that cannot coexist."""
    taken = sorted(others, key=lambda other: (other.name, other.pre))
    out: list[AxisRef] = []
    for axis in axes:
        left: AxisRef | None = axis
        for other in taken:
            if left is None or not left.overlaps(other):
                continue
            if not left.can_coexist(other):
                raise ShardingError(f"axes {left} and {other} cannot be parts of one refinement of the mesh")
            if left.pre < other.pre:
                out.append(AxisRef(left.name, left.pre, other.pre // left.pre))
            left = left.suffix_without_overlap(other, sizes)
        if left is not None:
            out.append(left)
    return tuple(out)


def union(axes: Iterable[AxisRef], more: Iterable[AxisRef], sizes: Sizes) -> Axes:
    """The set of axes that covers what two sets cover; ShardingError for axes that cannot coexist."""
    axes = tuple(axes)
    return in_mesh_order((*axes, *difference(more, axes, sizes)), sizes)


def split_at(axes: Axes, count: int, sizes: Sizes) -> tuple[Axes, Axes] | None:
    """The major axes of a list that make ``count`` shards, and the rest; an axis is split where that is needed.

    None where no axes make as many.
    """
    for i, axis in enumerate(axes):
        if count == 1:
            return axes[:i], axes[i:]
        size = axis.devices(sizes)
        if count % size == 0:
            count //= size
        elif size % count == 0:
            major, minor = axis.split(count, sizes)
            return (*axes[:i], major), (minor, *axes[i + 1 :])
        else:
            return None
    return (axes, ()) if count == 1 else None
