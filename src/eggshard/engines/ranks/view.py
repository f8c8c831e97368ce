"""A mesh as one of its devices sees it, and steps without communication on that device alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from eggshard.errors import MeshError
from eggshard.program.mesh import Mesh
from eggshard.program.types import numpy_dtype
from eggshard.simulate.simulator import perform
from eggshard.steps.authored_steps import DeviceNumber, OnFirstDevice
from eggshard.steps.steps import Action


class DeviceView(Mesh):
    """One device of a mesh: axes and counts are the mesh's, and everything listed per device is listed of it alone.

    So what the simulator does on all devices at once, in arrays ``[devices, *local shape]``, it does with this mesh on
    one, in arrays ``[1, *local shape]``. MeshError for a device that the mesh does not have.
    """

    def __init__(self, mesh: Mesh, device: int):
        if not 0 <= device < mesh.size:
            raise MeshError(f"{mesh} has no device {device}; its devices are 0 to {mesh.size - 1}")
        self.axes, self.device_ids = mesh.axes, mesh.device_ids
        self.whole, self.device = mesh, device
        self._key = (*mesh._key, device)  # type: ignore[assignment]

    @cached_property
    def size(self) -> int:
        """One."""
        return 1

    @cached_property
    def grid(self) -> np.ndarray:
        """The device's logical id, alone in the mesh's rank."""
        return np.full((1,) * len(self.axes), self.device)

    @cached_property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Per axis the device's own coordinate (shape ``[1]``)."""
        own = slice(self.device, self.device + 1)
        return {axis: column[own] for axis, column in self.whole.coordinates.items()}

    def groups(self, axes: Iterable[str]) -> np.ndarray:
        """The device's own group ``[1, group size]``, of the mesh's logical ids and in its order."""
        return group_of(self.whole, tuple(axes), self.device)[None]


def group_of(mesh: Mesh, axes: tuple[str, ...], device: int) -> np.ndarray:
    """``[group size]``: the logical ids of the device's group along some axes, in the order of the axes."""
    groups = mesh.groups(axes)
    found: np.ndarray = groups[(groups == device).any(axis=1)][0]
    return found


def perform_alone(view: DeviceView, action: Action, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The results ``[*local shape]`` of a step that does not communicate, from such operands on this device."""
    if isinstance(action, DeviceNumber):
        return (np.array(action.numbers[view.device], np.uint32),)
    if isinstance(action, OnFirstDevice):
        if view.device != int(view.whole.grid.reshape(-1)[0]):
            return tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in action.local.result_types)
        action = action.local
    return tuple(result[0] for result in perform(view, action, tuple(array[None] for array in operands)))
