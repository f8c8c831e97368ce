"""Index maps: the elements of one tensor that make up another along one dimension, as few evenly spaced index runs.

Slices, reverses, repeated elements, concatenations and updates of parts of one tensor compose to such a map. What it
is, a rotation, a periodic or mirrored extension, does not depend on how it was put together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eggshard.ops.windowing import EDGE_MODES, Run, extension
from eggshard.program.program import Op, Region

#: Runs of which a map may consist; a value whose map has more stands for itself.
_MAX_RUNS = 8
#: Ops that are followed back from a value.
_MAX_DEPTH = 40


def runs_of(indices: np.ndarray) -> list[Run] | None:
    """Indices as runs, the longest ones as long as possible; None if there are many."""
    steps = np.diff(indices)
    edges = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)] if len(steps) else [0]
    if len(edges) > _MAX_RUNS:
        return None
    pieces = list(zip(edges, edges[1:], strict=False)) or [(0, 0)]
    ends: dict[int, tuple[int, int]] = {}  # by piece, its own first and last element
    for p in sorted(range(len(pieces)), key=lambda p: pieces[p][0] - pieces[p][1]):
        first, last = pieces[p]
        ends[p] = (
            max(first, ends[p - 1][1] + 1) if p - 1 in ends else first,
            min(last, ends[p + 1][0] - 1) if p + 1 in ends else last,
        )
    own = ((int(steps[a]) if len(steps) else 1, *ends[p]) for p, (a, _) in enumerate(pieces))
    return [Run(int(indices[a]), step if b > a else 1, b - a + 1) for step, a, b in own if a <= b]


class IndexMap(NamedTuple):
    """The elements of ``root`` (a value) that make up a value along a dimension, of which they are all in others."""

    root: int
    runs: tuple[Run, ...]

    def sliced(self, start: int, limit: int, stride: int) -> IndexMap:
        """Elements start, start + stride, ... below limit of these."""
        runs, before = [], 0
        for run in self.runs:
            first = max(start, start + -(-(before - start) // stride) * stride)
            count = -(-(min(limit, before + run.length) - first) // stride)
            if count > 0:
                runs.append(Run(run.start + (first - before) * run.step, run.step * stride, count))
            before += run.length
        return IndexMap(self.root, tuple(runs))

    def reversed(self) -> IndexMap:
        """Return the map that yields the elements in reverse order."""
        back = [Run(r.start + (r.length - 1) * r.step, -r.step if r.length > 1 else 1, r.length) for r in self.runs]
        return IndexMap(self.root, tuple(back[::-1]))


def joined(maps: Sequence[IndexMap]) -> IndexMap:
    """The elements of several maps of one root, one map after the other."""
    runs: list[Run] = []
    for run in (r for m in maps for r in m.runs):
        last = runs[-1] if runs else None
        ascending = last is not None and all(r.step == 1 or r.length == 1 for r in (last, run))
        if last is not None and ascending and run.start == last.start + last.length:
            runs[-1] = Run(last.start, 1, last.length + run.length)
        else:
            runs.append(run)
    return IndexMap(maps[0].root, tuple(runs))


class IndexMaps:
    """The index maps of a region's values, found when asked for."""

    def __init__(self, region: Region):
        self._types = region.types
        self._definitions = {v: op for op in region.ops for v in op.results}
        self._found: dict[tuple[int, int], IndexMap] = {}

    def of(self, value: int, dim: int, depth: int = 0) -> IndexMap:
        """The map of a value along one of its dimensions, from as far back as possible."""
        key = (value, dim)
        if key not in self._found:
            op = self._definitions.get(value)
            reader = _READERS.get(op.name) if op is not None and depth < _MAX_DEPTH else None
            found = None if reader is None or op is None else reader(self, op, dim, depth + 1)
            if found is None or len(found.runs) > _MAX_RUNS:
                found = IndexMap(value, (Run(0, 1, self._types[value].shape[dim]),))
            self._found[key] = found
        return self._found[key]

    def _slice(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        names = ("start_indices", "limit_indices", "strides")
        bounds = list(zip(*(op.attributes[name] for name in names), strict=True))
        shape = self._types[op.operands[0]].shape
        if any(b != (0, n, 1) for d, (b, n) in enumerate(zip(bounds, shape, strict=True)) if d != dim):
            return None
        return self.of(op.operands[0], dim, depth).sliced(*bounds[dim])

    def _reverse(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        return self.of(op.operands[0], dim, depth).reversed() if op.attributes["dimensions"] == (dim,) else None

    def _concatenate(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        if op.attributes["dimension"] != dim:
            return None
        maps = [self.of(v, dim, depth) for v in op.operands]
        return joined(maps) if all(m.root == maps[0].root for m in maps) else None

    def _update(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        """An update of all that a dimension has at some indices, by elements of the tensor itself."""
        x, update = op.operands
        shape, box, start = self._types[x].shape, self._types[update].shape, op.attributes["start_indices"][dim]
        if any(k != n for d, (k, n) in enumerate(zip(box, shape, strict=True)) if d != dim):
            return None
        old, new = self.of(x, dim, depth), self.of(update, dim, depth)
        parts = [old.sliced(0, start, 1), new, old.sliced(start + box[dim], shape[dim], 1)]
        return joined([part for part in parts if part.runs]) if old.root == new.root else None

    def _broadcast(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        x, shape = op.operands[0], self._types[op.results[0]].shape
        return self._same(op, shape, dim, depth) or self._repeated(x, op, shape, dim, depth)

    def _reshape(self, op: Op, dim: int, depth: int) -> IndexMap | None:
        """What was dropped and added again; or an element repeated by a broadcast to a new dimension, merged with the
        one of size 1, as JAX does it."""
        inner, shape = self._definitions.get(op.operands[0]), self._types[op.results[0]].shape
        same = self._same(op, shape, dim, depth)
        if same is not None or inner is None or inner.name != "broadcast_in_dim":
            return same
        return self._repeated(inner.operands[0], inner, shape, dim, depth)

    def _same(self, op: Op | None, shape: tuple[int, ...], dim: int, depth: int) -> IndexMap | None:
        """The map of the value from which ops that keep the elements and their order make one of the same shape."""
        while op is not None and op.name in ("reshape", "broadcast_in_dim"):
            x = op.operands[0]
            dims = op.attributes.get("broadcast_dimensions", ())
            if self._types[x].elements != self._types[op.results[0]].elements or tuple(sorted(dims)) != dims:
                return None
            if self._types[x].shape == shape:
                return self.of(x, dim, depth)
            op = self._definitions.get(x)
        return None

    def _repeated(self, x: int, broadcast: Op, shape: tuple[int, ...], dim: int, depth: int) -> IndexMap | None:
        source, spread = self._types[x].shape, self._types[broadcast.results[0]].shape
        if len(source) != len(shape) or source[dim] != 1 or not math.prod(shape):
            return None
        for d, (n, m, at) in enumerate(zip(source, shape, broadcast.attributes["broadcast_dimensions"], strict=True)):
            # A dimension other than this one must keep its size, and its place among the elements.
            if d != dim and (n != m or (n > 1 and math.prod(spread[:at]) != math.prod(shape[:d]))):
                return None
        found = self.of(x, dim, depth)
        return IndexMap(found.root, (Run(found.runs[0].start, 0, shape[dim]),))


_Reader = Callable[[IndexMaps, Op, int, int], "IndexMap | None"]
_READERS: dict[str, _Reader] = {
    "slice": IndexMaps._slice,
    "reverse": IndexMaps._reverse,
    "concatenate": IndexMaps._concatenate,
    "update_slice": IndexMaps._update,
    "broadcast_in_dim": IndexMaps._broadcast,
    "reshape": IndexMaps._reshape,
}


class Extended(NamedTuple):
    """An op, with attributes besides its dimension, on the slice [start, limit) of a root."""

    start: int
    limit: int
    op: str
    attributes: dict[str, Any]


@lru_cache(maxsize=4096)
def recognise(runs: tuple[Run, ...]) -> list[Extended] | None:
    """The ops that make runs of indices, each applied to the one before; the first one to a slice of the root.

    An op without a name is the slice alone. None where the runs are no rotation or extension of a slice.
    """
    core = max(range(len(runs)), key=lambda i: runs[i].length if runs[i].step == 1 or runs[i].length == 1 else 0)
    if runs[core].step != 1 and runs[core].length > 1:
        return None
    begin, end = runs[core].start, runs[core].start + runs[core].length
    if len(runs) == 1:
        return [Extended(begin, end, "", {})]
    if len(runs) == 2 and all(r.step == 1 or r.length == 1 for r in runs):
        (a, _, k), (c, _, m) = runs
        if c + m == a and k > 0 and m > 0:
            return [Extended(c, a + k, "rotate", {"amount": m})]
    before = np.concatenate([np.zeros(0, np.int64), *(r.indices for r in runs[:core])])
    after = np.concatenate([np.zeros(0, np.int64), *(r.indices for r in runs[core + 1 :])])
    lhs, rhs, size = len(before), len(after), end - begin
    if 2 * max(lhs, rhs) > size:
        return None  # more copies than halo
    if _equal(before, np.arange(end - lhs, end)) and _equal(after, np.arange(begin, begin + rhs)):
        return [Extended(begin, end, "wrap", {"lhs": lhs, "rhs": rhs})]
    ends = {mode: extension(mode, size, lhs, rhs) for mode in EDGE_MODES}
    low = [mode for mode, (run, _) in ends.items() if _equal(before, begin + run.indices)]
    high = [mode for mode, (_, run) in ends.items() if _equal(after, begin + run.indices)]
    both = [mode for mode in low if mode in high]
    if both:
        return [Extended(begin, end, "extend", {"lhs": lhs, "rhs": rhs, "mode": both[0]})]
    if low and high:
        first = Extended(begin, end, "extend", {"lhs": lhs, "rhs": 0, "mode": low[0]})
        return [first, Extended(begin, end, "extend", {"lhs": 0, "rhs": rhs, "mode": high[0]})]
    return None


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b))
