"""Common lines of operands: how dimensions of local tensors lie beside one another in global ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.frontends.globalization.local_values import Cut, Dim, Unreadable, layout


class Line(NamedTuple):
    """A dimension of a global tensor: position ``stride * c + j`` is element j of the device at position c along the
    cut's axes. devices: how many are along them. looped: positions are taken modulo the size."""

    cut: Cut
    devices: int
    size: int
    looped: bool = False

    @classmethod
    def of(cls, cut: Cut, devices: int, held: int) -> Line:
        """The line of tiles of which each device holds ``held`` elements, from its own tile's first."""
        return cls(cut, devices, (devices - 1) * cut.stride + max(held, cut.stride))

    def dim(self, source: int, held: int, shift: int = 0) -> Dim:
        """What devices hold of it, from ``shift`` elements after their tile's first."""
        index = self.cut.stride * np.arange(self.devices)[:, None] + np.arange(held) + shift
        return Dim(source, index % self.size if self.looped else index, self.cut)


class Common(NamedTuple):
    """The line of a dimension of several operands. at: per operand the index in its root of each position, None where
    it is the same everywhere. turns: on a looped line, by how many positions each operand is turned."""

    line: Line
    at: tuple[np.ndarray | None, ...]
    turns: tuple[int, ...] = ()

    @property
    def anchor(self) -> int:
        """The first turn; lines that differ in it alone are of the same tensors turned together."""
        return self.turns[0] if self.turns else 0

    @property
    def key(self) -> object:
        """What two computations share whose results are equal but for a turn."""
        if self.line.looped:
            return self.line, tuple((t - self.anchor) % self.line.size for t in self.turns), self._uniform
        return self.line, tuple(a if a is None else a.tobytes() for a in self.at)

    @property
    def _uniform(self) -> tuple[bool, ...]:
        return tuple(a is None for a in self.at)

    def middle(self, held: int) -> int:
        """The turn of the result: none where devices hold whole tiles, else that between the operands', so that what is
        computed strip by strip, or with halos, is the tensor that whole tiles are of."""
        if not self.line.looped or held == self.line.cut.stride:
            return 0
        signed = [(t + self.line.size // 2) % self.line.size - self.line.size // 2 for t in self.turns]
        return (min(signed) + max(signed)) // 2

    def turned(self, by: int) -> tuple[np.ndarray | None, ...]:
        """The operands' indices on a line that is turned back."""
        return tuple(a if a is None else np.roll(a, by) for a in self.at) if by else self.at


def common(dims: Sequence[Dim], lengths: Sequence[int], count: Callable[[tuple[str, ...]], int]) -> Common:
    """Lay out one dimension of several operands. lengths: of their roots along it. count: devices along axes."""
    cuts = {d.cut for d in dims if d.axes}
    if len(cuts) > 1:
        raise Unreadable(f"its operands are cut differently, into tiles of {sorted(c.stride for c in cuts)} elements")
    line = Line.of(cut := next(iter(cuts), Cut()), count(cut.axes), dims[0].size)
    at = [None if d.source is None else layout(d, cut, line.devices, n) for d, n in zip(dims, lengths, strict=True)]
    if not cut.axes:
        return Common(line, tuple(at))
    period = cut.stride * line.devices
    if all(np.array_equal(a[period:], a[: line.size - period]) for a in at if a is not None):
        line, at = line._replace(size=period), [a if a is None else a[:period] for a in at]
    turns = []
    for a, n in zip(at, lengths, strict=True):
        if a is None:
            continue
        if line.size != period or n != period or not np.array_equal(a, (np.arange(period) + a[0]) % period):
            return Common(line, tuple(at))
        turns.append(int(a[0]))
    return Common(line._replace(looped=True), tuple(at), tuple(turns))
