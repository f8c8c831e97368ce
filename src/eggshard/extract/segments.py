"""Ragged arrays: sums and soft minima of consecutive segments."""

from __future__ import annotations

import numpy as np


class Segments:
    """Consecutive segments of an axis: the first position of each, and the segment ``[N]`` of each position."""

    def __init__(self, segment: np.ndarray) -> None:
        count = int(segment[-1]) + 1 if len(segment) else 0
        self.segment = segment
        self.first = np.searchsorted(segment, np.arange(count))
        #: Whether every segment has one position, and whether there is one segment.
        self.apart, self.whole = count == len(segment), count == 1

    def __len__(self) -> int:
        return len(self.first)

    def add(self, values: np.ndarray) -> np.ndarray:
        """The sum of every segment of the last axis."""
        found: np.ndarray = values if self.apart else np.add.reduceat(values, self.first, axis=-1)
        return found

    def soft_min(self, values: np.ndarray, temperature: float) -> np.ndarray:
        """The soft minimum of every segment of the last axis: -temperature * log(sum of exp(-value / temperature))."""
        if self.apart:
            return values
        if self.whole:
            least = values.min(axis=-1, keepdims=True)
            total = np.exp((least - values) / temperature).sum(axis=-1, keepdims=True)
        else:
            least = np.minimum.reduceat(values, self.first, axis=-1)
            total = np.add.reduceat(np.exp((least[..., self.segment] - values) / temperature), self.first, axis=-1)
        found: np.ndarray = least - temperature * np.log(total)
        return found


def soft_least(values: np.ndarray, temperature: float) -> np.ndarray:
    """The soft minimum of every column."""
    least = values.min(axis=0)
    found: np.ndarray = least - temperature * np.log(np.exp((least - values) / temperature).sum(axis=0))
    return found
