"""Windows at data-dependent positions, on shards of the indexed tensor.

A window begins at global indices. A device subtracts the start of its shard and skips indices in other shards. A
window of several elements along a sharded dimension may span several shards, so it is taken apart: each element along
that dimension becomes a window of its own, and an extra index dimension replaces the window dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

from eggshard.ops.base import REPLICATE
from eggshard.ops.factor_table import Dimension, FactorTable
from eggshard.ops.shard_program import MOST_PLACES, ShardProgram
from eggshard.ops.windows import Windows


def indexed_dimension(table: FactorTable, size: int, window: int, kind: str, monoid: str = "") -> Dimension:
    """The factor of a dimension in which windows of this size begin where data says: a positional one of this kind."""
    if window and size <= MOST_PLACES:
        return table.new(size, kind, monoid, positional=True)
    return table.new(size, REPLICATE)


class LocalWindows(NamedTuple):
    """Windows of these sizes (along the operand's dimensions) in the coordinates of a device's shard.

    ``indices`` is the value of their index vectors; ``inside`` says, over the batch dimensions of ``windows``, which of
    them lie in the shard.
    """

    windows: Windows
    sizes: tuple[int, ...]
    indices: int
    inside: int


def local_windows(
    program: ShardProgram, windows: Windows, components: Sequence[int], sizes: Sequence[int], windowed: tuple[int, ...],
    clamped: bool,
) -> LocalWindows:
    """Windows in operand 0 of an op, localized.

    components: the index vectors' components, each over the batch dimensions. sizes: the windows' global sizes.
    windowed: the local shape of the windowed tensor. A window that would leave the tensor is moved into it if
    ``clamped``; else, and where it is not in the shard, its index is out of the shard's range.
    """
    x = program.operands[0]
    walked = dict(zip(windows.operand_window_dims(x.type.rank), windows.window_dims, strict=True))
    shifted = [d for d in windows.index_map if x.cut(d) and sizes[d] < x.type.shape[d]]
    apart = {d: walked[d] for d in shifted if sizes[d] > 1}
    batch = windows.batch_dims(len(windowed))
    walking = sorted({*batch, *apart.values()})
    where = [walking.index(b) for b in batch]
    shape = tuple(windowed[b] for b in walking)

    vectors, inside = [], []
    for d, component in zip(windows.index_map, components, strict=True):
        last = x.type.shape[d] - sizes[d]
        low, high = (0, last) if clamped else (-1, last + 1)
        place = program.broadcast(program.places(component, low, high), shape, where)
        if d in shifted:
            here = program.combine("subtract", place, program.start(x, d))
            if d in apart:
                here = program.op("add", here, program.counter(shape, walking.index(apart[d])))
            inside.append(program.within(here, x.local.shape[d]))
            if not clamped:
                kept = program.op("and", inside[-1], program.within(place, last + 1))
                here = program.op("select", kept, here, program.splat(-1, program.type_of(here)))
            place = here
        vectors.append(program.reshape(place, (*shape, 1)))

    batching = tuple(where[e - (e > windows.index_vector_dim)] for e in windows.indices_batching)
    local = Windows(
        tuple(w for w in windows.window_dims if w not in apart.values()), tuple(sorted({*windows.collapsed, *apart})),
        windows.operand_batching, batching, windows.index_map, len(shape),
    )
    dims = zip(sizes, x.type.shape, x.local.shape, strict=True)
    local_sizes = tuple(1 if d in apart else tile if k == n else k for d, (k, n, tile) in enumerate(dims))
    indices = program.op("concatenate", *vectors, dimension=len(shape)) if len(vectors) > 1 else vectors[0]
    return LocalWindows(local, local_sizes, indices, reduce(partial(program.op, "and"), inside))


def narrow_dimensions(windows: Windows, operand: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The operand's dimensions in which windows are smaller than it: those that are indexed, then the others.

    In the others, which no component of the index vectors stands for, windows begin at 0.
    """
    rest = [d for d in range(len(operand)) if d not in windows.index_map and d not in windows.operand_batching]
    return [d for d in (*windows.index_map, *rest) if sizes[d] != operand[d]]


def indexed_windows(
    program: ShardProgram, windows: Windows, indices: int, sizes: Sequence[int]
) -> tuple[Windows, list[int]]:
    """Windows of these sizes with an index for every dimension that is cut, and the components of the index vectors.

    indices: the value of the index vectors. Each component is over the batch dimensions.
    """
    x, type_ = program.operands[0], program.type_of(indices)
    components = _components(program, windows, indices)
    narrow = narrow_dimensions(windows, x.type.shape, sizes)
    added = [d for d in narrow if d not in windows.index_map and x.cut(d)]
    if added:
        zero = program.splat(0, type_.with_shape(windows.batch_shape(type_.shape)))
        components += [zero] * len(added)
    return windows._replace(index_map=(*windows.index_map, *added)), components


def _components(program: ShardProgram, windows: Windows, indices: int) -> list[int]:
    shape, dim = program.type_of(indices).shape, windows.index_vector_dim
    if dim == len(shape) or shape[dim] == 1:
        return [program.reshape(indices, windows.batch_shape(shape))]
    out = []
    for j in range(shape[dim]):
        starts = tuple(j if d == dim else 0 for d in range(len(shape)))
        limits = tuple(j + 1 if d == dim else n for d, n in enumerate(shape))
        one = program.op("slice", indices, start_indices=starts, limit_indices=limits, strides=(1,) * len(shape))
        out.append(program.reshape(one, windows.batch_shape(shape)))
    return out
