"""Integers and truth values that are known on every device: what follows from constants and a device's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eggshard.errors import LoweringError
from eggshard.frontends.globalization.local_values import Local, Unreadable, tiled, uniform, whole
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.mesh import Mesh
from eggshard.program.program import Op
from eggshard.program.types import TensorType, mlir_dtype

#: Elements of such a value, those of all devices together, up to which it is evaluated.
_MOST_KNOWN = 1 << 18


class Known(NamedTuple):
    """The value on every device: ``[devices, ...]``."""

    array: np.ndarray


def evaluated(mesh: Mesh, op: Op, type_: TensorType, given: Sequence[object]) -> Known | None:
    """What an op makes on each device; None if that is not known, or too much to know."""
    if op.name in ("partition_id", "replica_id"):
        return Known((np.arange(mesh.size) if op.name == "partition_id" else np.zeros(mesh.size)).astype(np.uint32))
    known = [v.array for v in given if isinstance(v, Known)]
    if (not type_.dtype.startswith(("i", "ui")) or op.regions or len(known) < len(given)
            or type_.elements * mesh.size > _MOST_KNOWN or not registry.is_pure(op.name)):
        return None
    definition = registry.get(op.name)
    try:
        each = [definition.evaluate(op.attributes, [a[n] for a in known])[0] for n in range(mesh.size if known else 1)]
    except (NotImplementedError, LoweringError):  # it has no meaning in NumPy, or none on one device
        return None
    return Known(np.broadcast_to(np.stack(each), (mesh.size, *type_.shape)))


def axes_of(mesh: Mesh, array: np.ndarray) -> tuple[str, ...]:
    """The axes along which what is known of devices differs."""
    grid = array[mesh.grid]
    return tuple(a for i, a in enumerate(mesh.axes) if (grid != np.take(grid, [0], i)).any())


def as_tensor(mesh: Mesh, known: Known, write: RegionBuilder) -> Local:
    """Known integers as a global tensor: equal on all devices, one number on each, or along one line of all devices.

    Unreadable for others.
    """
    array, shape = known.array, known.array.shape[1:]
    axes = axes_of(mesh, array)
    if not axes:
        one = array[0]
        if one.size and (one == one.flat[0]).all():
            return Local((write.constant(one.flat[0].reshape(())),), tuple(map(uniform, shape)))
        return Local((write.constant(one),), tuple(whole(d, n) for d, n in enumerate(shape)))
    count = mesh.count(axes)
    placed = np.zeros((count, *shape), array.dtype)
    placed[mesh.index(axes)] = array
    walked = [d for d in range(len(shape)) if (placed != np.take(placed, [0], d + 1)).any()]
    if len(walked) > 1:
        raise Unreadable("integers that differ between devices vary along several dimensions")
    if not walked:
        root = write.constant(placed.reshape(count, -1)[:, 0])
        return Local((root,), tuple(map(uniform, shape)), (tiled(0, axes, count, 1),))
    (d,) = walked
    line = np.moveaxis(placed, d + 1, 1).reshape(count, shape[d], -1)[:, :, 0].reshape(-1)
    own = tiled(0, axes, count, shape[d])
    return Local((_line(line, write),), tuple(own if i == d else uniform(n) for i, n in enumerate(shape)))


def _line(line: np.ndarray, write: RegionBuilder) -> int:
    """Integers one after the other: counted where they go up in even steps, compared with counted ones where truth
    changes once, else a constant."""
    type_ = TensorType(line.shape, mlir_dtype(line.dtype))
    changes = np.flatnonzero(line[1:] != line[:-1]) + 1
    if type_.dtype == "i1" and len(changes) == 1:
        places = write.op("iota", iota_dimension=0, shape=line.shape, dtype="i32")
        at = write.splat(int(changes[0]), TensorType(line.shape, "i32"))
        return write.op("compare", places, at, comparison_direction="LT" if line[0] else "GE", compare_type="SIGNED")
    steps = np.diff(line.astype(np.int64))
    if type_.dtype == "i1" or (steps != steps[0]).any():
        return write.constant(line)
    root = write.op("iota", iota_dimension=0, shape=line.shape, dtype=type_.dtype)
    if steps[0] != 1:
        root = write.op("multiply", root, write.splat(int(steps[0]), type_))
    return write.op("add", root, write.splat(int(line[0]), type_)) if line[0] else root
