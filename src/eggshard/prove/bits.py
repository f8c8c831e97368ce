"""Bits of residues, for floats that are sent as integers and turned back."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.ops.numerics import bit_width
from eggshard.prove.residues import is_complex

#: Bits of a number below them, and what stands above them in the bits of a residue: those of large negative floats.
_NUMBER, _TAG = 26, -1
#: The numbers of values that are no residues.
_SPECIAL = {(1 << _NUMBER) - 1: np.inf, (1 << _NUMBER) - 2: -np.inf, (1 << _NUMBER) - 3: np.nan}


def holds_bits(dtype: str, x: np.ndarray) -> bool:
    """Whether a tagged residue fits into elements of this type, and ``x`` is real."""
    return not is_complex(x) and bit_width(dtype) in (32, 64)


def bits_of(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Tagged residues as integers of this type."""
    number = np.where(np.isfinite(x), x, 0).astype(np.int64)
    for special, value in _SPECIAL.items():
        number = np.where(np.isnan(x) if np.isnan(value) else x == value, special, number)
    return ((_TAG << _NUMBER) | number).astype(dtype)


def of_bits(bits: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The residues that integers are the tagged bits of; ``numbers`` for others."""
    signed = bits.view(f"i{bits.dtype.itemsize}").astype(np.int64)
    number = signed & ((1 << _NUMBER) - 1)
    out = number.astype(np.float64)
    for special, value in _SPECIAL.items():
        out = np.where(number == special, value, out)
    return np.where(signed >> _NUMBER == _TAG, out, numbers)
