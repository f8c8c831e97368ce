"""What a window form says, taken literally in NumPy: the meaning that every lowering of it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.ops.base import OpDef
from eggshard.ops.windowing import EDGE_MODES, Box, Filled, Layer, WindowForm, repeated_index
from eggshard.program import monoids
from eggshard.program.placement import Dim
from eggshard.program.program import Region
from eggshard.program.types import mlir_dtype

#: The global index at which a shard begins along each of its dimensions.
Corner = tuple[int, ...]


def shard(array: np.ndarray, dims: Sequence[Dim], devices: Sequence[int], poison: np.generic) -> np.ndarray:
    """What the device at these positions along each dimension's axes holds; ``poison`` where that is unspecified."""
    for axis, (dim, d) in enumerate(zip(dims, devices, strict=True)):
        n = array.shape[axis]
        index = d * dim.tile + dim.low + np.arange(dim.size)
        held = np.take(array, index % n, axis) if n else np.full(_resized(array, axis, dim.size), poison)
        start, stop = dim.specified(n)
        outside = ((index < start) | (index >= stop)).reshape((-1,) + (1,) * (array.ndim - axis - 1))
        array = np.where(outside, poison, held)
    return array


def corner(dims: Sequence[Dim], devices: Sequence[int]) -> Corner:
    """The global index of a shard's first element."""
    return tuple(d * dim.tile + dim.low for dim, d in zip(dims, devices, strict=True))


def apply_form(
    definition: OpDef, form: WindowForm, arrays: Sequence[np.ndarray], corners: Sequence[Corner], result: Corner,
    windowed: frozenset[int], regions: tuple[Region, ...] = (),
) -> tuple[np.ndarray, ...]:
    """The op's results on one device from what it holds of the operands; ``corners``: where those begin."""
    given, arrays = arrays, list(arrays)
    for fill in form.fills:
        arrays[fill.operand] = _filled(arrays[fill.operand], corners[fill.operand], fill, given)
    if form.layers:
        out = np.array(arrays[form.layers[0].operand])
        for layer in form.layers[1:]:
            _overlay(out, arrays[layer.operand], result, layer, windowed)
        return (out,)
    return (arrays[0],) if form.attributes is None else definition.evaluate(form.attributes, arrays, regions)


def _filled(x: np.ndarray, corner: Corner, fill: Filled, given: Sequence[np.ndarray]) -> np.ndarray:
    if fill.value in EDGE_MODES:
        for dim, start, stop in fill.box:
            assert start == 0
            index = repeated_index(corner[dim] + np.arange(x.shape[dim]), stop, str(fill.value)) - corner[dim]
            x = np.take(x, np.clip(index, 0, x.shape[dim] - 1), dim)
        return x
    value = given[fill.value] if isinstance(fill.value, int) else monoids.identity(fill.value, mlir_dtype(x.dtype))
    return np.where(_inside(x.shape, corner, fill.box), x, np.asarray(value).astype(x.dtype))


def _overlay(out: np.ndarray, x: np.ndarray, corner: Corner, layer: Layer, windowed: frozenset[int]) -> None:
    whole = {dim: slice(start, stop) for dim, start, stop in layer.box if dim not in windowed}
    view = out[tuple(whole.get(dim, slice(None)) for dim in range(out.ndim))]
    box = tuple(b for b in layer.box if b[0] in windowed)
    view[...] = np.where(_inside(view.shape, corner, box), x, view)


def _inside(shape: tuple[int, ...], corner: Corner, box: Box) -> np.ndarray:
    inside = np.ones(shape, np.bool_)
    for dim, start, stop in box:
        index = corner[dim] + np.arange(shape[dim])
        inside &= ((index >= start) & (index < stop)).reshape((-1,) + (1,) * (len(shape) - dim - 1))
    return inside


def _resized(array: np.ndarray, axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if i == axis else n for i, n in enumerate(array.shape))
