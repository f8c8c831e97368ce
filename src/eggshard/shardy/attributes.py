"""Shardy's attributes as values: their text is what Shardy's own printer writes, and reads back.

Shardings use `Sharding` of the placements' room; here each also has the mesh that its text names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eggshard.program.axes import AxisRef
from eggshard.program.codec import String, split_top_level
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding
from eggshard.program.sharding_text import read_axes, read_dimensions, read_exchanges, read_sharding

#: Axes, major to minor.
Axes = tuple[AxisRef, ...]


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
        """The same with some fields of the sharding replaced."""
        return TensorSharding(self.mesh, replace(self.sharding, **changes))  # type: ignore[arg-type]

    def with_axes(self, dims: Iterable[Axes]) -> TensorSharding:
        """The same with other axes; whether dimensions are open, and priorities, stay."""
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
    listed = ", ".join(f"{String().encode(name)}={size}" for name, size in mesh.axes.items())
    ids = [device] if device is not None else mesh.device_ids
    shown = "" if ids is None else f", device_ids=[{', '.join(map(str, ids))}]"
    return f"#sdy.mesh<[{listed}]{shown}>"


def read_per_value(text: str) -> tuple[TensorSharding, ...]:
    """The entries of ``#sdy.sharding_per_value<[<@mesh, [...]>, ...]>``."""
    return tuple(TensorSharding.parse(part) for part in split_top_level(text[text.index("[") + 1 : text.rindex("]")]))


def per_value_text(shardings: Iterable[TensorSharding]) -> str:
    """``#sdy.sharding_per_value<[...]>``."""
    return f"#sdy.sharding_per_value<[{', '.join(s.body() for s in shardings)}]>"


def axes_text(axes: Axes) -> str:
    """``{"x", "y":(1)2}``."""
    return f"{{{', '.join(map(str, axes))}}}"


def axis_list_text(axes: Axes) -> str:
    """The attribute of an all-reduce's axes."""
    return f"#sdy<axis_ref_list{axes_text(axes)}>"


def axis_lists_text(dims: Iterable[Axes]) -> str:
    """The attribute of axes per dimension, of gathers, slices and reduce-scatters."""
    return f"#sdy<list_of_axis_ref_lists[{', '.join(map(axes_text, dims))}]>"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One parameter of an all-to-all: these axes move from the end of dimension ``source`` to that of ``target``."""

    axes: Axes
    source: int
    target: int

    def __str__(self) -> str:
        return f"{axes_text(self.axes)}: {self.source}->{self.target}"


def exchanges_text(exchanges: Sequence[Exchange]) -> str:
    """The attribute of an all-to-all's parameters."""
    return f"#sdy<all_to_all_param_list[{', '.join(map(str, exchanges))}]>"


def read_axis_list(text: str) -> Axes:
    """The axes of ``#sdy<axis_ref_list{...}>`` or ``#sdy<manual_axes{...}>``."""
    return read_axes(text[text.index("{") : text.rindex("}") + 1])


def read_axis_lists(text: str) -> tuple[Axes, ...]:
    """The axes per dimension of ``#sdy<list_of_axis_ref_lists[...]>``."""
    return tuple(d.axes for d in read_dimensions(text[text.index("[") : text.rindex("]") + 1]))


def read_all_to_all(text: str) -> tuple[Exchange, ...]:
    """The parameters of ``#sdy<all_to_all_param_list[...]>``."""
    return tuple(Exchange(*found) for found in read_exchanges(text[text.index("[") : text.rindex("]") + 1]))
