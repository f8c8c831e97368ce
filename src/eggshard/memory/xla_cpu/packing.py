"""Packing of a program's buffers into memory, as XLA does it on CPUs.

All buffers and their lifetimes are known beforehand. An output's memory is used before the output is made; the other
buffers go into one block in a fixed order, each where it fits most tightly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

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
    tenants = [_Room(room.size, [room.start], [room.end]) for room in sorted(rooms, key=lambda b: -b.size)]
    within = {b for b in sorted(buffers, key=lambda b: -b.size) if any(room.takes(b) for room in tenants)}
    left = [b for b in buffers if b not in within]
    lasting = _lasting(left)
    return min(
        _packed(sorted(left, key=lambda b: (-b.size, -lasting[b][0]))),
        _packed(sorted(left, key=lambda b: (-lasting[b][1], -b.size))),
    )


class _Room(NamedTuple):
    """An output's memory: when what is in it is in use, by beginnings and ends, both in order."""

    size: int
    starts: list[int]
    ends: list[int]

    def takes(self, b: Buffer) -> bool:
        """Put a buffer into the room, if it fits and nothing is there meanwhile."""
        at = bisect_right(self.starts, b.end)
        if b.size > self.size or at and self.ends[at - 1] >= b.start:
            return False
        self.starts.insert(at, b.start)
        self.ends.insert(at, b.end)
        return True


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
