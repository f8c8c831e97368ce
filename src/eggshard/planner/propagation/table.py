"""Interning of shardings, so that propagation compares and caches integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding

#: The number of having no sharding.
NONE = 0


class ShardingTable:
    """Shardings in the order in which they were first seen; 0 is none. meshes: by symbol, or the id of one device."""

    def __init__(self, meshes: Mapping[str, Mesh | int]) -> None:
        self.meshes = meshes
        self.shardings: list[TensorSharding | None] = [None]
        self._numbers: dict[TensorSharding | None, int] = {None: NONE}

    def number(self, sharding: TensorSharding | None) -> int:
        """A sharding's number."""
        found = self._numbers.get(sharding)
        if found is None:
            found = self._numbers[sharding] = len(self.shardings)
            self.shardings.append(sharding)
        return found

    def mesh(self, sharding: TensorSharding) -> Mesh | None:
        """A sharding's mesh, None if it is a single device. ShardingError if no mesh has the name."""
        if sharding.sharding.device is not None:
            return None
        if isinstance(sharding.mesh, Mesh):
            return sharding.mesh
        found = self.meshes.get(sharding.mesh)
        if found is None:
            raise ShardingError(f"sharding {sharding} is on mesh @{sharding.mesh}, which the module does not define")
        return None if isinstance(found, int) else found

    def common_mesh(self, numbers: Iterable[int]) -> tuple[str | Mesh, Mesh] | None:
        """The mesh of all shardings, as they name it and itself.

        None if none is stated, they differ, or it is one device. Meshes without axes agree with any.
        """
        name, mesh = None, None
        for number in numbers:
            sharding = self.shardings[number]
            if sharding is None:
                continue
            other = self.mesh(sharding)
            if name is None or (mesh is not None and not mesh.axes):
                name, mesh = sharding.mesh, other
            elif other != mesh and (other is None or other.axes):
                return None
        return None if name is None or mesh is None else (name, mesh)
