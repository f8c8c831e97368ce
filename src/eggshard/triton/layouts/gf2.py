"""Linear algebra over GF(2): a vector is an integer, bit i its coordinate i; a matrix is its columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Span:
    """What some vectors generate, and how: vectors that earlier ones generate are left out of solutions."""

    def __init__(self, columns: Iterable[int] = ()) -> None:
        self._pivots: dict[int, tuple[int, int]] = {}
        self._count = 0
        for column in columns:
            self.add(column)

    def add(self, column: int, name: int | None = None) -> bool:
        """Takes in the next column; whether it is independent of those before. ``name``: its bit in solutions, by
        default that of its position."""
        chosen = 1 << self._count if name is None else name
        self._count += 1
        pivots = self._pivots
        while column:
            top = column.bit_length()
            found = pivots.get(top)
            if found is None:
                pivots[top] = (column, chosen)
                return True
            column ^= found[0]
            chosen ^= found[1]
        return False

    @property
    def rank(self) -> int:
        return len(self._pivots)

    def solve(self, vector: int) -> int | None:
        """The columns whose sum is the vector, as a bit set; None if there are none."""
        chosen = 0
        pivots = self._pivots
        while vector:
            found = pivots.get(vector.bit_length())
            if found is None:
                return None
            vector ^= found[0]
            chosen ^= found[1]
        return chosen

    def __contains__(self, vector: int) -> bool:
        return self.solve(vector) is not None


def rank(columns: Iterable[int]) -> int:
    return Span(columns).rank


def reduced_rows(rows: Iterable[int]) -> dict[int, int]:
    """The reduced row echelon form, pivots at the lowest set bits: pivot bit -> row."""
    found: dict[int, int] = {}
    for row in rows:
        for pivot, other in found.items():
            if row >> pivot & 1:
                row ^= other
        if not row:
            continue
        pivot = (row & -row).bit_length() - 1
        for other in found:
            if found[other] >> pivot & 1:
                found[other] ^= row
        found[pivot] = row
    return found


def complement(vectors: Iterable[int], size: int) -> list[int]:
    """Unit vectors that complete the vectors to a basis of the space of ``size`` coordinates."""
    taken = reduced_rows(vectors)
    return [1 << i for i in range(size) if i not in taken]


def null_space(vectors: Sequence[int], size: int) -> list[int]:
    """A basis of what is orthogonal to all the vectors."""
    rows = reduced_rows(vectors)
    found = []
    for free in range(size):
        if free not in rows:
            vector = 1 << free
            for pivot, row in rows.items():
                if row >> free & 1:
                    vector ^= 1 << pivot
            found.append(vector)
    return found


def intersection(first: Sequence[int], second: Sequence[int], size: int) -> list[int]:
    """A basis of what both generate; of unit vectors those in common, in the first's order."""
    if all(v & (v - 1) == 0 for v in (*first, *second)):
        common = set(second)
        return [v for v in first if v and v in common]
    return null_space(null_space(first, size) + null_space(second, size), size)
