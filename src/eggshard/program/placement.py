"""Placements: the part of a tensor that each device of a mesh holds.

A placement is resolved: it knows its tile sizes, so the local shape and the held indices follow from it alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

#: An uneven dimension may waste this fraction of its size in padding to keep tiles nested over all axes.
NESTED_WASTE = 0.125


class Dim(NamedTuple):
    """One placed dimension: mesh axes major to minor, the tile size T, and the window that is held around each tile.

    The device at mixed-radix position d along ``axes`` holds global indices ``[d*T + low, d*T + T + high)``. Without a
    window (low = high = 0) these are disjoint tiles; ``low < 0 < high`` is a halo; low = high = s is a tile of a grid
    that is shifted by s. Indices outside the tensor are unspecified. A ``wrapped`` window instead holds the elements at
    the indices ``[start, stop)`` given, taken modulo the size, and what lies outside that range is unspecified: as much
    is specified as somebody needs, so that padding past the end of uneven tiles is not. An unsharded dimension has no
    axes and no window, and T is the dimension's size.
    """

    axes: tuple[str, ...]
    tile: int
    low: int = 0
    high: int = 0
    wrapped: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """How many indices a device holds."""
        return self.tile - self.low + self.high

    @property
    def windowed(self) -> bool:
        """Whether anything but plain tiles is held."""
        return self.low != 0 or self.high != 0 or self.wrapped is not None

    def specified(self, n: int) -> tuple[int, int]:
        """The half-open range of indices at which elements are held, of a dimension of size n."""
        return (0, n) if self.wrapped is None else self.wrapped

    def __str__(self) -> str:
        axes = "-" if not self.axes else self.axes[0] if len(self.axes) == 1 else f"({','.join(self.axes)})"
        wrapped = "" if self.wrapped is None else f" wrapped {self.wrapped[0]}:{self.wrapped[1]}"
        return f"{axes}[{self.low:+d}:{self.high:+d}{wrapped}]" if self.windowed else axes


class Placement(NamedTuple):
    """A placed tensor: per dimension axes and tile; ``partial`` axes hold partial values to be combined by ``monoid``.

    Axes that occur nowhere replicate. ``partial`` is in mesh order; monoid is "" exactly when it is empty.
    """

    dims: tuple[Dim, ...]
    partial: tuple[str, ...] = ()
    monoid: str = ""

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple([d.tile - d.low + d.high for d in self.dims])

    @property
    def windowed(self) -> bool:
        """Whether some dimension is held with a window."""
        return any(d.windowed for d in self.dims)

    @property
    def sharded_axes(self) -> tuple[str, ...]:
        """The axes that shard some dimension, in order of dimensions."""
        return tuple(a for d in self.dims for a in d.axes)

    @property
    def used_axes(self) -> tuple[str, ...]:
        return self.sharded_axes + self.partial

    def local_type(self, type_: TensorType) -> TensorType:
        return TensorType(self.local_shape, type_.dtype)

    def __str__(self) -> str:
        """e.g. ``(x, -)``, ``((x,y), -)``, ``(x, -)+{y}`` for partial values over y, ``(x[-1:+1], -)`` for a halo."""
        text = f"({', '.join(map(str, self.dims))})"
        if self.partial:
            text += f"+{{{','.join(self.partial)}}}" + ("" if self.monoid == "add" else f":{self.monoid}")
        return text


@lru_cache(maxsize=65536)
def tile_size(n: int, shards: int, devices: int) -> int:
    """Tile size of a dimension of size n in ``shards`` shards on a mesh of ``devices``.

    n / shards where that is whole. Otherwise the dimension is padded, to a multiple of the device count where that
    wastes little (then the tiles of all axis combinations nest, and slicing or gathering an axis moves no boundary),
    and else to the next multiple of ``shards``.
    """
    if shards == 1 or n % shards == 0:
        return n // shards
    nested = -(-n // devices) * devices
    if nested <= n * (1 + NESTED_WASTE) and devices % shards == 0:
        return nested // shards
    return -(-n // shards)


def place(mesh: Mesh, shape: tuple[int, ...], axes: tuple[tuple[str, ...], ...], partial: tuple[str, ...] = (),
          monoid: str = "") -> Placement:
    """The placement of a tensor of this shape that shards dimension i along ``axes[i]``, with the standard tiles.

    Axes of one device say nothing, and are left out: a placement is what devices hold, however it was stated.
    """
    axes = tuple(tuple(a for a in dim if mesh.axes[a] > 1) for dim in axes)
    dims = tuple(Dim(a, tile_size(n, mesh.count(a), mesh.size)) for n, a in zip(shape, axes, strict=True))
    if partial:
        partial = tuple(a for a in mesh.axes if a in partial and mesh.axes[a] > 1)
    return Placement(dims, partial, monoid if partial else "")


def dividing(mesh: Mesh, axes: tuple[str, ...], n: int) -> tuple[str, ...]:
    """The longest prefix of some axes that cuts a dimension of size n into equal parts."""
    for count in range(len(axes), 0, -1):
        if n % mesh.count(axes[:count]) == 0:
            return axes[:count]
    return ()


def replicated(shape: tuple[int, ...]) -> Placement:
    """Every device holds everything."""
    return Placement(tuple(Dim((), n) for n in shape))


def held(mesh: Mesh, shape: tuple[int, ...], placement: Placement) -> np.ndarray:
    """``[devices, rank, 2]``: the half-open box of global indices that each device holds, clipped to the tensor.

    Not for wrapped windows, which are no boxes.
    """
    out = np.zeros((mesh.size, len(shape), 2), np.int64)
    for i, (n, d) in enumerate(zip(shape, placement.dims, strict=True)):
        start = mesh.index(d.axes) * d.tile + d.low
        out[:, i, 0] = np.clip(start, 0, n)
        out[:, i, 1] = np.clip(start + d.size, 0, n)
    return out


def missing_elements(mesh: Mesh, shape: tuple[int, ...], source: Placement, target: Placement) -> np.ndarray:
    """``[devices]``: elements that each device needs for ``target`` and does not hold in ``source``.

    Times the element size this bounds from below the bytes that a device receives, whatever the collectives.
    For a partial source every element is needed by somebody from all partial values; the bound counts needed minus
    held.
    """
    have, need = held(mesh, shape, source), held(mesh, shape, target)
    needed = np.prod(np.maximum(need[..., 1] - need[..., 0], 0), axis=1)
    low = np.maximum(have[..., 0], need[..., 0])
    high = np.minimum(have[..., 1], need[..., 1])
    missing: np.ndarray = needed - np.prod(np.maximum(high - low, 0), axis=1)
    return missing


def is_even(shape: tuple[int, ...], placement: Placement, mesh: Mesh) -> bool:
    """Whether no device holds indices past the tensor's end."""
    return all(
        n == d.tile * mesh.count(d.axes) and not d.windowed for n, d in zip(shape, placement.dims, strict=True)
    )


def is_standard(mesh: Mesh, shape: tuple[int, ...], placement: Placement) -> bool:
    """Whether every dimension has the standard tiles and no window: what routes between shardings start and end at."""
    return all(
        d.tile == tile_size(n, mesh.count(d.axes), mesh.size) and not d.windowed
        for n, d in zip(shape, placement.dims, strict=True)
    )
