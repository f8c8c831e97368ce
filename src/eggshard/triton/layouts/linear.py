"""Linear layouts: for each bit of a hardware index (register, lane, warp, block) the tensor indices that it adds.

The element that a register of a lane of a warp of a block holds is the sum over GF(2) of the bases of the index bits
that are set. Hardware indices that differ by a zero basis hold the same element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from eggshard.triton.layouts.gf2 import Span

#: The hardware's dimensions, from the fastest: registers of a thread, threads of a warp, warps of a block, blocks of a
#: cluster.
HARDWARE = ("register", "lane", "warp", "block")


class _Fields(NamedTuple):
    shape: tuple[int, ...]
    register: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    block: tuple[int, ...] = ()


class LinearLayout(_Fields):
    """Bases per hardware dimension. A basis is one integer: the bits of the indices of dimension 0, above them those
    of dimension 1, and so on (`coordinates` takes it apart). Sizes are powers of two."""

    @staticmethod
    def of(
        shape: Sequence[int],
        register: Iterable[Sequence[int]] = (),
        lane: Iterable[Sequence[int]] = (),
        warp: Iterable[Sequence[int]] = (),
        block: Iterable[Sequence[int]] = (),
    ) -> LinearLayout:
        """A layout from bases that are tuples over the tensor's dimensions."""
        sizes = tuple(shape)
        packed = (tuple(pack(v, sizes) for v in bases) for bases in (register, lane, warp, block))
        return LinearLayout(sizes, *packed)

    @property
    def size_log2(self) -> int:
        """How many bits the indices of the tensor have."""
        return sum(n.bit_length() - 1 for n in self.shape)

    @property
    def columns(self) -> tuple[int, ...]:
        """All bases, from the register's to the block's."""
        return self.register + self.lane + self.warp + self.block

    def hardware(self) -> tuple[tuple[int, ...], ...]:
        """The bases of the four hardware dimensions, in the order of `HARDWARE`."""
        return self.register, self.lane, self.warp, self.block

    def coordinates(self, vector: int) -> tuple[int, ...]:
        """A basis as indices per dimension of the tensor."""
        found = []
        for n in self.shape:
            found.append(vector & (n - 1))
            vector >>= n.bit_length() - 1
        return tuple(found)

    def bases(self, hardware: str) -> tuple[tuple[int, ...], ...]:
        """The bases of a hardware dimension, as tuples over the tensor's dimensions."""
        return tuple(self.coordinates(v) for v in self.hardware()[HARDWARE.index(hardware)])

    @property
    def elements_per_thread(self) -> int:
        """Registers' worth of elements that a thread holds, duplicates included."""
        return 1 << len(self.register)

    @property
    def unique_per_thread(self) -> int:
        """Different elements that a thread holds: registers are not spent on duplicates."""
        return 1 << sum(v != 0 for v in self.register)

    @property
    def surjective(self) -> bool:
        """Whether every element lies somewhere (a layout that is not, is none)."""
        return Span(self.columns).rank == self.size_log2

    def without_duplicates(self) -> LinearLayout:
        """Return the layout without registers that repeat others, which is what the lowering works on."""
        if 0 not in self.register:
            return self
        return self._replace(register=tuple(v for v in self.register if v))

    def reshaped(self, shape: Sequence[int]) -> LinearLayout:
        """The layout of the tensor reshaped in row-major order, every element staying where it is."""
        sizes = tuple(shape)
        return _remap(self, sizes, [_reshaped_bits(self.shape, sizes)[i] for i in range(self.size_log2)])

    def transposed(self, order: Sequence[int]) -> LinearLayout:
        """The layout of the tensor transposed: result dimension i is operand dimension ``order[i]``."""
        sizes = tuple(self.shape[i] for i in order)
        starts = _starts(sizes)
        bits = [0] * self.size_log2
        for i, source in enumerate(order):
            start = _starts(self.shape)[source]
            for k in range(self.shape[source].bit_length() - 1):
                bits[start + k] = starts[i] + k
        return _remap(self, sizes, bits)

    def without_axis(self, axis: int) -> LinearLayout:
        """The layout of what remains when a dimension is summed away or sliced, without duplicate registers."""
        return self.dropped(axis).without_duplicates()

    def dropped(self, axis: int) -> LinearLayout:
        """The layout at index 0 of a dimension, without that; registers that stepped along it are duplicates."""
        low, width = _starts(self.shape)[axis], self.shape[axis].bit_length() - 1
        bits = [*range(low), *[None] * width, *range(low, self.size_log2 - width)]
        return _remap(self, self.shape[:axis] + self.shape[axis + 1:], bits)

    def with_axis(self, axis: int, size: int, first: bool = False) -> LinearLayout:
        """The layout with one more dimension, along which the registers of each thread step: the last or first ones."""
        shape = (*self.shape[:axis], size, *self.shape[axis:])
        low, width = _starts(shape)[axis], size.bit_length() - 1
        found = _remap(self, shape, [*range(low), *range(low + width, self.size_log2 + width)])
        steps = tuple(1 << (low + k) for k in range(width))
        return found._replace(register=steps + found.register if first else found.register + steps)

    def axis_mask(self, axis: int) -> int:
        """The bits of a basis that are a dimension's."""
        return (self.shape[axis] - 1) << _starts(self.shape)[axis]


def pack(indices: Sequence[int], shape: Sequence[int]) -> int:
    """The integer of a basis."""
    vector, start = 0, 0
    for index, n in zip(indices, shape, strict=True):
        vector |= index << start
        start += n.bit_length() - 1
    return vector


@cache
def _starts(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where each dimension's bits begin."""
    found, start = [], 0
    for n in shape:
        found.append(start)
        start += n.bit_length() - 1
    return tuple(found)


@cache
def _reshaped_bits(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Per bit of a basis, where row-major reshaping puts it."""

    def row_major(shape: tuple[int, ...]) -> list[int]:
        starts = _starts(shape)
        return [starts[d] + k for d in reversed(range(len(shape))) for k in range(shape[d].bit_length() - 1)]

    pairs = zip(row_major(source), row_major(target), strict=True)
    return tuple(new for _, new in sorted(pairs))


def _remap(layout: LinearLayout, shape: tuple[int, ...], bits: Sequence[int | None]) -> LinearLayout:
    """The layout of another shape; ``bits``: where each bit of a basis goes, None for one that is left out."""

    def move(vector: int) -> int:
        found = 0
        for old, new in enumerate(bits):
            if new is not None and vector >> old & 1:
                found |= 1 << new
        return found

    return LinearLayout(shape, *(tuple(map(move, bases)) for bases in layout.hardware()))


def equal(first: LinearLayout, second: LinearLayout) -> bool:
    """Whether converting one to the other moves nothing: the same elements in the same registers, duplicates aside."""
    return first is second or first.without_duplicates() == second.without_duplicates()
