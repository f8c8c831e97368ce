"""Tiles, the algebra in which encodings define layouts: products of identities, grown or clipped to a shape."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.triton.layouts.linear import HARDWARE, LinearLayout

#: Bases as tuples over the tensor's dimensions, per hardware dimension.
Bases = list[tuple[int, ...]]


class Tile:
    """A layout of a part of a tensor that has as many elements as the bases so far reach.

    Each `identity` spreads the next bits of a hardware index over the next bits of a dimension.
    """

    def __init__(self, rank: int) -> None:
        self.sizes = [1] * rank
        self.bases: dict[str, Bases] = {name: [] for name in HARDWARE}

    def identity(self, size: int, hardware: str, dim: int) -> Tile:
        """``size`` (a power of two; less than 2 adds nothing) hardware indices step along a dimension."""
        for _ in range(max(size, 1).bit_length() - 1):
            basis = [0] * len(self.sizes)
            basis[dim] = self.sizes[dim]
            self.bases[hardware].append(tuple(basis))
            self.sizes[dim] *= 2
        return self

    def zeros(self, size: int, hardware: str) -> Tile:
        """``size`` hardware indices hold the same."""
        self.bases[hardware] += [(0,) * len(self.sizes)] * (max(size, 1).bit_length() - 1)
        return self

    def identities(
        self, sizes: Sequence[int], hardware: str, order: Sequence[int], without: int | None = None
    ) -> Tile:
        """One identity per dimension, the fastest first; along ``without`` zeros instead."""
        for dim in order:
            if dim == without:
                self.zeros(sizes[dim], hardware)
            else:
                self.identity(sizes[dim], hardware, dim)
        return self

    def fitted(
        self, shape: Sequence[int], order: Sequence[int], blocks: Bases, repeats: bool = True
    ) -> LinearLayout:
        """The tile repeated in registers, dimensions in ``order``, and clipped to what one block of the cluster holds.

        ``blocks``: the bases of the cluster's blocks, in units of what one block holds. ``repeats``: whether registers
        beyond the shape repeat others, as those of a matrix instruction do, or are not there.
        """
        blocks = [tuple(b if b < n else 0 for b, n in zip(basis, shape, strict=True)) for basis in blocks]
        spread = [min(n, 2 * max((basis[d] for basis in blocks), default=0) or 1) for d, n in enumerate(shape)]
        held = [max(1, n // s) for n, s in zip(shape, spread, strict=True)]
        for dim in order:
            self.identity(held[dim] // self.sizes[dim], "register", dim)
        clip_to(held, self.bases, repeats)
        outer = [tuple(b * n for b, n in zip(basis, held, strict=True)) for basis in blocks]
        return LinearLayout.of(shape, self.bases["register"], self.bases["lane"], self.bases["warp"], outer)


def clip_to(shape: Sequence[int], bases: dict[str, Bases], repeats: bool) -> None:
    """Sets indices beyond the shape to zero, in place. A register basis that so becomes zero stays if registers
    ``repeats``; one that was zero stays."""
    for name, found in bases.items():
        clipped: Bases = []
        for basis in found:
            new = tuple(b if b < n else 0 for b, n in zip(basis, shape, strict=True))
            if repeats or name != "register" or any(new) or not any(basis):
                clipped.append(new)
        bases[name] = clipped
