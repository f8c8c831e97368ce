"""Arithmetic modulo a prime below 2^26, on float64 arrays that hold residues exactly.

A product of two residues is below 2^52 and a sum of 2^26 of them below 2^53, so both are exact before they are reduced.
NaN is what is not known and spreads. Infinities are themselves, as identities of maxima and fills of masks; times a
residue they keep or change their sign by its quadratic character, which is multiplicative, and real for fractions whose
prime factors are at most 13. Complex arrays hold a residue in either part: the primes are 3 modulo 4, so x^2 + 1 has no
root, and such pairs are a field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: The three largest primes below 2^26 that are 3 modulo 4 and of which 2, 3, 5, 7, 11 and 13 are squares.
PRIMES = (67108271, 67106399, 67102439)
#: Terms of a product of matrices that are added before they are reduced: 2^26 * 2^13 * 2^13 is 2^52.
_CHUNK = 1 << 13
_Function = Callable[[np.ndarray], np.ndarray]


def is_complex(array: Any) -> bool:
    return np.asarray(array).dtype.kind == "c"


def paired(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """The complex array with these parts, neither of which is looked at: NaN in one does not spread to the other."""
    out = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
    out.real, out.imag = real, imaginary
    return out


class Residues:
    """Integers modulo a prime, a field, and with pairs as complex numbers its extension by a root of -1.

    factors: those of a modulus that is no prime; then only what none of them divides has an inverse.
    """

    def __init__(self, modulus: int, factors: tuple[int, ...] = ()):
        self.modulus, self._factors = modulus, factors
        self._p = float(modulus)
        # Below 1 / p by more than rounding, so that a quotient is never too large, and at most 1 too small.
        self._reciprocal = (1.0 / modulus) * (1 - 2.0**-50)

    def reduced(self, array: np.ndarray) -> np.ndarray:
        """Exact integers from 0 to 2^53, reduced; of infinities NaN."""
        quotient = np.floor(array * self._reciprocal)
        quotient *= -self._p
        quotient += array
        quotient -= self._p * (quotient >= self._p)
        return quotient

    def total(self, array: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
        """Sums of at most 2^26 residues along axes."""
        if is_complex(array):
            return paired(self.total(array.real, axis), self.total(array.imag, axis))
        added = np.asarray(np.add.reduce(array, axis=axis))
        out = self.reduced(added)
        infinite = np.isinf(added)
        return np.where(infinite, added, out) if infinite.any() else out

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if is_complex(a) or is_complex(b):
            return paired(self.add(np.real(a), np.real(b)), self.add(np.imag(a), np.imag(b)))
        out = a + b
        return np.asarray(out - self._p * (out >= self._p))

    def negate(self, a: np.ndarray) -> np.ndarray:
        if is_complex(a):
            return paired(self.negate(a.real), self.negate(a.imag))
        return np.asarray((self._p - a) - self._p * (a == 0))

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if is_complex(a) or is_complex(b):
            return paired(self.subtract(np.real(a), np.real(b)), self.subtract(np.imag(a), np.imag(b)))
        out = a - b
        return np.asarray(out + self._p * (out < 0))

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if is_complex(a) or is_complex(b):
            (ar, ai), (br, bi) = (np.real(a), np.imag(a)), (np.real(b), np.imag(b))
            real = self.subtract(self.multiply(ar, br), self.multiply(ai, bi))
            return paired(real, self.add(self.multiply(ar, bi), self.multiply(ai, br)))
        product = np.asarray(a * b)
        out = np.asarray(self.reduced(product))
        infinite = np.isinf(product)
        if infinite.any():
            out[infinite] = np.prod([self._signs(np.broadcast_to(x, product.shape)[infinite]) for x in (a, b)], axis=0)
        return out

    def _signs(self, array: np.ndarray) -> np.ndarray:
        """The quadratic character (modulo the first factor), 1 or -1, of residues other than 0; infinities stay."""
        finite = np.isfinite(array)
        prime = self._factors[0] if self._factors else self.modulus
        power = Residues(prime).power(np.where(finite, array, 1.0) % prime, (prime - 1) // 2)
        return np.where(finite, np.where(power == 1, 1.0, -1.0), array)

    def power(self, a: np.ndarray, exponent: int) -> np.ndarray:
        """Powers by a non-negative number."""
        out = np.ones_like(a)
        while exponent:
            if exponent & 1:
                out = self.multiply(out, a)
            exponent >>= 1
            if exponent:
                a = self.multiply(a, a)
        return out

    def inverse(self, a: np.ndarray) -> np.ndarray:
        """1 / a; of what has none NaN, of infinities 0. What an array repeats by broadcasting is inverted once."""
        if is_complex(a):
            size = self.inverse(self.add(self.multiply(a.real, a.real), self.multiply(a.imag, a.imag)))
            return paired(self.multiply(a.real, size), self.multiply(self.negate(a.imag), size))
        core = a[tuple(slice(0, 1) if s == 0 else slice(None) for s in a.strides)]
        regular = np.isfinite(core) & (core != 0)
        for factor in self._factors:
            regular &= core % factor != 0
        made = self._inverses(np.where(regular, core, 1.0).reshape(-1)).reshape(core.shape)
        out = np.where(regular, made, np.where(np.isinf(core), 0.0, np.nan))
        return np.broadcast_to(out, a.shape)

    def _inverses(self, a: np.ndarray) -> np.ndarray:
        """Inverses of non-zero residues by those of products of pairs (Montgomery's trick): three products each."""
        if len(a) < 4:
            return np.array([pow(int(x), -1, self.modulus) for x in a], np.float64)
        if len(a) % 2:
            return self._inverses(np.append(a, 1.0))[:-1]
        of_pairs = self._inverses(self.multiply(a[0::2], a[1::2]))
        out = np.empty_like(a)
        out[0::2], out[1::2] = self.multiply(of_pairs, a[1::2]), self.multiply(of_pairs, a[0::2])
        return out

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.multiply(a, self.inverse(np.asarray(b)))

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Products of matrices; one operand is split at 13 bits, so that both halves are exact."""
        if is_complex(a) or is_complex(b):
            (ar, ai), (br, bi) = (np.real(a), np.imag(a)), (np.real(b), np.imag(b))
            real = self.subtract(self.matmul(ar, br), self.matmul(ai, bi))
            return paired(real, self.add(self.matmul(ar, bi), self.matmul(ai, br)))
        a, b = (np.where(np.isinf(x), np.nan, x) if np.isinf(x).any() else x for x in (a, b))
        out: np.ndarray | None = None
        for start in range(0, max(a.shape[-1], 1), _CHUNK):
            left, right = a[..., start : start + _CHUNK], b[..., start : start + _CHUNK, :]
            high = np.floor(right / _CHUNK)
            upper = self.reduced(np.matmul(left, high))
            lower = self.reduced(np.matmul(left, right - high * _CHUNK))
            part = self.reduced(upper * _CHUNK + lower)
            out = part if out is None else self.add(out, part)
        assert out is not None
        return out

    def of_numbers(self, array: np.ndarray) -> np.ndarray:
        """Numbers as residues: integers, and floats as the fractions that they are exactly; NaN and infinities stay.

        Arrays that repeat one number by broadcasting stay such arrays.
        """
        if array.size > 1 and not any(array.strides):
            return np.broadcast_to(self.of_numbers(array.reshape(-1)[:1]).reshape(()), array.shape)
        if array.dtype.kind == "c":
            return paired(self.of_numbers(array.real), self.of_numbers(array.imag))
        if array.dtype.kind == "u":
            return np.asarray(array % np.uint64(self.modulus)).astype(np.float64)
        wide = array.astype(np.int64 if array.dtype.kind in "ib" else np.float64)
        if wide.dtype.kind == "i":
            return (wide % self.modulus).astype(np.float64)
        finite = np.isfinite(wide)
        mantissa, exponent = np.frexp(np.where(finite, wide, 0.0))
        whole = ((mantissa * 2.0**53).astype(np.int64) % self.modulus).astype(np.float64)
        exponent = exponent.astype(np.int64) - 53
        lowest, highest = int(exponent.min(initial=0)), int(exponent.max(initial=0))
        powers = np.array([pow(2, k, self.modulus) for k in range(lowest, highest + 1)], np.float64)
        return np.where(finite, self.reduced(whole * powers[exponent - lowest]), wide)

    def signed(self, array: np.ndarray) -> np.ndarray:
        """Residues as integers between -p/2 and p/2."""
        return np.asarray(array - self._p * (array > self._p / 2))
