"""MPI datatypes for boxes of arrays in a rank's memory, so that nothing is packed.

Data only moves here, so an element is so many bytes: MPI need not know its type. Sizes and displacements may exceed
2 GiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from mpi4py import MPI

from eggshard.engines.ranks.communicator import Buffer
from eggshard.engines.ranks.traffic import Box
from eggshard.program.types import numpy_dtype


class Part(NamedTuple):
    """A box of a row-major array whose first element is ``offset`` bytes into the memory."""

    offset: int
    shape: tuple[int, ...]
    itemsize: int
    box: Box

    @staticmethod
    def of(buffer: Buffer, box: Box) -> Part:
        """A box of a value."""
        return Part(buffer.offset, buffer.type.shape, numpy_dtype(buffer.type.dtype).itemsize, box)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.box)

    @property
    def elements(self) -> int:
        return math.prod(self.size)

    @property
    def first(self) -> int:
        """Bytes from the start of the memory to the box's first element."""
        index = 0
        for n, (start, _) in zip(self.shape, self.box, strict=True):
            index = index * n + start
        return self.offset + index * self.itemsize


def datatype(part: Part, extent: int | None = None) -> MPI.Datatype:
    """The box's elements, as seen from its first one; ``extent`` in bytes where its span will not do.

    Committed; the caller frees it. MPI knows no boxes of no elements.
    """
    element = MPI.BYTE.Create_contiguous(part.itemsize)
    if part.shape:
        corner = [0] * len(part.shape)
        boxed = element.Create_subarray(part.shape, part.size, corner)
        element.Free()
        element = boxed
    if extent is not None:
        resized = element.Create_resized(0, extent)
        element.Free()
        element = resized
    return element.Commit()


def joined(parts: Sequence[Part], base: int) -> MPI.Datatype:
    """Elements of all boxes, one box after the other, as seen from byte ``base``; committed. The caller frees it."""
    types = [datatype(part) for part in parts]
    out = MPI.Datatype.Create_struct([1] * len(types), [part.first - base for part in parts], types)
    for each in types:
        each.Free()
    return out.Commit()
