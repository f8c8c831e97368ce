"""Submeshes: some axes of a mesh as a mesh of their own, whose plans become steps of all devices.

Inside a manual computation the devices along manual axes hold different tensors. Resharding along the other axes is
planned on a mesh of these alone, and done alike at every position along the manual ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.reshard.routes import Price, Route, Router
from eggshard.steps.steps import Action, CollectivePermute

#: A conversion as `Router` spells it.
Steps = tuple[tuple[Action, Placement], ...]


def without_axes(mesh: Mesh, names: Collection[str]) -> Mesh:
    """The mesh of the axes that are neither among these nor parts of them; its devices are in the grid's order."""
    return Mesh({a: n for a, n in mesh.axes.items() if axis_ref(a).name not in names})


class SubmeshRouter(Router):
    """Reshards along the axes of ``free`` alone, as steps of all devices of the mesh that these axes belong to.

    price: of an action of all devices.
    """

    def __init__(self, mesh: Mesh, free: Mesh, price: Price, max_rounds: int = 16, pairwise: bool = False):
        super().__init__(free, lambda action, type_: price(self._spread(action), type_), max_rounds, pairwise)
        #: ``[positions along the other axes, devices of free]``: logical ids on the whole mesh.
        self._members = mesh.groups(free.axes)
        self._spread = cache(lambda action: spread(action, self._members))

    def route(self, type_: TensorType, source: Placement, target: Placement) -> Route:
        found = super().route(type_, source, target)
        return replace(found, steps=self._spread_steps(found.steps))

    def detours(self, type_: TensorType, source: Placement, target: Placement, count: int) -> list[Route]:
        found = super().detours(type_, source, target, count)
        return [replace(route, steps=self._spread_steps(route.steps)) for route in found]

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        return [(start, self._spread_steps(steps)) for start, steps in super().tree(type_, source, targets)]

    def _spread_steps(self, steps: Steps) -> Steps:
        return tuple((self._spread(action), placement) for action, placement in steps)


def spread(action: Action, members: np.ndarray) -> Action:
    """A reshard's action among the devices of a submesh, done by each row of ``members`` (device ids of one copy)."""
    if isinstance(action, CollectivePermute):
        pairs = sorted((int(row[source]), int(row[target])) for row in members for source, target in action.pairs)
        return replace(action, pairs=tuple(pairs))
    return action  # it names axes, and so its groups are along them already
