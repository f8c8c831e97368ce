"""Windows to try steps on, and what devices hold of them, by slicing the whole array."""

from functools import reduce

import ml_dtypes
import numpy as np
from tests.emit.devices import plan_of

from eggshard.placement.windows import slab_exchange
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place, tile_size
from eggshard.program.types import TensorType
from eggshard.simulate.device_arrays import poison
from eggshard.simulate.simulator import run
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange

MESHES = [
    Mesh({"x": 8}),
    Mesh({"x": 4, "y": 2}),
    Mesh({"x": 2, "y": 4}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5)),
    Mesh({"x": 2, "y": 2, "z": 2}),
    Mesh({"x": 2, "y": 2, "z": 2}, device_ids=(6, 1, 4, 2, 7, 0, 3, 5)),
    Mesh({"x": 3, "y": 2}),
]
DTYPES = [np.float32, ml_dtypes.bfloat16, np.int32, np.bool_, np.complex64]


def shards_of(mesh, array, placement):
    """([devices, *local shape] of the array, whether each element lies in the tensor); zeros outside."""
    values, inside = [], []
    for device in range(mesh.size):
        index, within = [], []
        for n, dim in zip(array.shape, placement.dims, strict=True):
            held = mesh.index(dim.axes)[device] * dim.tile + dim.low + np.arange(dim.size)
            start, stop = dim.specified(n)
            within.append((held >= start) & (held < stop))
            index.append(held % n)
        inside.append(reduce(np.logical_and.outer, within))
        values.append(np.where(inside[-1], array[np.ix_(*index)], np.zeros((), array.dtype)))
    return np.stack(values), np.stack(inside)


def random_array(rng, shape, dtype):
    """Distinct elements as far as the type has them."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    return (rng.permutation(int(np.prod(shape))) + 1).reshape(shape).astype(dtype)


def random_axes(rng, mesh):
    """Some axes in some order."""
    axes = [str(a) for a in rng.permutation(list(mesh.axes))]
    return tuple(axes[: rng.integers(1, len(axes) + 1)])


def random_window(rng, mesh, n, axes, plain=0.3, tile=None):
    """A window along axes: plain tiles, a halo, a shifted grid or anything else."""
    tile = tile or tile_size(n, mesh.count(axes), mesh.size)
    if rng.random() < plain:
        return Dim(axes, tile)
    low, high = (int(rng.integers(-tile - 2, min(tile, 3) + 1)) for _ in range(2))
    if rng.random() < 0.5:
        low, high = min(low, 0), max(-high, 0)
    if tile - low + high < 1:
        high = low + 1 - tile
    wrapped = (low - int(rng.integers(0, 3)), n + int(rng.integers(-2, tile + 4))) if rng.random() < 0.3 else None
    return Dim(axes, tile, low, high, wrapped)


def random_exchange(rng, same_grid=0.7):
    """(mesh, shape, source placement, target placement, the step between them); None where there is no way."""
    mesh = MESHES[rng.integers(len(MESHES))]
    axes = random_axes(rng, mesh)
    rank = int(rng.integers(1, 4))
    dim = int(rng.integers(rank))
    shape = [int(n) for n in rng.integers(1, 5, rank)]
    n = shape[dim] = int(rng.integers(1, 4 * mesh.count(axes) + 2))
    source = random_window(rng, mesh, n, axes)
    target = random_window(rng, mesh, n, axes, 0.15)
    if rng.random() > same_grid:
        tile = tile_size(n + int(rng.integers(1, 6)), mesh.count(axes), mesh.size)
        target = random_window(rng, mesh, n, axes, 0.15, tile)
    if rng.random() < 0.1:
        source = Dim(axes, 0, 0, n)
    action = step_between(mesh, n, dim, source, target)
    if action is None:
        return None
    # What is left of the mesh replicates, or shards another dimension.
    others = [()] * rank
    rest = tuple(a for a in mesh.axes if a not in axes)
    if rank > 1 and rest and rng.random() < 0.5:
        others[(dim + 1) % rank] = rest
    placed = place(mesh, tuple(shape), tuple(others))
    placements = [Placement((*placed.dims[:dim], d, *placed.dims[dim + 1 :])) for d in (source, target)]
    return mesh, tuple(shape), *placements, action


def step_between(mesh, n, dim, source, target):
    """The step from one window to another; None where there is none."""
    found = slab_exchange(n, mesh.count(target.axes), source, target)
    if found is None:
        return None
    if not found.rounds:
        return Crop(dim, target.axes, target.size, found.offsets)
    return HaloExchange(dim, target.axes, target.size, found.offsets, found.rounds)


def random_fill(rng):
    """(mesh, shape, placement, the filling of one dimension's edges, how far out it reaches)."""
    mesh = MESHES[rng.integers(len(MESHES))]
    axes = random_axes(rng, mesh)
    rank = int(rng.integers(1, 4))
    dim, mode = int(rng.integers(rank)), str(rng.choice(["edge", "reflect", "symmetric"]))
    shape = [int(n) for n in rng.integers(1, 5, rank)]
    n = shape[dim] = int(rng.integers(2, 4 * mesh.count(axes) + 2))
    tile = tile_size(n, mesh.count(axes), mesh.size)
    window = Dim(axes, tile, -int(rng.integers(0, tile + 4)), int(rng.integers(0, tile + 4)))
    dims = [Dim((), m) for m in shape]
    dims[dim] = window
    return mesh, tuple(shape), Placement(tuple(dims)), EdgeFill(dim, window, n, mode), {
        "edge": mesh.size * tile + tile + 4, "reflect": n - 1, "symmetric": n}[mode]


def random_box(rng):
    """(mesh, shape, placement, a box on some of its windows)."""
    mesh = MESHES[rng.integers(len(MESHES))]
    axes = [str(a) for a in rng.permutation(list(mesh.axes))]
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, 20, rank))
    dims, box = [], []
    for d, n in enumerate(shape):
        mine, axes = tuple(axes[: rng.integers(0, 3)]), axes[2:]
        dim = random_window(rng, mesh, n, mine)._replace(wrapped=None) if mine else Dim((), n)
        dims.append(dim)
        if rng.random() < 0.8:
            start, stop = (int(i) for i in rng.integers(-2, n + 3, 2))
            box.append((d, dim, min(start, stop), max(start, stop)))
    return mesh, shape, Placement(tuple(dims)), BoxSelect(tuple(box))


def poisoned_shards(mesh, array, placement):
    """The shards of an array with poison outside it."""
    shards, inside = shards_of(mesh, array, placement)
    return np.where(inside, shards, poison(array.dtype))


def specified(mesh, actions, placement, shape):
    """Where a chain of actions on one shard leaves specified data, ``[devices, *local shape]``."""
    plan = plan_of(mesh, [TensorType(placement.local_shape, "f32")], *actions)
    (out,) = run(plan, [poisoned_shards(mesh, np.zeros(shape, np.float32), placement)])
    return ~np.isnan(out)
