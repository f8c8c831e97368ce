"""A simulated address space: buffers far apart, read and written by tensors of byte addresses, bounds checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from testing.kernel_interpreter.elements import Array

#: Buffers start at multiples of two to this power.
SPACING = 40


class Memory:
    """Buffers by address. Address 0 and all around the buffers is nobody's."""

    def __init__(self) -> None:
        self.buffers: list[Array] = []

    def place(self, contents: Array) -> int:
        """The address of a new buffer with a copy of the contents."""
        flat = np.array(contents, order="C", copy=True).reshape(-1)
        self.buffers.append(flat.view(np.uint8))
        return len(self.buffers) << SPACING

    def contents(self, address: int, like: Array) -> Array:
        """A copy of what stands in the buffer at an address, in the shape and type of what was placed there."""
        return self.buffers[(address >> SPACING) - 1].view(like.dtype).reshape(like.shape).copy()

    def load(self, addresses: Array, dtype: np.dtype[Any]) -> Array:
        """The elements at byte addresses, of any shape."""
        result = np.empty(addresses.shape, dtype)
        for where, cells, positions in self._parts(addresses, dtype):
            result[where] = cells[positions] if dtype != np.bool_ else cells[positions] & 1 != 0
        return result

    def store(self, addresses: Array, values: Array) -> None:
        """Writes elements to byte addresses; of several to one address, the last stays."""
        for where, cells, positions in self._parts(addresses, values.dtype):
            cells[positions] = values[where]

    def update(self, addresses: Array, change: Callable[[Array, Array], Array], dtype: np.dtype[Any]) -> Array:
        """What stood at the addresses, before ``change(old, which)`` was written there, one element after the other
        where addresses are equal; ``which``: the elements' positions in the flattened tensor."""
        flat = addresses.reshape(-1)
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        first = np.ones(len(flat), bool)
        first[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(first)
        rank = np.arange(len(flat)) - np.repeat(starts, np.diff(np.append(starts, len(flat))))
        result = np.empty(len(flat), dtype)
        by_rank = np.argsort(rank, kind="stable")
        ends = np.cumsum(np.bincount(rank, minlength=1))
        start = 0
        for end in ends:
            which = order[by_rank[start:end]]
            old = self.load(flat[which], dtype)
            result[which] = old
            self.store(flat[which], change(old, which))
            start = end
        return result.reshape(addresses.shape)

    def _parts(self, addresses: Array, dtype: np.dtype[Any]) -> list[tuple[Any, Array, Array]]:
        """Per buffer: which of the addresses lie there, its cells as elements, and the addresses' positions in them."""
        if addresses.size == 0:
            return []
        numbers = addresses >> SPACING
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest == highest:
            return [(..., *self._cells(addresses, lowest, dtype))]
        return [(where, *self._cells(addresses[where], int(number), dtype))
                for number in np.unique(numbers) for where in (numbers == number,)]

    def _cells(self, addresses: Array, number: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        offsets = addresses - (number << SPACING)
        known = 0 < number <= len(self.buffers)
        size = len(self.buffers[number - 1]) if known else 0
        beyond = (offsets < 0) | (offsets > size - dtype.itemsize)
        if not known or beyond.any():
            raise ProgramError(self._out_of_bounds(addresses if not known else addresses[beyond]))
        buffer = self.buffers[number - 1]
        cells = np.uint8 if dtype == np.bool_ else dtype
        if (offsets % dtype.itemsize).any():
            raise ProgramError(f"an address is not a multiple of the element's {dtype.itemsize} bytes")
        whole = len(buffer) // dtype.itemsize * dtype.itemsize
        return buffer[:whole].view(cells), offsets // dtype.itemsize

    def _out_of_bounds(self, addresses: Array) -> str:
        address = int(np.asarray(addresses).reshape(-1)[0])
        nearest = max((address + (1 << (SPACING - 1))) >> SPACING, 0)
        if not 0 < nearest <= len(self.buffers):
            return f"access to address {address:#x}, where no buffer is (of {np.size(addresses)} such elements)"
        offset, size = address - (nearest << SPACING), len(self.buffers[nearest - 1])
        return (f"access out of bounds: byte {offset} of buffer {nearest - 1}, which has {size} bytes "
                f"(of {np.size(addresses)} such elements)")
