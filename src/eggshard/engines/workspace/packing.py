"""Packing of buffers with known sizes and lifetimes into few bytes.

The problem (dynamic storage allocation) is NP-hard. The packings tried are first fits in several orders, then in orders
near the best one. No packing needs fewer bytes than are live at once, so one that needs no more is optimal.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

#: The least and the most buffer placements spent on orders near the best.
_EFFORT = (2000, 20000)
#: Orders that are tried per buffer, within these bounds.
_TRIES = 40


class Buffer(NamedTuple):
    """A number of bytes in use from instant ``first`` to ``last`` (both included)."""

    bytes: int
    first: int
    last: int


def max_live(buffers: Sequence[Buffer]) -> int:
    """The most bytes that are live at one instant."""
    change: dict[int, int] = {}
    for size, first, last in buffers:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    most = live = 0
    for instant in sorted(change):
        live += change[instant]
        most = max(most, live)
    return most


def pack(buffers: Sequence[Buffer]) -> list[int]:
    """The address of each buffer: those live at the same time are disjoint. Deterministic.

    Addresses are sums of sizes: where these are multiples of an alignment, so are those.
    """
    bound = max_live(buffers)
    best: list[int] = []
    order: list[int] = []
    total = -1
    for key in _KEYS:
        tried = sorted(range(len(buffers)), key=lambda i: key(buffers[i]))
        addresses = _first_fit(buffers, tried)
        size = extent(buffers, addresses)
        if total < 0 or size < total:
            best, order, total = addresses, tried, size
        if total == bound:
            return best
    return _improved(buffers, order, best, bound)


def extent(buffers: Sequence[Buffer], addresses: Sequence[int]) -> int:
    """Bytes from 0 to the end of the highest buffer."""
    return max((a + b.bytes for a, b in zip(addresses, buffers, strict=True)), default=0)


#: Orders that first fits do well in: by size, by length of life, by their product, and by time from either end.
_KEYS: tuple[Callable[[Buffer], tuple[int, int]], ...] = (
    lambda b: (-b.bytes, b.first),
    lambda b: (b.first - b.last, -b.bytes),
    lambda b: (-b.bytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.last),
    lambda b: (-b.last, b.first),
)


def _improved(buffers: Sequence[Buffer], order: list[int], addresses: list[int], bound: int) -> list[int]:
    """First fits of orders in which a buffer of the highest pile comes earlier, kept where they are no worse."""
    rng, total, best = random.Random(0), extent(buffers, addresses), addresses
    pile = _pile(buffers, addresses, total)
    least, most = _EFFORT
    for _ in range(max(least, min(most, _TRIES * len(buffers))) // len(buffers)):
        tried = list(order)
        moved = rng.choice(pile)
        at = tried.index(moved)
        del tried[at]
        tried.insert(rng.randrange(at + 1), moved)
        there = _first_fit(buffers, tried)
        size = extent(buffers, there)
        if size <= total:
            order = tried
            if size < total:
                best, total = there, size
            if total == bound:
                break
            if there != addresses:
                addresses, pile = there, _pile(buffers, there, total)
    return best


def _pile(buffers: Sequence[Buffer], addresses: Sequence[int], total: int) -> list[int]:
    """A buffer that ends highest, and those that it stands upon, down to the lowest."""
    top = next(i for i, b in enumerate(buffers) if b.bytes and addresses[i] + b.bytes == total)
    pile = [top]
    while addresses[top]:
        _, first, last = buffers[top]
        top = max(
            (i for i, b in enumerate(buffers) if b.bytes and b.first <= last and first <= b.last
             and addresses[i] < addresses[top]),
            key=lambda i: addresses[i] + buffers[i].bytes,
        )
        pile.append(top)
    return pile


def _first_fit(buffers: Sequence[Buffer], order: Sequence[int]) -> list[int]:
    """Each buffer in turn at the lowest address where nothing that lives with it lies."""
    addresses = [0] * len(buffers)
    placed = np.zeros((4, len(buffers)), np.int64)
    lows: list[int] = []
    for i in order:
        size, first, last = buffers[i]
        if not size:
            continue
        low, high, begin, end = placed[:, : len(lows)]
        with_it = (begin <= last) & (end >= first)
        ends = np.maximum.accumulate(np.concatenate(([0], high[with_it])))
        room = np.flatnonzero(low[with_it] >= ends[:-1] + size)
        at = int(ends[room[0]] if len(room) else ends[-1])
        index = bisect.bisect(lows, at)
        placed[:, index + 1 : len(lows) + 1] = placed[:, index : len(lows)]
        placed[:, index] = at, at + size, first, last
        lows.insert(index, at)
        addresses[i] = at
    return addresses
