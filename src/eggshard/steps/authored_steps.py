"""Steps beyond ops and reshards: a device's number, collectives over groups as authors write them, effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.steps import Action, Local


@dataclass(frozen=True, slots=True)
class DeviceNumber(Action):
    """A ui32 scalar: the number in ``numbers`` at this device's logical id.

    ``authored``: the program asks for it, and what it then computes may know how many devices there are.
    """

    numbers: tuple[int, ...]
    authored: bool = False
    kind: ClassVar[str] = "device-number"

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (TensorType((), "ui32"),)


@dataclass(frozen=True, slots=True)
class GroupCollective(Action):
    """A collective op of the registry as its author wrote it, over groups of devices that no mesh axes span."""

    name: str
    attributes: Attributes
    result_types: tuple[TensorType, ...]
    regions: tuple[Region, ...] = ()
    kind: ClassVar[str] = "group-collective"

    @property
    def names_devices(self) -> bool:
        """Whether its groups are of device ids (else they are of replicas, and all devices communicate)."""
        return self.name == "all_to_all" or bool(self.attributes.get("use_global_device_ids"))

    @property
    def messages(self) -> int:
        return 1

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return self.result_types

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        """Ring formulas with each device's own group; without global ids the groups tell nothing: all devices."""
        size = np.ones(mesh.size)
        groups = self.attributes["replica_groups"] if self.names_devices else (tuple(range(mesh.size)),)
        for group in groups:
            members = [d for d in group if d >= 0]
            size[members] = len(members)
        given = sum(t.bytes for t in operands)
        factor = {"all_reduce": 2 * (size - 1) / size, "all_gather": size - 1}.get(self.name, (size - 1) / size)
        return np.asarray(given * factor)


@dataclass(frozen=True, slots=True)
class OnFirstDevice(Action):
    """A local op that only the first device of the mesh grid runs; elsewhere its results are zeros."""

    local: Local
    kind: ClassVar[str] = "on-first-device"

    @property
    def has_effects(self) -> bool:
        return self.local.has_effects

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return self.local.result_types
