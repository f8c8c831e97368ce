"""Derivation of encodings from linear layouts: a blocked one where it exists, otherwise a linear one by its bases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations

from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import HARDWARE, LinearLayout
from eggshard.triton.rules.structure import LINEAR, blocked

#: Orders of more dimensions are not all tried for a blocked spelling.
_MOST_DIMS = 4


@lru_cache(maxsize=1 << 14)
def encoding_of_layout(layout: LinearLayout) -> Encoding | None:
    """An encoding at which a tensor of the layout's shape has this very layout; None if only a generic one would do."""
    bases = [layout.bases(name) for name in HARDWARE]
    units = [basis for some in bases for basis in some if any(basis)]
    if any(sum(n.bit_count() for n in basis) != 1 for basis in units) or len(set(units)) < len(units):
        return None
    return _blocked(layout) or make(LINEAR, **dict(zip(HARDWARE, bases, strict=True)))


def _blocked(layout: LinearLayout) -> Encoding | None:
    rank = len(layout.shape)
    if layout.block:
        return None
    lanes, warps = ([_dim(basis) for basis in layout.bases(name)] for name in ("lane", "warp"))
    sizes = _sizes(layout)
    shared = [1 if dim not in lanes and dim not in warps else n for dim, n in enumerate(sizes)]
    for order in _orders(lanes, warps, rank):
        threads, warp_counts = (_counts(dims, order) for dims in (lanes, warps))
        for some in (shared, sizes):
            found = blocked(some, threads, warp_counts, order)
            if linear_layout(found, layout.shape) == layout:
                return found
    return None


def _orders(lanes: list[int | None], warps: list[int | None], rank: int) -> Iterator[tuple[int, ...]]:
    """Orders of the dimensions: as lanes and warps step, then all others, if there are not too many."""
    first = dict.fromkeys(d for d in (*lanes, *warps, *reversed(range(rank))) if d is not None)
    yield tuple(first)
    if rank <= _MOST_DIMS:
        yield from permutations(reversed(range(rank)))


def _dim(basis: tuple[int, ...]) -> int | None:
    """The dimension along which a basis steps; None for zero."""
    return next((d for d, n in enumerate(basis) if n), None)


def _counts(dims: list[int | None], order: tuple[int, ...]) -> list[int]:
    """How many indices step along each dimension; those that repeat are the last's to step, or the first's of all."""
    found = [1] * len(order)
    last = next((d for d in dims if d is not None), order[0]) if dims and dims[0] is not None else order[0]
    for dim in dims:
        last = last if dim is None else dim
        found[last] *= 2
    return found


def _sizes(layout: LinearLayout) -> list[int]:
    """Per dimension, how many neighbouring elements a thread holds before other threads' begin."""
    found = []
    registers = layout.bases("register")
    for d in range(len(layout.shape)):
        others = [basis[d] for name in ("lane", "warp") for basis in layout.bases(name) if basis[d]]
        mine = [basis[d] for basis in registers if basis[d]]
        below = [n for n in mine if n < min(others)] if others else mine
        found.append(1 << len(below))
    return found
