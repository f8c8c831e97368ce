"""Layouts of values in an annotated module: what each device holds, in whole tiles, which determines local types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from eggshard.errors import ShardingError
from eggshard.program.axes import Axes, in_mesh_order, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place
from eggshard.program.sharding import Sharding, atoms, gather_cuts
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import TensorType
from eggshard.shardy.reshards.axis_lists import positions_along

#: The mesh of values that say nothing of theirs.
NO_MESH = Mesh({})


@dataclass(frozen=True, slots=True)
class Layout:
    """A value's type as its module states it, and the axes that cut it, in normal form and without axes of size 1.

    unreduced: the axes along which devices hold partial values by ``monoid`` (empty where there are none).
    """

    type: TensorType
    mesh: Mesh
    dims: tuple[Axes, ...]
    unreduced: Axes = ()
    monoid: str = ""

    @classmethod
    def whole(cls, type_: TensorType) -> Layout:
        """Every device holds everything."""
        return cls(type_, NO_MESH, ((),) * type_.rank)

    @classmethod
    def of(cls, type_: TensorType, sharding: TensorSharding, meshes: Mapping[str, Mesh | int], what: str) -> Layout:
        """What a stated sharding means. ShardingError, naming the value, where it does not fit or tiles are not whole.
        """
        mesh = sharding.mesh if isinstance(sharding.mesh, Mesh) else meshes.get(sharding.mesh)
        if mesh is None:
            raise ShardingError(f"{what}: mesh @{sharding.mesh} of {sharding} is not defined; define it with sdy.mesh")
        if isinstance(mesh, int) or sharding.sharding.device is not None:
            raise ShardingError(
                f"{what} ({type_}) lies on a single device ({sharding}); run resolve-single-device-sharding first"
            )
        sharding.sharding.validate(mesh, type_, what)
        kept = _normal(sharding.sharding, mesh)
        for i, (n, dim) in enumerate(zip(type_.shape, kept.dims, strict=True)):
            count = shard_count(dim.axes, mesh.axes)
            if n < 0 and count > 1:
                raise ShardingError(f"{what} has a sharded dimension of dynamic size; lower for static sizes")
            if n % count:
                raise ShardingError(
                    f"{what} ({type_}) is sharded as {sharding.sharding}: its dimension {i} of size {n} is not "
                    f"divisible into {count} shards; run pad-for-divisibility first"
                )
        monoid = kept.reduction if kept.unreduced else ""
        return cls(type_, mesh, tuple(d.axes for d in kept.dims), kept.unreduced, monoid)

    @property
    def sharded(self) -> bool:
        """Whether devices hold different parts of it."""
        return any(self.dims)

    @property
    def plain(self) -> bool:
        """Whether every device holds everything."""
        return not self.sharded and not self.unreduced

    @property
    def counts(self) -> tuple[int, ...]:
        """How many shards each dimension is cut into."""
        return tuple(shard_count(axes, self.mesh.axes) for axes in self.dims)

    @property
    def local(self) -> TensorType:
        """The type of a shard."""
        return self.type.with_shape(tuple(n // c for n, c in zip(self.type.shape, self.counts, strict=True)))

    def starts(self, dim: int) -> np.ndarray:
        """Per logical device, the index at which its shard begins."""
        return positions_along(self.mesh, self.dims[dim]) * self.local.shape[dim]

    def placement(self, mesh: Mesh) -> Placement:
        """Return the layout as a placement on ``mesh``, a refinement of the layout's own mesh."""
        dims = tuple(atoms(axes, mesh) for axes in self.dims)
        return place(mesh, self.type.shape, dims, atoms(self.unreduced, mesh), self.monoid)

    def partial(self, axes: Axes, monoid: str) -> Layout:
        """Return a copy that is a partial value under ``monoid`` over these axes, given in any order."""
        axes = in_mesh_order(axes, self.mesh.axes)
        return replace(self, unreduced=axes, monoid=monoid if axes else "")

    def __str__(self) -> str:
        shown = ", ".join(f"{{{', '.join(map(str, axes))}}}" for axes in self.dims)
        partial = f", {self.monoid} over {{{', '.join(map(str, self.unreduced))}}}" if self.unreduced else ""
        return f"[{shown}]{partial}"


def same_tiles(a: Layout, b: Layout) -> bool:
    """Whether every device holds the same tiles of both, whatever the axes and meshes are called."""
    return len(a.dims) == len(b.dims) and all(
        same_positions(a.mesh, x, b.mesh, y) for x, y in zip(a.dims, b.dims, strict=True)
    )


def same_layout(a: Layout, b: Layout) -> bool:
    """Whether every device holds the same of both, partial values included."""
    if not same_tiles(a, b) or a.monoid != b.monoid:
        return False
    return a.unreduced == b.unreduced and (not a.unreduced or a.mesh == b.mesh)


def same_positions(mesh: Mesh, axes: Axes, other_mesh: Mesh, other: Axes) -> bool:
    """Whether axes give every device the same position."""
    if mesh == other_mesh and axes == other:
        return True
    if not axes or not other:
        return not axes and not other
    if mesh.size != other_mesh.size or shard_count(axes, mesh.axes) != shard_count(other, other_mesh.axes):
        return False
    return bool((positions_along(mesh, axes) == positions_along(other_mesh, other)).all())


@lru_cache(maxsize=4096)
def refined(mesh: Mesh, *lists: Axes) -> Mesh:
    """The mesh cut so that all these axes are made of its axes; ShardingError if they do not fit together."""
    return mesh.refined(gather_cuts((Sharding(unreduced=axes) for axes in lists), mesh))


def _normal(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return a sharding in Shardy's normal form, without axes of size 1."""
    def kept(axes: Axes) -> Axes:
        return tuple(a for a in axes if a.devices(mesh.axes) > 1)

    dims = tuple(replace(d, axes=kept(d.axes)) for d in sharding.dims)
    return replace(sharding, dims=dims, unreduced=kept(sharding.unreduced)).canonical(mesh)
