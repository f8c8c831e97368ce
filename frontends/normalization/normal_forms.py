"""Rewriting of regions into normal form, where data movement is explicit instead of encoded in many ops or in indices.

A slice, update, gather or scatter at constant indices moves data in a way known at planning time. It becomes slices,
reverses, concatenations and updates at fixed positions, whose algebra the rewrites know and which neighbouring shards
can compute; at data-dependent indices, every device would need the whole tensor. A concatenation of parts of one
tensor becomes a rotation or extension of it.

The rewrites find the same forms in an e-graph. They are found here first because there every slice of every part of a
concatenation would be explored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from eggshard.frontends.normalization.batch_indices import AT_COUNTED
from eggshard.frontends.normalization.dead_ops import without_dead_ops
from eggshard.frontends.normalization.empty_values import without_empty_values
from eggshard.frontends.normalization.index_maps import joined, recognise, runs_of
from eggshard.frontends.normalization.known_courses import without_known_courses
from eggshard.frontends.normalization.region_writer import Constants, Form, RegionWriter
from eggshard.ops.reductions.monoids import SET
from eggshard.ops.windowing import Run
from eggshard.ops.windows import Windows
from eggshard.program import monoids
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType

#: Slices of which a gather may consist along one dimension.
_MAX_PARTS = 4


def finished(region: Region) -> Region:
    """Return a region as read by a front end, in normal form and without dead ops."""
    return without_dead_ops(in_normal_form(without_known_courses(without_empty_values(region))))


def in_normal_form(region: Region) -> Region:
    """Rewrite indexing at constants into static ops, at counted places into batched ones, and concatenations into the
    rotations and extensions that they are."""
    for forms in (_AT_CONSTANTS, AT_COUNTED, _OF_PARTS):
        region = RegionWriter(region, forms).write()
    return region


def _along(start: np.ndarray) -> int | None:
    """The one batch dimension that starts vary along, -1 if they are all equal; None if along several."""
    varying = [b for b in range(start.ndim) if start.shape[b] > 1 and np.any(np.diff(start, axis=b))]
    return None if len(varying) > 1 else varying[0] if varying else -1


class _Places(NamedTuple):
    """Where the windows of a gather or scatter lie, one dimension of the operand independently of the other.

    starts: along each dimension its indices (one, where it does not vary). walks: the batch dimension along which they
    vary, -1 where they do not.
    """

    starts: tuple[np.ndarray, ...]
    walks: tuple[int, ...]

    @classmethod
    def of(cls, starts: Sequence[np.ndarray], sizes: Sequence[int], batch: tuple[int, ...]) -> _Places | None:
        """None unless every batch dimension but those of size 1 walks exactly one dimension, whose windows have
        size 1."""
        walks, own = [], []
        for start, size in zip(starts, sizes, strict=True):
            b = _along(start)
            if b is None or not start.size or (b >= 0 and size != 1):
                return None
            walks.append(b)
            own.append(np.moveaxis(start, b, 0).reshape(start.shape[b], -1)[:, 0] if b >= 0 else start.reshape(-1)[:1])
        walked = [b for b in walks if b >= 0]
        if sorted(walked) != [b for b, n in enumerate(batch) if n > 1]:
            return None
        return cls(tuple(own), tuple(walks))


def _static_gather(writer: RegionWriter, op: Op) -> int | None:
    """Windows at constant indices: a slice, or a concatenation of few."""
    x, (indices,) = op.operands[0], writer.constants.arrays(op.operands[1:]) or (None,)
    operand, sizes = writer.region.types[x], op.attributes["slice_sizes"]
    result = writer.region.types[op.results[0]]
    if not operand.elements or not result.elements:
        return None
    windows = Windows.of_gather(op.attributes["dimension_numbers"])
    if _gathers_all(op, writer.constants):
        window = writer.slice(writer.number[x], [(0, k, 1) for k in sizes])
        window = writer.reshape(window, [sizes[d] for d in windows.operand_window_dims(operand.rank)])
        return writer.broadcast(window, result.shape, windows.window_dims)
    if indices is None:
        return None
    starts = windows.starts(operand.shape, indices)
    starts = [np.clip(s, 0, n - k) for s, n, k in zip(starts, operand.shape, sizes, strict=True)]
    places = _Places.of(starts, sizes, windows.batch_shape(indices.shape))
    if places is None:
        return None
    runs: dict[int, list[Run]] = {}
    for d in range(operand.rank):
        if places.walks[d] >= 0:
            found = runs_of(places.starts[d])
            if found is None or len(found) > _MAX_PARTS:
                return None
            runs[d] = found
    bounds = [(int(s[0]), int(s[0]) + k, 1) for s, k in zip(places.starts, sizes, strict=True)]
    for d, own in runs.items():
        bounds[d] = own[0].bounds if len(own) == 1 else (0, operand.shape[d], 1)
    y = writer.slice(writer.number[x], bounds)
    for d, own in runs.items():
        extended = _extended(writer, y, own, d) if len(own) > 1 else None
        y = writer.picked(y, d, own if len(own) > 1 else [own[0].inside]) if extended is None else extended
    where = dict(zip(windows.batch_dims(result.rank), range(result.rank), strict=False))
    source: dict[int, int] = {}  # result dimension: the operand's
    for d, b in enumerate(places.walks):
        if b >= 0:
            source[next(r for r, i in where.items() if i == b)] = d
    source.update(zip(windows.window_dims, windows.operand_window_dims(operand.rank), strict=True))
    order = [source[r] for r in sorted(source)]
    order += [d for d in range(operand.rank) if d not in order]
    return writer.arrange(y, order, result.shape)


def _static_scatter(writer: RegionWriter, op: Op) -> int | None:
    """Updates that fill one box of the tensor, maybe with a stride."""
    monoid = op.attributes.get("monoid")
    if op.regions or len(op.operands) != 3 or monoid is None:
        return None
    indices = writer.constants.array(op.operands[1])
    operand, updates = (writer.region.types[op.operands[i]] for i in (0, 2))
    if indices is None or not operand.elements or not updates.elements:
        return None
    windows = Windows.of_scatter(op.attributes["scatter_dimension_numbers"])
    walked = windows.operand_window_dims(operand.rank)
    window = {d: updates.shape[w] for d, w in zip(walked, windows.window_dims, strict=True)}
    sizes = [window.get(d, 1) for d in range(operand.rank)]
    starts = windows.starts(operand.shape, indices)
    outside = [np.any((s < 0) | (s > n - k)) for s, n, k in zip(starts, operand.shape, sizes, strict=True)]
    batch = windows.batch_shape(indices.shape)
    x = writer.number[op.operands[0]]
    if any(outside):
        return x if all(n == 1 for n in batch) else None
    places = _Places.of(starts, sizes, batch)
    if places is None:
        return None
    runs = [own[0] if own is not None and len(own) == 1 else None for own in map(runs_of, places.starts)]
    target: dict[int, int] = dict(zip(walked, windows.window_dims, strict=True))  # operand dimension: the update's
    batch_dims = windows.batch_dims(updates.rank)
    bounds, reverse = [], []
    for d, (run, k) in enumerate(zip(runs, sizes, strict=True)):
        if run is None or (run.length > 1 and run.step == 0):
            return None
        if places.walks[d] >= 0:
            target[d] = batch_dims[places.walks[d]]
            bounds.append(run.bounds)
            reverse += [d] if run.step < 0 else []
        else:
            bounds.append((run.start, run.start + k, 1))
    order = [target[d] for d in range(operand.rank) if d in target]
    order += [u for u in range(updates.rank) if u not in order]
    shape = [-(-(b - a) // s) for a, b, s in bounds]
    update = writer.arrange(writer.number[op.operands[2]], order, shape)
    if reverse:
        update = writer.op("reverse", update, dimensions=tuple(reverse))
    if monoid != SET:
        update = writer.op(monoids.monoid(monoid).op, writer.slice(x, bounds), update)
    if all(s == 1 for _, _, s in bounds):
        return writer.update(x, update, [a for a, _, _ in bounds])
    return _strided_update(writer, x, update, bounds)


def _strided_update(writer: RegionWriter, x: int, update: int, bounds: list[tuple[int, int, int]]) -> int:
    """x with every stride-th element of a box set: both spread by padding, and a choice between them."""
    type_ = writer.type_of(x)
    widths = {
        "edge_padding_low": tuple(a for a, _, _ in bounds),
        "edge_padding_high": tuple(
            n - (a + (k - 1) * s + 1)
            for n, k, (a, _, s) in zip(type_.shape, writer.type_of(update).shape, bounds, strict=True)
        ),
        "interior_padding": tuple(s - 1 for _, _, s in bounds),
    }
    shape = writer.type_of(update).shape
    mask = writer.op("pad", writer.splat(True, TensorType(shape, "i1")), writer.scalar(False, "i1"), **widths)
    spread = writer.op("pad", update, writer.scalar(0, type_.dtype), **widths)
    return writer.op("select", mask, spread, x)


def _static_slice(writer: RegionWriter, op: Op) -> int | None:
    """A dynamic slice at constants."""
    starts = _starts(op, writer.constants, op.operands[1:], op.attributes["slice_sizes"])
    if starts is None:
        return None
    bounds = [(a, a + k, 1) for a, k in zip(starts, op.attributes["slice_sizes"], strict=True)]
    return writer.slice(writer.number[op.operands[0]], bounds)


def _static_update(writer: RegionWriter, op: Op) -> int | None:
    """A dynamic update at constants."""
    x, update, *indices = op.operands
    starts = _starts(op, writer.constants, indices, writer.region.types[update].shape)
    return None if starts is None else writer.update(writer.number[x], writer.number[update], starts)


def _starts(op: Op, constants: Constants, indices: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """Where a window lies, if that is known: indices are clamped so that it fits, and do not matter where it is all."""
    starts = []
    for index, n, k in zip(indices, constants.types[op.operands[0]].shape, sizes, strict=True):
        array = np.zeros(()) if n == k else constants.array(index)
        if array is None:
            return None
        starts.append(max(0, min(int(array), n - k)))
    return starts


def _gathers_known(op: Op, constants: Constants) -> bool:
    """Whether it is known where a gather's windows lie."""
    return _gathers_all(op, constants) or constants.array(op.operands[1]) is not None


def _gathers_all(op: Op, constants: Constants) -> bool:
    """Whether a gather's windows are as large as what they move in, so that their indices do not matter."""
    windows = Windows.of_gather(op.attributes["dimension_numbers"])
    shape, sizes = constants.types[op.operands[0]].shape, op.attributes["slice_sizes"]
    return not windows.operand_batching and all(shape[d] == sizes[d] for d in windows.index_map)


def _padded_over(op: Op, constants: Constants) -> bool:
    """Whether a pad cuts all that there is along some dimension."""
    names = ("edge_padding_low", "interior_padding")
    shapes = (constants.types[v].shape for v in (op.operands[0], op.results[0]))
    for n, size, low, inner in zip(*shapes, *(op.attributes[name] for name in names), strict=True):
        first = max(0, -(low // (inner + 1)))
        if first >= n or low + first * (inner + 1) >= size:
            return True
    return False


def _padding_alone(writer: RegionWriter, op: Op) -> int:
    return writer.broadcast(writer.number[op.operands[1]], writer.region.types[op.results[0]].shape)


def _joined_parts(writer: RegionWriter, op: Op) -> int | None:
    """A concatenation without its empty parts, and with what it puts around parts of a tensor as one op."""
    dim = op.attributes["dimension"]
    parts = [v for v in op.operands if writer.region.types[v].shape[dim]]
    values: list[int] = []
    maps = [(v, writer.maps.of(v, dim)) for v in parts]
    for _, group in groupby(maps, key=lambda pair: pair[1].root):
        members = list(group)
        found = joined([m for _, m in members])
        made = _extended(writer, writer.number[found.root], found.runs, dim) if len(members) > 1 else None
        values += [writer.number[v] for v, _ in members] if made is None else [made]
    if len(values) == len(op.operands) or not values:
        return None
    return writer.concatenate(values, dim)


def _extended(writer: RegionWriter, x: int, runs: Sequence[Run], dim: int) -> int | None:
    """Runs of indices along one dimension by rotations and extensions of x, or of one slice of it; None for others."""
    ops = recognise(tuple(runs))
    if ops is None:
        return None
    x = writer.part(x, dim, ops[0].start, ops[0].limit)
    for made in ops:
        if made.op:
            x = writer.op(made.op, x, dimension=dim, **made.attributes)
    return x


def _decided_select(writer: RegionWriter, op: Op) -> int | None:
    """A choice that is always the same, such as JAX's between gathered rows and a fill value."""
    chosen = writer.constants.uniform(op.operands[0])
    return None if chosen is None else writer.number[op.operands[1 if chosen else 2]]


def _updated_ends(writer: RegionWriter, op: Op) -> int | None:
    """An update by elements of the tensor itself that extends what is left of it, such as a boundary condition."""
    shape, box = (writer.region.types[v].shape for v in op.operands)
    changed = [d for d, (n, k) in enumerate(zip(shape, box, strict=True)) if n != k]
    if len(changed) != 1:
        return None
    found = writer.maps.of(op.results[0], changed[0])
    return _extended(writer, writer.number[found.root], found.runs, changed[0]) if found.root in writer.number else None


#: Indexing at constants.
_AT_CONSTANTS = {
    "dynamic_slice": Form(
        lambda op, known: _starts(op, known, op.operands[1:], op.attributes["slice_sizes"]) is not None, _static_slice
    ),
    "dynamic_update_slice": Form(
        lambda op, known: _starts(op, known, op.operands[2:], known.types[op.operands[1]].shape) is not None,
        _static_update,
    ),
    "gather": Form(_gathers_known, _static_gather),
    "scatter": Form(
        lambda op, constants: constants.array(op.operands[len(op.operands) // 2]) is not None, _static_scatter
    ),
    "pad": Form(_padded_over, _padding_alone),
    "select": Form(lambda op, constants: constants.uniform(op.operands[0]) is not None, _decided_select),
}
#: What puts parts of tensors together.
_OF_PARTS = {
    "concatenate": Form(lambda op, constants: len(op.operands) > 1, _joined_parts),
    "update_slice": Form(lambda op, constants: True, _updated_ends),
}
