"""Ragged arrays: sums and soft minima of consecutive segments."""

from __future__ import annotations

import numpy as np

#: Terms of a sum below this power of e add nothing to it; powers that underflow take several times as long to find.
FAR = -60.0


class Segments:
    """Consecutive segments of an array: the first position of each, and the segment ``[N]`` of each position."""

    def __init__(self, segment: np.ndarray) -> None:
        count = int(segment[-1]) + 1 if len(segment) else 0
        self.segment = segment
        numbers = np.arange(count)
        self.first = np.searchsorted(segment, numbers)
        #: Whether every segment has one position.
        self.apart = count == len(segment)

    def __len__(self) -> int:
        return len(self.first)

    def add(self, values: np.ndarray) -> np.ndarray:
        """The sum of every segment."""
        found: np.ndarray = values if self.apart else np.add.reduceat(values, self.first)
        return found

    def least(self, values: np.ndarray) -> np.ndarray:
        """The minimum of every segment."""
        found: np.ndarray = values if self.apart else np.minimum.reduceat(values, self.first)
        return found

    def soft_min(self, values: np.ndarray, temperature: float) -> np.ndarray:
        """The soft minimum of every segment: -temperature * log(sum of exp(-value / temperature))."""
        if self.apart:
            return values
        least: np.ndarray = np.minimum.reduceat(values, self.first)
        over = least.take(self.segment)
        over -= values
        over *= 1.0 / temperature
        np.maximum(over, FAR, out=over)
        np.exp(over, out=over)
        total = np.add.reduceat(over, self.first)
        np.log(total, out=total)
        total *= temperature
        least -= total
        return least

