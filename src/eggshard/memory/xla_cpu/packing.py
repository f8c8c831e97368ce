"""Packing of a program's buffers into memory, as XLA does it on CPUs.

All buffers and their lifetimes are known beforehand. An output's memory is used before the output is made; the other
buffers go into one block in a fixed order, each where it fits most tightly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

#: Alignment of buffers in XLA on CPUs, in bytes.
ALIGNED = 64


@dataclass(eq=False)
class Buffer:
    """Bytes that are in use from one kernel to another, both by number and included.

    changes: the kernels that write their results over what was there.
    """

    size: int
    start: int
    end: int
    changes: tuple[int, ...] = ()
    offset: int = 0

    def later(self, time: int) -> Buffer:
        """Return the buffer with its lifetime shifted by ``time`` kernels."""
        return Buffer(self.size, self.start + time, self.end + time, tuple(c + time for c in self.changes))


@dataclass
class Lives:
    """The buffers of a block, those that its outputs have besides, and how many kernels it runs one after the other."""

    buffers: list[Buffer]
    kept: list[Buffer]
    length: int


def in_turn(found: Iterable[Lives]) -> Lives:
    """Blocks that run one after the other, or of which only one runs: what they need inside."""
    buffers: list[Buffer] = []
    time = 0
    for lives in found:
        buffers += (b.later(time) for b in lives.buffers)
        time += lives.length
    return Lives(buffers, [], time)


def place(buffers: Sequence[Buffer], rooms: Sequence[Buffer] = ()) -> int:
    """The size of the memory that holds all buffers, but for those that fit into ``rooms`` while these are not in use.

    The better of two orders: the largest first, of these the longest-lived; or the longest-lived first.
    """
    within = _within(buffers, rooms)
    left = [b for b in buffers if b not in within]
    lasting = _lasting(left)
    return min(
        _packed(sorted(left, key=lambda b: (-b.size, -lasting[b][0]))),
        _packed(sorted(left, key=lambda b: (-lasting[b][1], -b.size))),
    )


def _within(buffers: Sequence[Buffer], rooms: Sequence[Buffer]) -> set[Buffer]:
    """The buffers that lie in rooms: from the largest on, each in the largest room that is not in use meanwhile."""
    largest = sorted(rooms, key=lambda b: -b.size)
    sizes = np.array([-room.size for room in largest], np.int64)
    in_use = np.zeros((len(rooms), 1 + max((b.end for b in (*buffers, *rooms)), default=0)), np.bool_)
    for row, room in zip(in_use, largest, strict=True):
        row[room.start : room.end + 1] = True
    out = set()
    for b in sorted(buffers, key=lambda b: -b.size):
        meanwhile = in_use[: np.searchsorted(sizes, -b.size, "right"), b.start : b.end + 1]
        free = np.flatnonzero(~meanwhile.any(axis=1))
        if len(free):
            meanwhile[free[0]] = True
            out.add(b)
    return out


def _lasting(buffers: Sequence[Buffer]) -> dict[Buffer, tuple[int, int]]:
    """How long each buffer is in use: for its first value, and in all. Counted in beginnings and ends of values."""
    values = sorted((
        (start, end, number, k)
        for number, b in enumerate(buffers) for k, (start, end) in enumerate(pairwise((b.start, *b.changes, b.end)))
    ))
    begins: dict[int, list[tuple[int, int]]] = {}
    ends: dict[int, list[tuple[int, int]]] = {}
    for start, end, number, k in values:
        begins.setdefault(start, []).append((number, k))
        if k == len(buffers[number].changes):
            ends.setdefault(end, []).append((number, k))
    clock = 0
    begun: dict[tuple[int, int], int] = {}
    ended: dict[tuple[int, int], int] = {}
    for time in sorted(begins.keys() | ends.keys()):
        for number, k in begins.get(time, ()):
            if k:
                ended[number, k - 1] = clock
                clock += 1
            begun[number, k] = clock
            clock += 1
        for value in ends.get(time, ()):
            ended[value] = clock
            clock += 1
    return {
        b: (ended[number, 0] - begun[number, 0], ended[number, len(b.changes)] - begun[number, 0])
        for number, b in enumerate(buffers)
    }


def _packed(buffers: Sequence[Buffer]) -> int:
    """The size of the memory in which each buffer, in this order, goes where it fits most tightly."""
    #: Of the buffers placed, from the lowest on: where they begin and end, and when they are in use.
    placed = np.zeros((4, len(buffers)), np.int64)
    for count, b in enumerate(buffers):
        low, high, start, end = placed[:, :count]
        beside = np.flatnonzero((start <= b.end) & (b.start <= end))
        # Each gap lies between all that is below a buffer, aligned, and the buffer.
        above = np.maximum.accumulate(np.append(0, -(-high[beside] // ALIGNED) * ALIGNED))
        gaps = low[beside] - above[:-1]
        gaps[gaps < b.size] = np.iinfo(np.int64).max
        tight = int(gaps.argmin()) if len(gaps) else 0
        fits = len(gaps) > 0 and gaps[tight] < np.iinfo(np.int64).max
        b.offset = int(above[tight if fits else -1])
        at = int(np.searchsorted(low, b.offset, "right"))
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = b.offset, b.offset + b.size, b.start, b.end
    return int(placed[1].max(initial=0))
