"""A field in which comparisons are elements, too, so that what is chosen by them is a blend of all that might be.

Truth values of numbers are random elements p of the field, 1 - p for the opposite; a select of them is p a + (1 - p) b,
and maxima are functions of sets (`extrema`). A bit shows one of two ways in a run, and leaves the other unseen; a blend
shows both, with the chance of polynomials. What takes bits, as sorts, loops until a number is small, and selects of
integers do, is undecided here; `Field` has an order for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from eggshard.ops.base import Arrays
from eggshard.plan.proof import NEAR
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.prove.combining import Combination
from eggshard.prove.extrema import KINDS, Extrema, TooMany
from eggshard.prove.field import Field, Refused
from eggshard.prove.residues import Residues, is_complex

#: Ops to which a maximum is a set, besides those that move elements; to all others it is a residue.
_OF_SETS = frozenset(("and", "clamp", "maximum", "minimum", "or", "select"))
#: The opposite of a comparison, and whether that has its operands swapped.
_OPPOSITE = {"NE": ("EQ", False), "GE": ("LT", False), "LE": ("LT", True)}
_ONE = np.ones(())


class Undecided(Refused):
    """Bits are asked for where a comparison is an element of the field."""


class BlendedField(Field):
    """Residues of a prime for floats and truth values, integers as they are."""

    def __init__(self, residues: Residues, seed: int, loose: bool = False):
        super().__init__(residues, seed, loose)
        self._extrema = {kind: Extrema(kind, residues, self.hashes) for kind in KINDS}
        self._sets = False
        of = self._pointwise
        self.meanings |= {
            "and": of(partial(self._joined, "and")), "or": of(partial(self._joined, "or")),
            "not": of(self._opposite), "xor": of(self._exclusive), "select": self._select,
        }
        integers = super(Field, self).combine
        for kind in KINDS:
            self._combine[kind] = Combination(
                kind, integers(kind), partial(self._joined, kind), residues, partial(self._all, kind))
        self._combine["xor"] = Combination("xor", integers("xor"), self._exclusive, residues)
        r = residues
        for kind, function in (("add", r.add), ("mul", r.multiply)):
            self._combine[kind] = Combination(kind, integers(kind), function, residues, elements=self._seen)

    def stored(self, dtype: str) -> np.dtype:
        return np.dtype(np.float64) if dtype == "i1" else super().stored(dtype)

    def truths(self, array: np.ndarray) -> np.ndarray:
        known = _truths(array)
        if not (np.isnan(known) | (known == 0) | (known == 1)).all():
            raise Undecided("a comparison decides what runs, or which integer is taken")
        return np.asarray(known != 0)

    def order(self, array: np.ndarray, total: bool) -> np.ndarray | None:
        if array.dtype.kind not in "fc":
            return super().order(array, total)
        signed = self.residues.signed(array)
        return signed if ((np.abs(signed) < NEAR) | np.isinf(signed)).all() else None

    def evaluate(
        self, name: str, attrs: Attributes, arrays: Arrays, regions: Sequence[Region] = ()
    ) -> tuple[np.ndarray, ...]:
        if name in self.meanings and name not in _OF_SETS:
            arrays = tuple(map(self._seen, arrays))
        results = super().evaluate(name, attrs, arrays, regions)
        return tuple(r.astype(np.float64) if r.dtype == np.bool_ else r for r in map(np.asarray, results))

    def matmul(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return super().matmul(self._seen(lhs), self._seen(rhs))

    # Maxima and the like.

    def _seen(self, array: np.ndarray) -> np.ndarray:
        return residue(array) if self._sets else array

    def _all(self, kind: str, rows: np.ndarray) -> np.ndarray:
        self._sets = True
        try:
            return self._extrema[kind].of_rows(_truths(rows) if kind in ("and", "or") else rows)
        except TooMany:
            raise Undecided("maxima are of more elements than are remembered") from None

    def _joined(self, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._all(kind, np.stack(np.broadcast_arrays(a, b)))

    def _maximum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._joined("max", a, b)

    def _minimum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._joined("min", a, b)

    def _several(self, name: str, attrs: Attributes, arrays: Arrays) -> tuple[np.ndarray, ...]:
        if name == "chlo.top_k" and arrays[0].dtype.kind == "f":
            raise Undecided("the largest elements are chosen one by one")
        return super()._several(name, attrs, arrays)

    def _absolute(self, x: np.ndarray) -> np.ndarray:
        if is_complex(x):
            return super()._absolute(x)
        size = np.abs(self.residues.signed(x))
        return np.where(size < NEAR, size, np.where(np.isinf(x), np.inf, self.hashes.function("abs", size)))

    def _sign(self, x: np.ndarray) -> np.ndarray:
        if is_complex(x):
            return super()._sign(x)
        signed = self.residues.signed(x)
        size, known = np.abs(signed), (np.abs(signed) < NEAR) | np.isinf(x)
        out = np.where(known, np.sign(size), self.hashes.function("sign", size))
        return np.where(signed < 0, self.residues.negate(out), out)

    # Truth values.

    def _unsure(self, truth: Any, *of: np.ndarray) -> np.ndarray:
        """Truth values; not known where an operand is not."""
        unknown = np.any(np.broadcast_arrays(*(np.isnan(x) for x in of)), axis=0)
        return np.where(unknown, np.nan, truth)

    def _predicate(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        return self.hashes.function(name, *arguments)

    def _opposite(self, x: np.ndarray) -> np.ndarray:
        return self.residues.subtract(_ONE, _truths(x))

    def _exclusive(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a + b - 2 a b; of equal ones 0."""
        r = self.residues
        a, b = _truths(residue(a)), _truths(residue(b))
        return np.where(a == b, 0.0, r.add(r.multiply(a, self._opposite(b)), r.multiply(b, self._opposite(a))))

    def _compare(self, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
        x, y = np.broadcast_arrays(*arrays)
        direction = attrs["comparison_direction"]
        if direction in _OPPOSITE:
            direction, swapped = _OPPOSITE[direction]
            x, y = (y, x) if swapped else (x, y)
            return self._opposite(self._compare(Attributes(comparison_direction=direction), (x, y)))
        if direction == "EQ":
            bits = [self.hashes.digest("equal", a) for a in (x, y)]
            out = self.hashes.function("equal", np.minimum(*bits), np.maximum(*bits))
            known, real = (x == y) | np.isinf(x) | np.isinf(y), x == y
        else:
            x, y = (y, x) if direction == "GT" else (x, y)
            a, b = (self.residues.signed(v) for v in (x, y))
            out = self.hashes.function("less", x, y)
            known, real = (a == b) | np.isinf(a) | np.isinf(b) | (abs(a) < NEAR) & (abs(b) < NEAR), a < b
        if not is_complex(x):
            known = known | (np.abs(self.residues.signed(x)) < NEAR) & (np.abs(self.residues.signed(y)) < NEAR)
        return self._unsure(np.where(known, real, out), x, y)

    def _select(self, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
        p, a, b = arrays
        p = _truths(p)
        if ((p == 0) | (p == 1)).all():
            return np.where(p != 0, a, b)
        if a.dtype.kind not in "fc":
            same = np.broadcast_to(a == b, np.broadcast_shapes(p.shape, a.shape))
            return np.where(self.truths(np.where(same, 1.0, p)), a, b)
        r = self.residues
        p, x, y = np.broadcast_arrays(residue(p), residue(a), residue(b))
        made = r.add(y, r.multiply(p, r.subtract(x, y)))
        # Infinities have no blends: of them and others a random function, which knows p from 1 - p.
        endless = np.isinf(x) | np.isinf(y)
        if endless.any():
            opposite = self._opposite(p)
            swapped = p > opposite
            first, second = np.where(swapped, y, x), np.where(swapped, x, y)
            function = self.hashes.complex_function if is_complex(a) else self.hashes.function
            made = np.where(endless, function("select", np.minimum(p, opposite), first, second), made)
        made = np.where((a == b) | (p == 1), a, np.where(p == 0, b, made))
        return np.where(np.isnan(p), np.nan, made)

    def _converted(self, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if attrs["dtype"] == "i1" and arrays[0].dtype.kind in "fc":
            return self._compare(Attributes(comparison_direction="NE"), (np.real(arrays[0]), np.zeros(())))
        return super()._converted(attrs, arrays)


def residue(array: np.ndarray) -> np.ndarray:
    """What functions other than maxima and the like see of elements."""
    if array.dtype.kind == "c":
        out = array.copy()
        out.real, out.imag = np.floor(array.real), np.floor(array.imag)
        return out
    return np.floor(array) if array.dtype.kind == "f" else array


def _truths(array: np.ndarray) -> np.ndarray:
    """Truth values, in which the identities of maxima and minima stand for false and true."""
    array = np.asarray(array, np.float64)
    infinite = np.isinf(array)
    return np.where(infinite, array > 0, array) if infinite.any() else array
