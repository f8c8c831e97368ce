"""Ragged arrays: sums and soft minima of consecutive segments."""

from __future__ import annotations

import numpy as np

#: Terms of a sum below this power of e add nothing to it; powers that underflow take several times as long to find.
FAR = -60.0


class Segments:
    """Consecutive segments of an axis: the first position of each, and the segment ``[N]`` of each position."""

    def __init__(self, segment: np.ndarray) -> None:
        count = int(segment[-1]) + 1 if len(segment) else 0
        self.segment = segment
        numbers = np.arange(count)
        self.first = np.searchsorted(segment, numbers)
        #: Whether every segment has one position.
        self.apart = count == len(segment)
        size, rest = divmod(len(segment), max(1, count))
        #: The positions of every segment, where all have as many; 0 elsewhere.
        self.even = size if not rest and (self.first == size * numbers).all() else 0

    def __len__(self) -> int:
        return len(self.first)

    def add(self, values: np.ndarray) -> np.ndarray:
        """The sum of every segment of the last axis."""
        found: np.ndarray = values if self.apart else np.add.reduceat(values, self.first, axis=-1)
        return found

    def least(self, values: np.ndarray) -> np.ndarray:
        """The minimum of every segment of the last axis."""
        found: np.ndarray = values if self.apart else np.minimum.reduceat(values, self.first, axis=-1)
        return found

    def soft_min(self, values: np.ndarray, temperature: float) -> np.ndarray:
        """The soft minimum of every segment of the last axis: -temperature * log(sum of exp(-value / temperature))."""
        if self.apart:
            return values
        if self.even:
            return soft_least(values.reshape(*values.shape[:-1], len(self.first), self.even), temperature, -1)
        least: np.ndarray = np.minimum.reduceat(values, self.first, axis=-1)
        over = least.take(self.segment, axis=-1)
        over -= values
        over *= 1.0 / temperature
        np.maximum(over, FAR, out=over)
        np.exp(over, out=over)
        total = np.add.reduceat(over, self.first, axis=-1)
        np.log(total, out=total)
        total *= temperature
        least -= total
        return least


def soft_least(values: np.ndarray, temperature: float, axis: int = 0) -> np.ndarray:
    """The soft minimum along an axis."""
    least: np.ndarray = np.minimum.reduce(values, axis=axis, keepdims=True)
    over = least - values
    over *= 1.0 / temperature
    np.maximum(over, FAR, out=over)
    np.exp(over, out=over)
    total = np.add.reduce(over, axis=axis)
    np.log(total, out=total)
    total *= temperature
    found: np.ndarray = least.reshape(total.shape)
    found -= total
    return found
