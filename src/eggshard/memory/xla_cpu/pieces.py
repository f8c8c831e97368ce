"""Simplification of slices of slices, pads and concatenations: each is cut from the operands that it touches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.program.types import TensorType

#: Number of parts above which, and length of a minor dimension from which, a concatenation is a kernel of its own.
_PARTS, _LONG = 8, 128

#: A node and the type of what it stands for.
Typed = tuple[int, TensorType]


class Pieces:
    """The slices, paddings and concatenations of one graph; equal ones are one node."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._slices: dict[int, tuple[Typed, tuple[int, ...]]] = {}
        self._pads: dict[int, tuple[Typed, tuple[int, ...]]] = {}
        self._joins: dict[int, tuple[int, tuple[Typed, ...]]] = {}
        self._known: dict[tuple[object, ...], int] = {}

    def join(self, dim: int, parts: Sequence[Typed]) -> int:
        """A concatenation. Of many parts, or along a long minor dimension, it is a call: parts are written first."""
        if len(parts) == 1:
            return parts[0][0]
        key = ("join", dim, *(n for n, _ in parts))
        if key not in self._known:
            shape, length = parts[0][1].shape, sum(t.shape[dim] for _, t in parts)
            minor = len(shape) > 1 and math.prod(shape[dim + 1 :]) == 1 and length >= _LONG
            size = sum(t.bytes for _, t in parts)
            kind = Kind.CALL if minor or len(parts) > _PARTS else Kind.JOIN
            self._known[key] = n = self.graph.add(Node(kind, tuple(n for n, _ in parts), size, "concatenate"))
            self._joins[n] = dim, tuple(parts)
        return self._known[key]

    def pad(self, operands: tuple[int, ...], inner: TensorType, size: int, low: Sequence[int], plain: bool) -> int:
        """Padding of ``inner``; ``plain``: there is none between its elements, and nothing of it is cut off."""
        n = self.graph.add(Node(Kind.LOOP, operands, size, "pad"))
        if plain:
            self._pads[n] = (operands[0], inner), tuple(low)
        return n

    def cut(self, n: int, type_: TensorType, start: Sequence[int], stop: Sequence[int], stride: Sequence[int]) -> int:
        """A slice; the node itself where it is all of it."""
        while True:
            if n in self._slices:
                (n, type_), first = self._slices[n]
                start, stop = _moved(start, first), _moved(stop, first)
            elif n in self._pads and _inside(self._pads[n], start, stop):
                (n, type_), low = self._pads[n]
                back = [-a for a in low]
                start, stop = _moved(start, back), _moved(stop, back)
            elif n in self._joins and len(found := self._touched(n, start, stop)[1]) < len(self._joins[n][1]):
                dim = self._joins[n][0]
                before = self._touched(n, start, stop)[0]
                n = self.join(dim, found)
                shape = [m if d != dim else sum(t.shape[dim] for _, t in found) for d, m in enumerate(type_.shape)]
                type_ = type_.with_shape(tuple(shape))
                back = [-before if d == dim else 0 for d in range(type_.rank)]
                start, stop = _moved(start, back), _moved(stop, back)
            else:
                break
        shape = [-(-(b - a) // s) for a, b, s in zip(start, stop, stride, strict=True)]
        if tuple(shape) == type_.shape:
            return n
        key = ("slice", n, *start, *stop, *stride)
        if key not in self._known:
            size = type_.with_shape(tuple(shape)).bytes
            self._known[key] = made = self.graph.add(Node(Kind.LOOP, (n,), size, "slice"))
            if all(s == 1 for s in stride):
                self._slices[made] = (n, type_), tuple(start)
        return self._known[key]

    def _touched(self, n: int, start: Sequence[int], stop: Sequence[int]) -> tuple[int, list[Typed]]:
        """Indices of a concatenation before the parts that a slice touches, and these."""
        dim, parts = self._joins[n]
        at, before, touched = 0, 0, []
        for part, type_ in parts:
            after = at + type_.shape[dim]
            if at < stop[dim] and after > start[dim]:
                touched.append((part, type_))
            elif not touched:
                before = after
            at = after
        return (before, touched) if touched else (0, list(parts))


def _moved(indices: Sequence[int], by: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(indices, by, strict=True)]


def _inside(pad: tuple[Typed, tuple[int, ...]], start: Sequence[int], stop: Sequence[int]) -> bool:
    """Whether a slice of padding touches nothing but what was padded."""
    (_, type_), low = pad
    return all(a >= k and b <= k + n for a, b, k, n in zip(start, stop, low, type_.shape, strict=True))
