"""Packing: addresses for buffers of known sizes and lifetimes, so that few bytes are needed in all.

The problem (dynamic storage allocation) is NP-hard; what is here are first fits in several orders, then better ones in
the neighbourhood of the best. No packing needs fewer bytes than are live at once.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Buffer(NamedTuple):
    """So many bytes from instant ``first`` to ``last`` (both included) at a multiple of ``alignment``."""

    bytes: int
    first: int
    last: int
    alignment: int = 1


def max_live(buffers: Sequence[Buffer]) -> int:
    """The most bytes that are live at one instant."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + b.bytes
        change[b.last + 1] = change.get(b.last + 1, 0) - b.bytes
    most = live = 0
    for instant in sorted(change):
        live += change[instant]
        most = max(most, live)
    return most


def pack(buffers: Sequence[Buffer]) -> list[int]:
    """The address of each buffer: those live at the same time are disjoint. Deterministic."""
    best, _ = _best(buffers)
    return best


def extent(buffers: Sequence[Buffer], addresses: Sequence[int]) -> int:
    """Bytes from 0 to the end of the highest buffer."""
    return max((a + b.bytes for a, b in zip(addresses, buffers, strict=True)), default=0)


def _best(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    bound = max_live(buffers)
    best: list[int] = []
    total = -1
    for order in _orders(buffers):
        addresses = _first_fit(buffers, order)
        size = extent(buffers, addresses)
        if total < 0 or size < total:
            best, total = addresses, size
        if total == bound:
            break
    return best, total


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Orders that first fits do well in."""
    every = range(len(buffers))
    keys = (
        lambda i: (-buffers[i].bytes, buffers[i].first),
        lambda i: (-(buffers[i].last - buffers[i].first), -buffers[i].bytes),
        lambda i: (-buffers[i].bytes * (buffers[i].last - buffers[i].first + 1), buffers[i].first),
        lambda i: (buffers[i].first, -buffers[i].last),
        lambda i: (-buffers[i].last, buffers[i].first),
    )
    return [sorted(every, key=key) for key in keys]


def _first_fit(buffers: Sequence[Buffer], order: Sequence[int]) -> list[int]:
    """Each buffer in turn at the lowest address where nothing that lives with it lies."""
    addresses = [0] * len(buffers)
    placed: list[tuple[int, int, int, int]] = []
    for i in order:
        size, first, last, alignment = buffers[i]
        at = 0
        if size:
            for low, high, begin, end in placed:
                if begin <= last and first <= end and high > at:
                    if low >= at + size:
                        break
                    at = -(-high // alignment) * alignment
            bisect.insort(placed, (at, at + size, first, last))
        addresses[i] = at
    return addresses


def density(buffers: Sequence[Buffer], addresses: Sequence[int]) -> float:
    """Bytes needed over bytes live at once; 1 where there are none."""
    live = max_live(buffers)
    return float(np.divide(extent(buffers, addresses), live)) if live else 1.0
