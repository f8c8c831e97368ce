"""Simulation of steps on windows: shards that overlap (with halos) or are on a shifted grid.

An array is ``[devices, *local shape]``. Whatever a step leaves unspecified is poisoned.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eggshard.errors import LoweringError, VerificationError
from eggshard.ops.windowing import repeated_index
from eggshard.placement.windows import Segment, segments
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.simulate.device_arrays import PERFORMED, Arrays, poison, poisoned, same_bits
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, WindowExchange, local_range


def scatter_windows(mesh: Mesh, array: np.ndarray, placement: Placement) -> np.ndarray:
    """``[devices, *local shape]``: what each device's windows hold of an array, poison outside it."""
    out: np.ndarray = np.broadcast_to(array, (mesh.size, *array.shape))
    for i, dim in enumerate(placement.dims):
        if not dim.axes and not dim.windowed:
            continue
        old, n = out, array.shape[i]
        shape = list(out.shape)
        shape[1 + i] = dim.size
        out = poisoned(tuple(shape), array.dtype)
        for devices, held in _by_position(mesh, n, dim):
            for s in held:
                out[_along(i, s.position, s.length, devices)] = old[_along(i, s.first, s.length, devices)]
    return out


def gather_windows(mesh: Mesh, shards: np.ndarray, shape: tuple[int, ...], placement: Placement) -> np.ndarray:
    """The array of this shape whose elements the devices hold in their windows, however often.

    VerificationError if two devices disagree on an element by any bit but those of NaNs, LoweringError if no device
    holds it.
    """
    out, seen = np.empty(shape, shards.dtype), np.zeros(shape, bool)
    held = [
        {int(p): segments(n, dim, int(p)) for p in np.unique(mesh.index(dim.axes))}
        for n, dim in zip(shape, placement.dims, strict=True)
    ]
    positions = [mesh.index(dim.axes) for dim in placement.dims]
    # Views of one array agree with each other.
    alike = shards.strides[0] == 0 and not any(dim.axes for dim in placement.dims)
    for device in range(1 if alike else mesh.size):
        for box in itertools.product(*(h[int(p[device])] for h, p in zip(held, positions, strict=True))):
            there = tuple(slice(s.first, s.first + s.length) for s in box)
            part = shards[device][tuple(slice(s.position, s.position + s.length) for s in box)]
            wrong = seen[there] & ~same_bits(out[there], part)
            if wrong.any():
                local = tuple(int(i) for i in np.argwhere(wrong)[0])
                index = tuple(s.first + i for s, i in zip(box, local, strict=True))
                raise VerificationError(
                    f"replicas at placement {placement} disagree at index {index}: {out[index]} and {part[local]} "
                    f"(seen from device {device})"
                )
            out[there], seen[there] = part, True
    if not seen.all():
        index = tuple(int(i) for i in np.argwhere(~seen)[0])
        raise LoweringError(
            f"no device holds index {index} of a tensor of shape {list(shape)} at placement {placement}; give it a "
            "placement whose windows cover the tensor"
        )
    return out


@PERFORMED.handles(Crop)
def _crop(action: Crop, mesh: Mesh, operands: Arrays) -> Arrays:
    return (_cropped(mesh, action, operands[0]),)


def _cropped(mesh: Mesh, action: Crop | HaloExchange, array: np.ndarray) -> np.ndarray:
    """Each old shard laid into its new one, which is poison elsewhere."""
    shape = list(array.shape)
    old, shape[1 + action.dim] = array.shape[1 + action.dim], action.new
    out = poisoned(tuple(shape), array.dtype)
    position = mesh.index(action.over)
    for p, offset in enumerate(action.offsets):
        low, high = max(0, offset), min(action.new, offset + old)
        if low < high:
            devices = position == p
            out[_along(action.dim, low, high - low, devices)] = array[
                _along(action.dim, low - offset, high - low, devices)
            ]
    return out


@PERFORMED.handles(WindowExchange)
def _exchange(action: WindowExchange, mesh: Mesh, arrays: Arrays) -> Arrays:
    """Each value cropped, then every load's slabs put where they belong. LoweringError for slabs that do not fit."""
    out = tuple(_cropped(mesh, part, x) for part, x in zip(action.exchanges, arrays, strict=True))
    groups = mesh.groups(action.axes)
    loads = [load for loads in action.travelling for load in loads]
    for i, slab in (*(pair for load in loads for pair in load), *action.staying):
        part = action.exchanges[i]
        for sender, receiver in slab.pairs:
            source, target = slab.source_starts[sender], slab.target_starts[receiver]
            if min(source, target) < 0 or source + slab.width > arrays[i].shape[1 + part.dim] or (
                target + slab.width > part.new
            ):
                raise LoweringError(f"a slab of width {slab.width} from {source} to {target} lies outside its shards")
            out[i][_along(part.dim, target, slab.width, groups[:, receiver])] = arrays[i][
                _along(part.dim, source, slab.width, groups[:, sender])
            ]
    return out


@PERFORMED.handles(BoxSelect)
def _box_select(action: BoxSelect, mesh: Mesh, operands: Arrays) -> Arrays:
    """The first operand inside the box, the second (a shard or a scalar) outside it."""
    inside, outside = operands
    rank = inside.ndim - 1
    within = np.ones((mesh.size, *(1,) * rank), bool)
    for dim, window, start, stop in action.box:
        index = np.arange(window.size)
        low, high = local_range(mesh, window, start, stop)
        rows = (index >= low[:, None]) & (index < high[:, None])
        within = within & np.expand_dims(rows, tuple(1 + i for i in range(rank) if i != dim))
    return (np.where(within, inside, outside.reshape(mesh.size, *(1,) * rank) if outside.ndim == 1 else outside),)


@PERFORMED.handles(EdgeFill)
def _edge_fill(action: EdgeFill, mesh: Mesh, operands: Arrays) -> Arrays:
    """What lies beyond the ends filled from inside; poison where the shard does not hold what belongs there."""
    (array,), window = operands, action.window
    start = mesh.index(window.axes)[:, None] * window.tile + window.low
    source = repeated_index(start + np.arange(window.size), action.size, action.mode)
    position = source - start
    held = (source >= 0) & (source < action.size) & (position >= 0) & (position < window.size)
    spread = tuple(1 + i for i in range(array.ndim - 1) if i != action.dim)
    taken = np.take_along_axis(
        array, np.expand_dims(np.where(held, position, 0), spread), axis=1 + action.dim
    )
    return (np.where(np.expand_dims(held, spread), taken, poison(array.dtype)),)


def _by_position(mesh: Mesh, n: int, dim: Dim) -> list[tuple[np.ndarray, list[Segment]]]:
    """Per position along the dimension's axes its devices, and what they hold of a dimension of size n."""
    position = mesh.index(dim.axes)
    return [(np.flatnonzero(position == p), segments(n, dim, p)) for p in range(mesh.count(dim.axes))]


def _along(dim: int, start: int, length: int, devices: np.ndarray) -> tuple[Any, ...]:
    """The index of rows along a local dimension on some devices."""
    return (devices, *(slice(None),) * dim, slice(start, start + length))
