"""Runs: stretches of a sequence of ops that repeat with a period, as unrolled loops over layers leave them.

Tracing a model emits its forward layers one after the other, then their transposes in reverse, then the updates of
their weights: each a run, with a period of its own and one block a layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: The number of most frequent distances between equal ops that are tried as periods.
PERIODS = 64
#: The most equal ops that may be skipped between two that are compared, since an op may recur within a layer.
SKIPS = 12


class Run(NamedTuple):
    """``blocks`` blocks of ``period`` ops from op ``start`` on, alike op by op."""

    start: int
    period: int
    blocks: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.blocks


class Stretch(NamedTuple):
    """Ops ``[start, stop)`` of which each is like the one a period before it: blocks may begin anywhere in it."""

    start: int
    stop: int
    period: int

    def runs(self) -> list[Run]:
        """The runs of whole blocks in the stretch, by where their blocks begin."""
        length = self.stop - self.start
        return [Run(self.start + i, self.period, (length - i) // self.period)
                for i in range(min(self.period, length - self.period + 1))]


def stretches(kinds: Sequence[int], least: int = 3) -> list[Stretch]:
    """The stretches of at least so many periods, the longest first, the shortest period first of equal ones.

    kinds: per op a number that is equal for ops that are alike.
    """
    ids = np.asarray(kinds, np.int64)
    found = []
    for period in _periods(ids):
        same = np.concatenate([[0], (ids[:-period] == ids[period:]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - begin >= (least - 1) * period:
                found.append(Stretch(begin, end + period, period))
    return sorted(found, key=lambda s: (s.start - s.stop, s.period, s.start))


def _periods(ids: np.ndarray) -> list[int]:
    """The commonest distances between ops that are alike."""
    order = np.argsort(ids, kind="stable")
    votes: Counter[int] = Counter()
    for skip in range(1, SKIPS + 1):
        if len(order) <= skip:
            break
        alike = ids[order[skip:]] == ids[order[:-skip]]
        distance, number = np.unique((order[skip:] - order[:-skip])[alike], return_counts=True)
        for d, n in zip(distance.tolist(), number.tolist(), strict=True):
            votes[d] += n
    return [d for d, _ in sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:PERIODS]]
