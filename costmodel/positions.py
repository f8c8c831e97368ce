"""Positions of a mesh's devices on a machine, and the extent of a collective's groups on each of its levels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from eggshard.costmodel.machines.algorithms import Line
from eggshard.costmodel.machines.topologies import Fabric, Torus
from eggshard.errors import CostModelError
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh

#: The most groups of a collective whose positions are examined; of more groups an even sample is taken.
_GROUPS = 256

#: On one level: over how many units a group spreads, and along which lines of a torus.
Extent = tuple[int, tuple[Line, ...]]
#: The extents of a group on all levels, the inner first.
Extents = tuple[Extent, ...]


class Positions:
    """The devices of one mesh on levels of a machine, the inner first.

    A level is a fabric and the number of units that it joins (0: any). Logical device i of the mesh is the i-th of the
    machine: the devices of a unit have successive numbers, and on a torus the last axis is minor. So the minor-most
    axes of a mesh lie innermost, and a mesh's device order counts. mapping: instead of this, for every axis of the mesh
    the name of the level that it lies on; several on one level lie there in the mesh's order.
    """

    def __init__(
        self, mesh: Mesh, names: Sequence[str], levels: Sequence[tuple[Fabric, int]], mapping: Mapping[str, str]
    ) -> None:
        self.mesh, self.names, self.levels, self.mapping = mesh, tuple(names), tuple(levels), mapping

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The mesh's whole axes: sub-axes put together again."""
        sizes: dict[str, int] = {}
        for axis, size in self.mesh.axes.items():
            base = axis_ref(axis).name
            sizes[base] = sizes.get(base, 1) * size
        return sizes

    @cached_property
    def units(self) -> tuple[int, ...]:
        """How many units of each level the mesh takes."""
        found, rest = [], self.mesh.size
        for k, (_, units) in enumerate(self.levels):
            if self.mapping:
                taken = math.prod(n for a, n in self.sizes.items() if self.mapping[a] == self.names[k])
                if units and taken > units:
                    raise CostModelError(f"{taken} devices along the axes of {self.mesh} that lie on level "
                                         f"{self.names[k]!r}, which has {units}")
            else:
                taken = min(units, rest) if units else rest
            found.append(taken)
            rest = -(-rest // taken)
        if rest > 1:
            raise CostModelError(
                f"{self.mesh} has {self.mesh.size} devices; the machine's levels hold {math.prod(found)}: give it a "
                "level without a number of units, such as a network"
            )
        return tuple(found)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The place of each logical device among the machine's, ``[devices]``."""
        if not self.mapping:
            return np.arange(self.mesh.size)
        order = {name: k for k, name in enumerate(self.names)}
        axes = sorted(self.mesh.axes, key=lambda a: -order[self.mapping[axis_ref(a).name]])
        return self.mesh.index(axes)

    @cached_property
    def _shapes(self) -> dict[int, tuple[int, ...]]:
        return {}

    def shape(self, k: int) -> tuple[int, ...]:
        """The lengths of a level's axes, as far as the mesh takes them."""
        if k not in self._shapes:
            self._shapes[k] = self._shape(k)
        return self._shapes[k]

    def _shape(self, k: int) -> tuple[int, ...]:
        units, fabric = self.units[k], self.levels[k][0]
        if self.mapping:
            sizes = [n for a, n in self.sizes.items() if self.mapping[a] == self.names[k]]
        else:
            sizes = list(self.sizes.values())
            inside = math.prod(self.units[:k])
            while sizes and inside > 1 and inside % sizes[-1] == 0:
                inside //= sizes.pop()
            for start in range(len(sizes)):
                if math.prod(sizes[start:]) == units:
                    sizes = sizes[start:]
                    break
        return fabric.shape(units, sizes)

    def groups(self, axes: tuple[str, ...]) -> np.ndarray:
        """Places of the devices of some groups along these axes, ``[groups, devices of a group]``."""
        groups = self.mesh.groups(axes)
        places: np.ndarray = self.numbers[groups[:: -(-len(groups) // _GROUPS)]]
        return places

    def extents(self, places: np.ndarray) -> list[Extents]:
        """The different ways in which groups of these places lie, ``[groups, devices of a group]``, on each level."""
        found: list[list[Extent]] = []
        inside, below = 1, np.full(len(places), places.shape[1])
        for k, (fabric, _) in enumerate(self.levels):
            above, _ = _taken(places // (inside * self.units[k]))
            figures = [-(-below // above)]
            if fabric.is_ring and (figures[0] > 1).any():
                for coordinates in np.unravel_index(places // inside % self.units[k], self.shape(k)):
                    figures += _taken(coordinates)
            rows, number = np.unique(np.column_stack(figures), axis=0, return_inverse=True)
            kinds = [self._extent(k, *row) for row in rows.tolist()]
            found.append([kinds[i] for i in number.reshape(-1).tolist()])
            inside, below = inside * self.units[k], above
        return list(dict.fromkeys(zip(*found, strict=True)))

    def _extent(self, k: int, units: int, *taken: int) -> Extent:
        """Return the extent of ``units`` units on level k.

        taken: for each axis of a torus, the number of places and the least distance between two of them.
        """
        fabric, lines = self.levels[k][0], []
        if units > 1 and taken:
            for count, stride, length in zip(taken[::2], taken[1::2], self.shape(k), strict=True):
                if count > 1:
                    closed = isinstance(fabric, Torus) and fabric.wraps(length) and count * stride == length
                    lines.append(Line(count, stride, closed))
        return units, tuple(lines)

    def links(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the links that a collective over these axes holds: ports on a level, or axes of its torus."""
        found: dict[str, None] = {}
        places = self.groups(axes)[:1]
        for extents in self.extents(places):
            inside = 1
            for k, (n, _) in enumerate(extents):
                fabric, name = self.levels[k][0], self.names[k]
                if n > 1 and fabric.is_ring:
                    at = np.unravel_index(places // inside % self.units[k], self.shape(k))
                    found.update({f"{name}.{dim}": None for dim, c in enumerate(at) if len(np.unique(c)) > 1})
                elif n > 1:
                    found[name] = None
                inside *= self.units[k]
        return tuple(found) or (self.names[0],)


def _taken(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per row how many different numbers stand in it, and the least distance between two of them, 0 for one."""
    steps = np.diff(np.sort(places, axis=1), axis=1)
    count = 1 + (steps > 0).sum(axis=1)
    least = np.where(steps > 0, steps, places.max() + 1).min(axis=1, initial=int(places.max()) + 1)
    return count, np.where(count > 1, least, 0)
