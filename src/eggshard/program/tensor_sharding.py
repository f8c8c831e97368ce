"""Shardings that name their mesh, as in modules with several meshes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from eggshard.program.axes import Axes
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding, mesh_text, read_sharding


@dataclass(frozen=True, slots=True)
class TensorSharding:
    """``#sdy.sharding<@mesh, [...]>``: a sharding on a mesh, which is a symbol's name or written in full."""

    mesh: str | Mesh
    sharding: Sharding

    @classmethod
    def parse(cls, text: str) -> TensorSharding:
        """ShardingError for text that is not a sharding on a mesh."""
        return _parse(text)

    @classmethod
    def closed(cls, mesh: str | Mesh, dims: Iterable[Axes], unreduced: Axes = ()) -> TensorSharding:
        """The closed sharding of these axes per dimension."""
        return cls(mesh, Sharding(tuple(DimSharding(tuple(d)) for d in dims), unreduced=unreduced))

    @classmethod
    def fully_open(cls, mesh: str | Mesh, rank: int) -> TensorSharding:
        """What a tensor without a sharding has."""
        return cls(mesh, Sharding((DimSharding(open=True),) * rank))

    @property
    def dims(self) -> tuple[DimSharding, ...]:
        return self.sharding.dims

    @property
    def axes(self) -> tuple[Axes, ...]:
        """Per dimension its axes."""
        return tuple(d.axes for d in self.sharding.dims)

    def updated(self, **changes: object) -> TensorSharding:
        """Return a copy with some fields of the sharding replaced."""
        return TensorSharding(self.mesh, replace(self.sharding, **changes))  # type: ignore[arg-type]

    def with_axes(self, dims: Iterable[Axes]) -> TensorSharding:
        """Return a copy with the axes of every dimension replaced; openness and priorities are kept."""
        pairs = zip(self.dims, dims, strict=True)
        return self.updated(dims=tuple(replace(d, axes=tuple(axes)) for d, axes in pairs))

    def body(self) -> str:
        """``<@mesh, [{"x"}, {}]>``."""
        if isinstance(self.mesh, Mesh):
            mesh = mesh_attribute(self.mesh, self.sharding.device).removeprefix("#sdy.")
        else:
            mesh = f"@{symbol_text(self.mesh)}"
        return f"<{mesh}, {replace(self.sharding, device=None)}>"

    def __str__(self) -> str:
        return f"#sdy.sharding{self.body()}"


@lru_cache(maxsize=65536)
def _parse(text: str) -> TensorSharding:
    mesh, sharding = read_sharding(text)
    return TensorSharding(Mesh({}) if mesh is None else mesh, sharding)


def symbol_text(name: str) -> str:
    """A symbol's name as MLIR writes it behind the ``@``."""
    plain = name and not name[0].isdigit() and all(c.isalnum() or c in "_$." for c in name)
    return name if plain else f'"{name}"'


def mesh_attribute(mesh: Mesh, device: int | None = None) -> str:
    """``#sdy.mesh<["x"=4, "y"=2]>``, or of one device alone ``#sdy.mesh<[], device_ids=[3]>``."""
    return f"#sdy.mesh{mesh_text(mesh)}" if device is None else f"#sdy.mesh<[], device_ids=[{device}]>"
