"""Memory without bounds: every address holds a number drawn from it, until something is stored there.

What a kernel computes can then be compared without knowing what its callers pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from testing.kernel_interpreter.elements import Array, is_float
from testing.kernel_interpreter.memory import SPACING, Memory

#: Bytes of a page, as a power of two: what is drawn at once.
_PAGE = 16
#: Integers are drawn below this: as indices, counts and shifts they stay harmless. Those of 64 bits are multiples of
#: 16, for tables of pointers; those of 8 bits, which are data, are any.
_INTEGERS = 8


class Endless(Memory):
    """Pages drawn as they are first touched, from the seed, their number and the type of the first access."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.pages: dict[int, Array] = {}
        self.kinds: dict[int, np.dtype[Any]] = {}
        self.written: set[int] = set()
        self._count = 0

    def buffer(self) -> int:
        """The address of a new buffer, as much before it as after it."""
        self._count += 1
        return (self._count << SPACING) + (1 << (SPACING - 1))

    def place(self, contents: Array) -> int:
        address = self.buffer()
        flat = np.ascontiguousarray(contents).reshape(-1)
        self.store(address + np.arange(len(flat), dtype=np.int64) * flat.dtype.itemsize, flat)
        return address

    def store(self, addresses: Array, values: Array) -> None:
        self.written.update(np.unique(addresses >> _PAGE).tolist())
        super().store(addresses, values)

    def page(self, number: int, dtype: np.dtype[Any]) -> Array:
        """The bytes of a page; drawn for ``dtype`` if it is new."""
        if number not in self.pages:
            generator = np.random.default_rng([self.seed, number & ((1 << 63) - 1)])
            size = (1 << _PAGE) // dtype.itemsize
            if is_float(dtype):
                drawn = generator.standard_normal(size, np.float32).astype(dtype)
            else:
                low, high = (-128, 128) if dtype == np.int8 else (0, 2 if dtype == np.bool_ else _INTEGERS)
                drawn = generator.integers(low, high, size)
                drawn = (drawn * 16 if dtype == np.int64 else drawn).astype(dtype)
            self.pages[number] = drawn.view(np.uint8)
            self.kinds[number] = dtype
        return self.pages[number]

    def _parts(self, addresses: Array, dtype: np.dtype[Any]) -> list[tuple[Any, Array, Array]]:
        if addresses.size == 0:
            return []
        if (addresses % dtype.itemsize).any():
            raise ProgramError(f"an address is not a multiple of the element's {dtype.itemsize} bytes")
        numbers = addresses >> _PAGE
        positions = (addresses & ((1 << _PAGE) - 1)) // dtype.itemsize
        kind = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        first = int(numbers.reshape(-1)[0])
        if (numbers == first).all():
            return [(..., self.page(first, dtype).view(kind), positions)]
        return [(where, self.page(int(number), dtype).view(kind), positions[where])
                for number in np.unique(numbers) for where in (numbers == number,)]


def difference(first: Endless, second: Endless, tolerance: float = 0.0) -> str | None:
    """Where two memories that started equal differ in what was written; None if nowhere. ``tolerance``: of floats,
    relative to the larger of 1 and their size."""
    for number in sorted(first.written | second.written):
        kind = first.kinds.get(number) or second.kinds[number]
        a, b = first.page(number, kind), second.page(number, kind)
        if not np.array_equal(a, b) and not _close(a.view(kind), b.view(kind), tolerance):
            bytes_ = np.flatnonzero(a != b)
            at = int(bytes_[0]) // kind.itemsize
            offset = (number << _PAGE) + at * kind.itemsize
            buffer, inside = (offset >> SPACING) - 1, (offset & ((1 << SPACING) - 1)) - (1 << (SPACING - 1))
            return (f"buffer {buffer}, byte {inside}: {a.view(kind)[at]} against {b.view(kind)[at]} "
                    f"({len(bytes_)} bytes of the {1 << _PAGE} around differ)")
    return None


def _close(a: Array, b: Array, tolerance: float) -> bool:
    if tolerance == 0 or not is_float(a.dtype):
        return False
    x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))
