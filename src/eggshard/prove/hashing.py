"""Keyed random functions of residues and integers, for functions that are no polynomials, and for an order.

Two ways of computing one value give a function equal arguments, and so equal results; other arguments give results that
have nothing to do with each other.
"""

from __future__ import annotations

import zlib

import numpy as np

from eggshard.prove.residues import Residues, is_complex, paired

#: Residues up to this number from 0 are in the order of integers.
SMALL = 1 << 12
#: The golden ratio as a fraction of 2^64, which spreads consecutive numbers.
_GOLDEN = 0x9E3779B97F4A7C15
_TOP = np.int64(2**63 - 1)


def _mixed(z: np.ndarray) -> np.ndarray:
    """Steele, Lea and Flood's SplitMix64 finaliser, a bijection of 64 bits; overwrites its argument."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def _bits(array: np.ndarray) -> np.ndarray:
    """64 bits per element that differ where elements do; a new array."""
    if is_complex(array):
        return _mixed(_bits(array.real)) ^ (_bits(array.imag) + np.uint64(77))
    if array.dtype.kind == "f":
        return (np.ascontiguousarray(array) + 0.0).view(np.uint64).reshape(array.shape)
    if array.dtype.kind == "u":
        return array.astype(np.uint64)
    return array.astype(np.int64).view(np.uint64)


class Hashes:
    """Random functions under a key, with values in a field."""

    def __init__(self, residues: Residues, seed: int):
        self._residues = residues
        self._key = (seed + 1) * _GOLDEN % 2**64

    def digest(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """64 random bits per element of the arguments, which are of one shape or broadcast to one."""
        first = np.array([self._key ^ zlib.crc32(name.encode())], np.uint64)
        state: np.ndarray = _mixed(first).reshape(())
        for k, argument in enumerate(arguments):
            bits = _bits(np.asarray(argument))
            bits += np.uint64(_GOLDEN * (k + 1) % 2**64)
            state = _mixed(np.array(np.bitwise_xor(state, bits)))
        return state

    def function(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """Residues that a random function of this name has at the arguments; NaN where one of them is."""
        out = self.uniform(self.digest(name, *arguments))
        for argument in arguments:
            if np.asarray(argument).dtype.kind in "fc":
                unknown = np.isnan(argument)
                if unknown.any():
                    out = np.where(unknown, np.nan, out)
        return out

    def complex_function(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """Pairs of residues, as `function` makes one."""
        return paired(self.function(name, *arguments), self.function(name + "'", *arguments))

    def predicate(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """Truth values that a random predicate has at the arguments."""
        return (self.digest(name, *arguments) >> np.uint64(63)).astype(np.bool_)

    def uniform(self, bits: np.ndarray) -> np.ndarray:
        """Residues from the upper half of random bits; those below 2^26 - modulus are twice as likely as others."""
        out = (bits >> np.uint64(38)).astype(np.float64)
        modulus = float(self._residues.modulus)
        return np.asarray(out - modulus * (out >= modulus))

    def coarse_rank(self, array: np.ndarray) -> np.ndarray:
        """`rank` in few classes: of integers near 0 each its own, of others one in sixteen alike."""
        rank = self.rank(array)
        size = np.abs(rank)
        return np.where((size < SMALL) | (size >= _TOP), rank, np.sign(rank) * (SMALL + (size >> 58)))

    def rank(self, array: np.ndarray) -> np.ndarray:
        """Integers in a random order of residues that is odd, and that of integers near 0; infinities at the ends."""
        core = array[tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)]
        signed = self._residues.signed(np.ascontiguousarray(core).reshape(-1))
        size = np.abs(signed)
        bits = self.digest("order", size)
        rank = (bits >> np.uint64(3)).view(np.int64)
        rank += 1 << 20
        # Two's complement: the bitwise complement, plus one, where the mask has all bits set.
        mask = -((bits & np.uint64(1)).view(np.int64) ^ (signed < 0))
        rank = (rank ^ mask) - mask
        small = size < SMALL
        if small.any():
            rank[small] = signed[small].astype(np.int64)
        infinite = np.isinf(signed)
        if infinite.any():
            rank[infinite] = np.where(signed[infinite] > 0, _TOP, -_TOP)
        return np.broadcast_to(rank.reshape(core.shape), array.shape)
