"""The counter-based generators Threefry-2x32 and Philox-4x32, bit for bit as XLA expands rng_bit_generator.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the order in which counters and outputs fill an
array is that of xla/hlo/builder/lib/prng.cc.
"""

from __future__ import annotations

import math

import numpy as np

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


def _halves(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high 32 bits of 64-bit words."""
    return (words & _MASK).astype(np.uint32), (words >> _HALF).astype(np.uint32)


def _joined(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)


def _threefry_2x32(key: np.ndarray, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """20 rounds on the halves of each 64-bit counter."""
    low, high = _halves(key.reshape(1))
    keys = (low, high, low ^ high ^ np.uint32(0x1BD11BDA))
    x, y = _halves(counter)
    x, y = x + keys[0], y + keys[1]
    for i in range(5):
        for distance in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance))) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def threefry(state: np.ndarray, shape: tuple[int, ...], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(new state, numbers of ``bits`` 8, 16, 32 or 64) from ``state`` = ui64 (key, counter).

    A counter gives one number of 64 bits, or two that lie side by side along the first even (else the longest)
    dimension.
    """
    key, counter = state
    sizes = shape or (1,)
    split = next((d for d, n in enumerate(sizes) if n % 2 == 0), sizes.index(max(sizes)))
    if bits == 64:
        counted = sizes
    else:
        counted = (*sizes[:split], -(-sizes[split] // 2), *sizes[split + 1 :])
    used = math.prod(counted)
    low, high = _threefry_2x32(key, (counter + np.arange(used, dtype=np.uint64)).reshape(counted))
    if bits == 64:
        numbers = _joined(low, high)
    else:
        pairs = np.stack((low, high), axis=split + 1)
        numbers = pairs.reshape(*counted[:split], 2 * counted[split], *counted[split + 1 :])
        numbers = numbers[tuple(slice(n) for n in sizes)]
    return np.array([key, counter + np.uint64(used)], np.uint64), _narrow(numbers.reshape(shape), bits)


def philox(state: np.ndarray, shape: tuple[int, ...], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(new state, numbers of ``bits`` 8, 16, 32 or 64) from ``state`` = ui64 (key, counter low, counter high).

    A state of two words has its key for the counter's high word.
    """
    count = math.prod(shape)
    blocks = -(-count * (2 if bits == 64 else 1) // 4)
    key, low, high = state[0], state[1], state[2] if len(state) > 2 else state[0]
    lows = low + np.arange(blocks, dtype=np.uint64)
    highs = high + (lows < low).astype(np.uint64)
    words = np.stack(_philox_4x32(key, (*_halves(lows), *_halves(highs))), axis=-1)
    if bits == 64:
        numbers = _joined(words[:, 0::2], words[:, 1::2])
    else:
        numbers = words
    end = low + np.uint64(blocks)
    carry = np.uint64(end < low)
    new = np.array([key, end, high + carry], np.uint64)[: len(state)]
    return new, _narrow(numbers.reshape(-1)[:count].reshape(shape), bits)


def _philox_4x32(key: np.ndarray, words: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """10 rounds on counters of four 32-bit words."""
    k = [int(h[0]) for h in _halves(key.reshape(1))]
    a, b, c, d = words
    for _ in range(10):
        low0, high0 = _halves(a.astype(np.uint64) * _PHILOX_MULTIPLIERS[0])
        low1, high1 = _halves(c.astype(np.uint64) * _PHILOX_MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ np.uint32(k[0]), low1, high0 ^ d ^ np.uint32(k[1]), low0
        k = [(x + w) & 0xFFFFFFFF for x, w in zip(k, _PHILOX_WEYL, strict=True)]
    return a, b, c, d


def _narrow(numbers: np.ndarray, bits: int) -> np.ndarray:
    return numbers.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits])
