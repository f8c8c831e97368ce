"""Device meshes: named axes over a grid of devices (Shardy's model)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from eggshard.errors import MeshError, printable

#: Plans keep figures of every device, so meshes are bounded.
MAX_DEVICES = 1 << 20


class Mesh:
    """Named axes with sizes, first axis major; device ``i`` of the grid is logical device ``device_ids[i]``.

    >>> Mesh({"x": 4, "y": 2}).size
    8
    """

    def __init__(self, axes: Mapping[str, int] | Iterable[tuple[str, int]], device_ids: Iterable[int] | None = None):
        items = list(axes.items() if isinstance(axes, Mapping) else axes)
        if any(not isinstance(item, (tuple, list)) or len(item) != 2 for item in items):
            raise MeshError(f"mesh axes {items} are not pairs of a name and a size; write Mesh({{'x': 4, 'y': 2}})")
        for name, size in items:
            if not isinstance(name, str) or not name or printable(name) != name:
                raise MeshError(f"mesh axis name {name!r} is not a non-empty string without control characters")
            if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
                raise MeshError(f"mesh axis {name!r} has size {size!r}; a size is a positive integer")
        self.axes: dict[str, int] = {name: int(size) for name, size in items}
        if len(self.axes) != len(items):
            raise MeshError(f"mesh axes {[name for name, _ in items]} repeat a name")
        if self.size > MAX_DEVICES:
            raise MeshError(f"mesh {self.axes} has {self.size} devices; at most {MAX_DEVICES} are supported")
        ids = None if device_ids is None else tuple(int(i) for i in device_ids)
        if ids is not None and sorted(ids) != list(range(self.size)):
            raise MeshError(f"device_ids of mesh {self.axes} must be a permutation of 0..{self.size - 1}, not {ids}")
        self.device_ids = None if ids == tuple(range(self.size)) else ids
        self._key = (tuple(self.axes.items()), self.device_ids)

    @classmethod
    def of(cls, mesh: Any) -> Mesh:
        """A mesh from a ``Mesh``, a mapping, or a JAX (abstract or concrete) mesh."""
        if isinstance(mesh, Mesh):
            return mesh
        if isinstance(mesh, Mapping):
            return cls(mesh)
        if hasattr(mesh, "axis_names") and hasattr(mesh, "axis_sizes"):
            return cls(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
        raise MeshError(f"cannot read a mesh from {type(mesh).__name__}; give eggshard.Mesh, a dict, or a JAX mesh")

    @cached_property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axes.values())

    @cached_property
    def grid(self) -> np.ndarray:
        """Logical device ids in the shape of the mesh."""
        ids = np.arange(self.size) if self.device_ids is None else np.asarray(self.device_ids)
        return ids.reshape(tuple(self.axes.values()))

    @cached_property
    def shard_counts(self) -> tuple[int, ...]:
        """The numbers of shards, above 1, that sets of axes make, in ascending order."""
        counts = {1}
        for size in self.axes.values():
            counts |= {size * count for count in counts}
        return tuple(sorted(counts - {1}))

    def count(self, axes: Iterable[str]) -> int:
        """The number of devices along some axes."""
        return math.prod(self.axes[a] for a in axes)

    @cached_property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Per axis, the coordinate of each logical device id (shape ``[size]``)."""
        out = {}
        for axis, index in zip(self.axes, np.indices(self.grid.shape), strict=True):
            column = np.empty(self.size, np.int64)
            column[self.grid.reshape(-1)] = index.reshape(-1)
            out[axis] = column
        return out

    def index(self, axes: Iterable[str]) -> np.ndarray:
        """Mixed-radix position along ``axes`` (first is major) of each logical device id, shape ``[size]``."""
        out = np.zeros(self.size, np.int64)
        for axis in axes:
            out = out * self.axes[axis] + self.coordinates[axis]
        return out

    def groups(self, axes: Iterable[str]) -> np.ndarray:
        """Replica groups ``[groups, group size]`` of logical device ids that differ only along ``axes``.

        Within a group devices stand in mixed-radix order of ``axes`` as given (first is major).
        """
        axes = tuple(axes)
        names = list(self.axes)
        rest = [i for i, name in enumerate(names) if name not in axes]
        order = rest + [names.index(a) for a in axes]
        return self.grid.transpose(order).reshape(-1, self.count(axes))

    def mirrored(self, axes: Iterable[str]) -> np.ndarray:
        """Logical device ids in the shape of the mesh, each at the other end of these axes."""
        names = list(self.axes)
        return np.flip(self.grid, tuple(names.index(a) for a in axes))

    def refined(self, cuts: Mapping[str, Iterable[int]]) -> Mesh:
        """The mesh whose axes are the sub-axes of this one got by cutting axis ``a`` at the pre-sizes ``cuts[a]``.

        A cut ``p`` of an axis of size n splits it into a major part of size p and a minor part of size n/p.
        Parts are named in Shardy's spelling, ``x:(1)2``; axes without cuts keep their names.
        """
        out: list[tuple[str, int]] = []
        for name, size in self.axes.items():
            points = [1, *sorted({int(c) for c in cuts.get(name, ())} - {1, size}), size]
            for pre, post in zip(points, points[1:], strict=False):
                if post % pre:
                    raise MeshError(f"sub-axes of {name!r} (size {size}) overlap: {pre} does not divide {post}")
                whole = len(points) == 2
                out.append((name if whole else f"{name}:({pre}){post // pre}", post // pre))
            if len(points) == 2 and size == 1:
                out[-1] = (name, 1)
        return Mesh(out, self.device_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        ids = "" if self.device_ids is None else f", device_ids={list(self.device_ids)}"
        return f"Mesh({self.axes}{ids})"
