"""Maxima and the like as what they are of: an element stands for the set of elements that one was taken of.

Over a random order a maximum of n numbers shows one of them, so that a plan which forgets another passes most of the
time. Here it is a random function of the set, with no order, which no two sets share. It is commutative, associative
and idempotent, which is all that plans use of it: the elements of a set are remembered by what stands for it, a residue
and a fraction, 50 random bits in all. Other functions see the residue.
"""

from __future__ import annotations

import numpy as np

from eggshard.plan.proof import NEAR
from eggshard.prove.hashing import Hashes
from eggshard.prove.residues import Residues

#: What may be of a set. Fractions are multiples of 2^-26; those of one function lie in one quarter of 0 to 1.
KINDS = ("max", "min", "and", "or")
#: How many fractions one function has.
_FRACTIONS = 1 << 24
#: Elements of all sets above which no more are remembered: their sets would take more memory than what is computed.
MOST = 1 << 22
#: Before what is ordered as residues come the integers near 0.
_FIRST = -float(1 << 40)


class TooMany(Exception):
    """Sets have more elements in all than are remembered."""


class Extrema:
    """One of the functions of `KINDS`, of what is no number. weak: its identity; strong: what it never leaves."""

    def __init__(self, kind: str, residues: Residues, hashes: Hashes):
        self._kind, self._residues, self._hashes = kind, residues, hashes
        self._sign = 1.0 if kind in ("max", "or") else -1.0
        truths = {"and": (1.0, 0.0), "or": (0.0, 1.0)}
        self._weak, self._strong = truths.get(kind, (-self._sign * np.inf, self._sign * np.inf))
        self._low = KINDS.index(kind) * _FRACTIONS
        # Sets by what stands for them: of each where its members begin, and how many there are.
        self._keys, self._starts, self._counts = np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
        self._members = np.empty(0)
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Of the elements along the first dimension."""
        shape = rows.shape[1:]
        flat = np.ascontiguousarray(rows.reshape(len(rows), -1).T)
        made = self._of_members(*self._flattened(flat), len(flat))
        made = np.where((flat == self._strong).any(axis=1), self._strong, made)
        return np.where(np.isnan(flat).any(axis=1), np.nan, made).reshape(shape)

    def _flattened(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the elements of columns are of, and the numbers of the columns, in their order."""
        values, owners = columns.reshape(-1), np.repeat(np.arange(len(columns)), columns.shape[1])
        kept = ~(np.isnan(values) | (values == self._weak) | (values == self._strong))
        values, owners = values[kept], owners[kept]
        fraction = (values - np.floor(values)) * (1 << 26)
        known = (fraction > self._low) & (fraction <= self._low + _FRACTIONS)
        if not known.any():
            return values, owners
        self._remember()
        place = np.minimum(np.searchsorted(self._keys, values), max(len(self._keys) - 1, 0))
        known &= self._keys[place] == values
        counts = np.where(known, self._counts[place], 1)
        if self._held + counts.sum() > MOST:
            raise TooMany
        source = np.repeat(np.arange(len(values)), counts)
        within = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.where(known[source], self._starts[place][source] + within, 0)
        return np.where(known[source], self._members[at], values[source]), owners[source]

    def _of_members(self, values: np.ndarray, owners: np.ndarray, columns: int) -> np.ndarray:
        """Of the values of each column, which are in the order of the columns."""
        out = np.full(columns, self._weak)
        if not len(values):
            return out
        signed = self._residues.signed(values)
        near = (np.abs(signed) < NEAR) & (values == np.floor(values)) & np.isinf(self._weak)
        order = np.lexsort((np.where(near, self._sign * signed + _FIRST, values), owners))
        values, owners, near = values[order], owners[order], near[order]
        # Equal ones count once, and of the integers near 0 the last.
        follows = owners[1:] == owners[:-1]
        kept = np.append(~(follows & ((values[1:] == values[:-1]) | (near[1:] & near[:-1]))), True)
        values, owners = values[kept], owners[kept]
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        counts = np.diff(np.append(starts, len(owners)))
        total = np.add.reduceat(self._hashes.digest(self._kind, values), starts)
        bits = self._hashes.digest("set of " + self._kind, total)
        fraction = (bits & np.uint64(_FRACTIONS - 1)).astype(np.float64) + (self._low + 1)
        keys = self._hashes.uniform(bits) + np.minimum(fraction, (1 << 26) - 1) * 2.0**-26
        keys = np.where(counts > 1, keys, values[starts])
        out[owners[starts]] = keys
        self._held += len(values)
        if self._held > MOST:
            raise TooMany
        self._new.append((keys[counts > 1], starts[counts > 1], counts[counts > 1], values))
        return out

    def _remember(self) -> None:
        """Put what was made since into the table."""
        if not self._new:
            return
        base = len(self._members)
        keys, starts, counts, members = [self._keys], [self._starts], [self._counts], [self._members]
        for new in self._new:
            keys.append(new[0])
            starts.append(new[1] + base)
            counts.append(new[2])
            members.append(new[3])
            base += len(new[3])
        self._new = []
        self._keys, first = np.unique(np.concatenate(keys), return_index=True)
        self._starts, self._counts = np.concatenate(starts)[first], np.concatenate(counts)[first]
        self._members = np.concatenate(members)
