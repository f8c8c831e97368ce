"""Random steps of every kind that communicates, and of every kind that does not."""

from __future__ import annotations

import numpy as np
from tests.emit.windows import DTYPES, MESHES, random_array, random_box, random_exchange, random_fill, shards_of
from tests.reshard.reshards import between

from eggshard.ops.reductions.reduction import monoid_region
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.placement import place
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
)
from eggshard.steps.window_steps import Crop, JointExchange

COMMUNICATING = (
    "gather", "all-to-all", "permute", "exchange", "boxes", "window", "joint", "group", "reduce", "scatter",
)  # fmt: skip
_SCALARS = ("permute", "reduce", "keep-first", "first", "local")
ALONE = ("slice", "resize", "keep-first", "mask", "crop", "box", "edge", "number", "first", "local")


def random_action(rng, kind):
    """(mesh, action, operands ``[devices, *local shape]``)."""
    mesh = MESHES[rng.integers(len(MESHES))]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    axes = [str(a) for a in rng.permutation(list(mesh.axes))][: int(rng.integers(1, len(mesh.axes) + 1))]
    rank = int(rng.integers(0 if kind in _SCALARS else 1, 4))
    shape = [int(n) for n in rng.integers(1, 4, rank)]

    def moves(names, dims=range(rank)):
        """The axes in lists of one or several, each for a dimension; a dimension may come twice."""
        out, names = [], list(names)
        while names:
            k = int(rng.integers(1, len(names) + 1))
            out.append((int(rng.choice(list(dims))), tuple(names[:k])))
            del names[:k]
        return tuple(out)

    def values(shape, count=1):
        return tuple(
            np.stack([random_array(rng, shape, dtype) for _ in range(mesh.size)]) for _ in range(count)
        )

    def divisible(by):
        for dim, names in by:
            shape[dim] *= mesh.count(names)

    match kind:
        case "gather":
            return mesh, AllGather(moves(axes)), values(shape)
        case "all-to-all":
            shape.append(int(rng.integers(1, 4)))
            cut = int(rng.integers(1, rank + 1))
            targets = moves(axes, range(cut))
            shuffled = [str(a) for a in rng.permutation(axes)]
            sources = moves(shuffled, range(cut, rank + 1))
            divisible(targets)
            return mesh, AllToAll(sources, targets), values(shape)
        case "permute":
            senders, receivers = rng.permutation(mesh.size), rng.permutation(mesh.size)
            count = int(rng.integers(0, mesh.size + 1))
            pairs = tuple((int(s), int(r)) for s, r in zip(senders[:count], receivers[:count], strict=True))
            return mesh, CollectivePermute(pairs, tuple(mesh.axes)), values(shape)
        case "exchange":
            piece = tuple(int(rng.integers(0 if rng.random() < 0.1 else 1, n + 1)) for n in shape)
            new = tuple(int(p + rng.integers(0, 4)) for p in piece)

            def starts(of):
                return tuple(tuple(int(rng.integers(0, n - p + 1)) for n, p in zip(of, piece, strict=True))
                             for _ in range(mesh.size))

            def one(pairs):
                return Round(tuple((int(s), int(r)) for s, r in pairs), starts(shape), starts(new))

            stay = [(d, d) for d in range(mesh.size) if rng.random() < 0.7]
            rounds = [one(zip(rng.permutation(mesh.size), rng.permutation(mesh.size), strict=True)) for _ in range(3)]
            return mesh, Exchange(piece, new, tuple(rounds), (one(stay),), tuple(mesh.axes)), values(shape)
        case "boxes":
            whole = tuple(int(n) for n in rng.integers(1, 13, rank))
            source, target = (
                place(mesh, whole, tuple(tuple(a for a, d in zip(names, dims, strict=True) if d == i)
                                         for i in range(rank)))
                for names, dims in ((rng.permutation(axes).tolist(), rng.integers(0, rank + 1, len(axes)))
                                    for _ in range(2))
            )
            return mesh, between(mesh, whole, source, target), values(source.local_shape)
        case "window" | "joint" | "crop":
            found, wanted = [], 1 if kind != "joint" else int(rng.integers(2, 4))
            while len(found) < wanted:
                case = random_exchange(rng)
                if case is None or isinstance(case[-1], Crop) != (kind == "crop"):
                    continue
                if not found or (case[0], case[-1].over) == (found[0][0], found[0][-1].over):
                    found.append(case)
            operands = tuple(shards_of(c[0], random_array(rng, c[1], dtype), c[2])[0] for c in found)
            parts = tuple(c[-1] for c in found)
            return found[0][0], parts[0] if len(parts) == 1 else JointExchange(parts), operands
        case "group":
            n = int(rng.choice([k for k in range(1, mesh.size + 1) if mesh.size % k == 0]))
            groups = tuple(map(tuple, rng.permutation(mesh.size).reshape(-1, n).tolist()))
            name = str(rng.choice(["all_gather", "all_to_all", "all_reduce", "reduce_scatter"]))
            dim, other = (int(d) for d in rng.integers(0, rank, 2))
            given = dict(all_gather_dim=dim, split_dimension=dim, concat_dimension=other, split_count=n,
                         scatter_dimension=dim)
            if name in ("all_to_all", "reduce_scatter"):
                shape[dim] *= n
            result = list(shape)
            if name == "reduce_scatter":
                result[dim] //= n
            elif name == "all_gather":
                result[dim] *= n
            elif name == "all_to_all":
                result[dim] //= n
                result[other] *= n
            text = mlir_dtype(dtype)
            attributes = Attributes(replica_groups=groups, use_global_device_ids=True, **given)
            by = "or" if dtype == np.bool_ else "add"
            action = GroupCollective(name, attributes, (TensorType(tuple(result), text),), (monoid_region(by, text),))
            return mesh, action, values(shape)
        case "reduce":
            return mesh, AllReduce(tuple(axes), _monoid(rng, dtype)), values(shape, int(rng.integers(1, 4)))
        case "scatter":
            by = moves(axes)
            divisible(by)
            return mesh, ReduceScatter(by, _monoid(rng, dtype)), values(shape)
        case "slice":
            by = moves(axes)
            divisible(by)
            return mesh, Slice(by), values(shape)
        case "resize":
            return mesh, Resize(tuple(int(n) for n in rng.integers(1, 6, rank))), values(shape)
        case "keep-first":
            return mesh, KeepFirst(tuple(axes), _monoid(rng, dtype)), values(shape, 2)
        case "mask":
            dim = int(rng.integers(rank))
            size = int(rng.integers(0, shape[dim] * mesh.count(axes) + 1))
            return mesh, Mask(dim, tuple(axes), size, _monoid(rng, dtype)), values(shape)
        case "box" | "edge":
            mesh, shape, placement, action, *_ = (random_box if kind == "box" else random_fill)(rng)
            shards = shards_of(mesh, random_array(rng, shape, dtype), placement)[0]
            return mesh, action, (shards, np.flip(shards, 0)) if kind == "box" else (shards,)
        case "number":
            return mesh, DeviceNumber(tuple(int(n) for n in rng.integers(0, 99, mesh.size))), ()
        case "first" | "local":
            local = Local("negate" if dtype != np.bool_ else "not", Attributes(),
                          (TensorType(tuple(shape), mlir_dtype(dtype)),))
            return mesh, OnFirstDevice(local) if kind == "first" else local, values(shape)
    raise AssertionError(kind)


def _monoid(rng, dtype):
    return str(rng.choice(monoids.of_dtype(mlir_dtype(dtype))))
