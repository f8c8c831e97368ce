"""Shardings as authors state them (Shardy's model): their text, their validity, and the placements they mean.

Grammar: per dimension the axes that shard it, major to minor, ``?`` where propagation may add more, and a priority;
then the axes that must not shard the tensor, and those along which it is a partial sum (unreduced):

    [{"x", "y":(1)2, ?}p1, {}], replicated={"z"}, unreduced={"w"}

Axes of a program's own mesh and those of its refinement (`Mesh.refined`) are understood everywhere: a stated
sharding names the former, a placement the latter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eggshard.errors import MeshError, ShardingError
from eggshard.program.axes import AxisRef, Sizes, axis_ref, in_mesh_order, merged
from eggshard.program.codec import String
from eggshard.program.cursor import Cursor, whole
from eggshard.program.mesh import Mesh
from eggshard.program.monoids import MONOIDS
from eggshard.program.placement import Placement, place, replicated
from eggshard.program.types import TensorType

#: How partial values may be combined ("add" is the unwritten default).
REDUCTIONS = tuple(MONOIDS)


class Auto:
    """The type of `AUTO`, which is its only value."""

    def __repr__(self) -> str:
        return "AUTO"


#: Stands for the sharding of a tensor, or of a dimension, that is to be chosen.
AUTO = Auto()


@dataclass(frozen=True, slots=True)
class DimSharding:
    """The axes that shard one dimension, major to minor; open: propagation may append more; priority 0 goes first."""

    axes: tuple[AxisRef, ...] = ()
    open: bool = False
    priority: int | None = None

    def __str__(self) -> str:
        listed = ", ".join([*map(str, self.axes), *(["?"] if self.open else [])])
        return f"{{{listed}}}" + ("" if self.priority is None else f"p{self.priority}")


@dataclass(frozen=True, slots=True)
class Sharding:
    """The stated sharding of one tensor. Axes that occur nowhere replicate it, and propagation may use them.

    ``replicated``: axes that must not shard it. ``unreduced``: along these it is a ``reduction`` of partial values.
    ``device``: the whole tensor lies on that one logical device, and all else is empty.
    """

    dims: tuple[DimSharding, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    reduction: str = "add"
    device: int | None = None

    @classmethod
    def parse(cls, text: str) -> Sharding:
        """The sharding that Shardy's text spells, with or without ``<@mesh, ...>`` and ``#sdy.sharding`` around it."""
        return read_sharding(text)[1]

    @classmethod
    def fully_open(cls, rank: int) -> Sharding:
        """The sharding that states nothing: every dimension is open."""
        return cls((DimSharding(open=True),) * rank)

    @classmethod
    def of(cls, spec: Any, rank: int, mesh: Mesh) -> Sharding:
        """The sharding that an author's spec means for a tensor of that rank.

        ``spec``: a Sharding; Shardy's text; a ``jax.sharding.PartitionSpec``, ``NamedSharding`` or
        ``SingleDeviceSharding``; or one entry per dimension: None, an axis, or a tuple of axes (an axis is a name,
        ``x:(1)2`` for a sub-axis, or an AxisRef). Entries that are missing at the end are unsharded. `AUTO`, for all or
        as an entry, leaves dimensions open.
        """
        return _canonical(_of_spec(spec, rank, mesh), whole_mesh(mesh).axes)

    @property
    def axes(self) -> tuple[AxisRef, ...]:
        """Every axis named, in the order written."""
        return (*(a for d in self.dims for a in d.axes), *self.replicated, *self.unreduced)

    @property
    def is_open(self) -> bool:
        """Whether propagation, or a search, may add axes to some dimension."""
        return any(d.open for d in self.dims)

    @property
    def says_something(self) -> bool:
        """Whether it asks for anything; one that is open everywhere and names no axis, or of a scalar, does not."""
        return self.device is not None or bool(self.axes) or not all(d.open for d in self.dims)

    def closed(self) -> Sharding:
        """Return a copy with every dimension closed and without priorities, which fixes what is stated."""
        return replace(self, dims=tuple(DimSharding(d.axes) for d in self.dims))

    def without(self, names: Collection[str]) -> Sharding:
        """Remove these axes and their sub-axes, as seen inside a computation that is manual over them."""
        dims = tuple(replace(d, axes=tuple(a for a in d.axes if a.name not in names)) for d in self.dims)
        replicated, unreduced = (
            tuple(a for a in axes if a.name not in names) for axes in (self.replicated, self.unreduced)
        )
        return replace(self, dims=dims, replicated=replicated, unreduced=unreduced)

    def evenly(self, shape: Sequence[int], mesh: Mesh) -> Sharding:
        """Trim every dimension to the longest prefix of its axes that divides its size.

        Of the axis that divides it no more the major part stays that does: of ``x`` of 4 devices on a dimension of size
        6, ``x:(1)2``. What lies on a single device stays there.
        """
        if self.device is not None:
            return self
        return replace(self, dims=tuple(_evenly(dim, n, mesh) for dim, n in zip(self.dims, shape, strict=True)))

    def canonical(self, mesh: Mesh) -> Sharding:
        """Return Shardy's normal form: adjacent sub-axes merged, whole axes plain, sets of axes in mesh order."""
        return _canonical(self, whole_mesh(mesh).axes)

    def validate(self, mesh: Mesh, type_: TensorType, name: str = "the tensor") -> None:
        """ShardingError, naming the tensor, if this does not fit it on this mesh."""
        problem = _problem(self, whole_mesh(mesh), type_)
        if problem:
            raise ShardingError(f"sharding {self} of {name} ({type_}): {problem}")

    def cuts(self, mesh: Mesh) -> dict[str, set[int]]:
        """Per axis the pre-sizes at which sub-axes of this sharding begin and end, for `Mesh.refined`."""
        out: dict[str, set[int]] = {}
        sizes = whole_mesh(mesh).axes
        for axis in self.axes:
            if axis.size:
                ends = {axis.pre, axis.pre * axis.size} - {1, sizes.get(axis.name, 0)}
                out.setdefault(axis.name, set()).update(ends)
        return {name: points for name, points in out.items() if points}

    def to_placement(self, mesh: Mesh, type_: TensorType) -> Placement:
        """What each device holds, on a mesh refined at the cuts of this sharding.

        A single-device sharding is planned as replicated: that device then holds everything too.
        """
        if self.device is not None:
            return replicated(type_.shape)
        if len(self.dims) != type_.rank:
            raise ShardingError(f"sharding {self} has {len(self.dims)} dimensions, its tensor {type_} has {type_.rank}")
        axes = tuple(atoms(d.axes, mesh) for d in self.dims)
        return place(mesh, type_.shape, axes, atoms(self.unreduced, mesh), self.reduction)

    @classmethod
    def from_placement(cls, placement: Placement, mesh: Mesh) -> Sharding:
        """The closed sharding that means this placement; ``mesh`` is the program's own or its refinement."""
        dims = tuple(DimSharding(tuple(axis_ref(a) for a in d.axes)) for d in placement.dims)
        partial = tuple(axis_ref(a) for a in placement.partial)
        return _canonical(cls(dims, (), partial, placement.monoid or "add"), whole_mesh(mesh).axes)

    def __str__(self) -> str:
        """Shardy's text without the mesh's name (with a mesh only for a single device, which it alone tells)."""
        text = f"[{', '.join(map(str, self.dims))}]"
        if self.replicated:
            text += f", replicated={{{', '.join(map(str, self.replicated))}}}"
        if self.unreduced:
            kind = "" if self.reduction == "add" else self.reduction
            text += f", unreduced={kind}{{{', '.join(map(str, self.unreduced))}}}"
        return text if self.device is None else f"<mesh<[], device_ids=[{self.device}]>, {text}>"

    def text(self, mesh_name: str = "mesh") -> str:
        """Shardy's text on a named mesh: ``<@mesh, [{"x"}, {}]>``."""
        return str(self) if self.device is not None else f"<@{mesh_name}, {self}>"


def _evenly(dim: DimSharding, n: int, mesh: Mesh) -> DimSharding:
    sizes = [axis.devices(mesh.axes) for axis in dim.axes]
    if n % math.prod(sizes) == 0:
        return dim
    axes: list[AxisRef] = []
    for axis, size in zip(dim.axes, sizes, strict=True):
        common = math.gcd(size, n)
        if common > 1:
            axes.append(axis if common == size else axis.split(common, mesh.axes)[0])
        if common < size:
            break
        n //= common
    return DimSharding(tuple(axes), dim.open)


def whole_mesh(mesh: Mesh) -> Mesh:
    """The mesh that ``mesh`` refines: the parts ``x:(1)2`` and ``x:(2)2`` of an axis are one axis ``x`` again."""
    if not any(":(" in name for name in mesh.axes):
        return mesh
    sizes: dict[str, int] = {}
    for name, size in mesh.axes.items():
        base = axis_ref(name).name
        sizes[base] = sizes.get(base, 1) * size
    return Mesh(sizes, mesh.device_ids)


def atoms(axes: Iterable[AxisRef], mesh: Mesh) -> tuple[str, ...]:
    """The axes of a refined mesh that make up (sub-)axes, major to minor; ShardingError if one cuts one of them."""
    refs = {name: axis_ref(name) for name in mesh.axes}
    whole = whole_mesh(mesh).axes
    out: list[str] = []
    for axis in axes:
        begin, end = axis.span(whole) if axis.name in whole else (1, 0)
        inside = [
            name for name, ref in refs.items()
            if ref.name == axis.name and begin <= ref.pre and ref.span(whole)[1] <= end
        ]
        if mesh.count(inside) * begin != end:
            raise ShardingError(f"axis {axis} is not made of axes of {mesh}; refine it at the cuts")
        out += inside
    return tuple(out)


def gather_cuts(shardings: Iterable[Sharding | None], mesh: Mesh) -> dict[str, set[int]]:
    """The cuts of many shardings together; ShardingError if their sub-axes cannot be parts of one refinement."""
    out: dict[str, set[int]] = {}
    for sharding in shardings:
        if sharding is not None:
            for name, points in sharding.cuts(mesh).items():
                out.setdefault(name, set()).update(points)
    try:
        whole_mesh(mesh).refined(out)
    except MeshError as error:
        raise ShardingError(f"the program's sub-axes do not fit together: {error}") from None
    return out


def mesh_text(mesh: Mesh) -> str:
    """Shardy's text of the whole mesh: ``<["x"=4, "y"=2]>``."""
    whole = whole_mesh(mesh)
    listed = ", ".join(f"{String().encode(name)}={size}" for name, size in whole.axes.items())
    ids = "" if whole.device_ids is None else f", device_ids=[{', '.join(map(str, whole.device_ids))}]"
    return f"<[{listed}]{ids}>"


def _of_spec(spec: Any, rank: int, mesh: Mesh) -> Sharding:
    if isinstance(spec, Sharding):
        return spec
    if spec is AUTO:
        return Sharding.fully_open(rank)
    if isinstance(spec, str):
        return Sharding.parse(spec)
    kind = {"P": "PartitionSpec"}.get(type(spec).__name__, type(spec).__name__)
    if kind == "SingleDeviceSharding":
        return Sharding(device=0)
    if kind == "NamedSharding":
        own = Mesh.of(spec.mesh)
        if own.axes != whole_mesh(mesh).axes:
            raise ShardingError(f"{spec} is on a mesh {own.axes}, the program's mesh is {whole_mesh(mesh).axes}")
        spec, kind = spec.spec, "PartitionSpec"
    if kind != "PartitionSpec" and not isinstance(spec, (tuple, list)):
        raise ShardingError(
            f"cannot read a sharding from {spec!r} ({kind}); give a PartitionSpec, a tuple such as ('x', None), "
            """Shardy's text such as '[{"x"}, {}]', or an eggshard Sharding"""
        )
    entries = tuple(spec.partitions if hasattr(spec, "partitions") else spec)
    if len(entries) > rank:
        raise ShardingError(f"sharding {spec!r} has {len(entries)} entries for a tensor of rank {rank}")
    dims = tuple(_of_entry(entry, spec) for entry in entries)
    unreduced = tuple(axis_ref(a) for a in mesh.axes if a in (getattr(spec, "unreduced", None) or ()))
    unknown = set(getattr(spec, "unreduced", None) or ()) - set(mesh.axes)
    if unknown:
        raise ShardingError(f"sharding {spec!r} is unreduced over unknown axes {sorted(unknown)}; mesh {mesh.axes}")
    return Sharding(dims + (DimSharding(),) * (rank - len(dims)), (), unreduced)


def _of_entry(entry: Any, spec: Any) -> DimSharding:
    if entry is None:
        return DimSharding()
    if entry is AUTO or type(entry).__name__ == "UnconstrainedSingleton":
        return DimSharding(open=True)
    if isinstance(entry, DimSharding):
        return entry
    axes = entry if isinstance(entry, (tuple, list)) and not isinstance(entry, AxisRef) else (entry,)
    refs = []
    for axis in axes:
        if not isinstance(axis, (str, AxisRef)):
            raise ShardingError(f"entry {entry!r} of sharding {spec!r} is not None, an axis, or a tuple of axes")
        refs.append(axis if isinstance(axis, AxisRef) else axis_ref(axis))
    return DimSharding(tuple(refs))


def _canonical(sharding: Sharding, sizes: Sizes) -> Sharding:
    dims = tuple(replace(d, axes=merged(d.axes, sizes)) if d.axes else d for d in sharding.dims)
    replicated, unreduced = (in_mesh_order(axes, sizes) for axes in (sharding.replicated, sharding.unreduced))
    return replace(sharding, dims=dims, replicated=replicated, unreduced=unreduced)


def _problem(sharding: Sharding, mesh: Mesh, type_: TensorType) -> str:
    """What is wrong, with the remedy; empty if nothing is."""
    axes_text = ", ".join(f"{name}={size}" for name, size in mesh.axes.items()) or "no axes"
    if sharding.device is not None:
        if not 0 <= sharding.device < mesh.size:
            return f"device {sharding.device} is not on the mesh, which has {mesh.size} devices"
        return "a single-device sharding names no axes" if sharding.axes else ""
    if len(sharding.dims) != type_.rank:
        return f"it has {len(sharding.dims)} dimensions, the tensor has {type_.rank}; give one entry per dimension"
    if sharding.reduction not in REDUCTIONS:
        return f"reduction {sharding.reduction!r} is unknown; one of {', '.join(REDUCTIONS)} is"
    for i, axis in enumerate(sharding.axes):
        if axis.name not in mesh.axes:
            return f"axis {axis} is unknown; the mesh has {axes_text}"
        size = mesh.axes[axis.name]
        if axis.size and (axis.size < 2 or axis.pre < 1 or size % (axis.pre * axis.size)):
            return f"sub-axis {axis} must have a size above 1, and pre-size * size must divide {size}"
        for other in sharding.axes[:i]:
            if axis.overlaps(other):
                return f"axis {axis} is used twice (or overlaps another sub-axis); each may be used once"
            if not axis.can_coexist(other):
                first, second = sorted((axis, other))
                end = first.pre * first.size
                return f"sub-axes of {axis.name!r} do not fit together: {end} does not divide {second.pre}"
    for i, dim in enumerate(sharding.dims):
        if dim.priority is not None and (dim.priority < 0 or not (dim.axes or dim.open)):
            return f"priority p{dim.priority} of dimension {i} is negative, or stands at an empty closed dimension"
    return ""


def read_sharding(text: str) -> tuple[str | Mesh | None, Sharding]:
    """(mesh, sharding) of Shardy's text; the mesh is a symbol's name, an inlined mesh, or None where unwritten."""
    cursor = Cursor(text)
    bracketed = cursor.take("#sdy.sharding<") or cursor.take("<")
    mesh: str | Mesh | None = None
    device = None
    if bracketed:
        if cursor.take("@"):
            mesh = cursor.string() if cursor.peek('"') else cursor.word("a mesh name")
        else:
            cursor.expect("mesh")
            mesh, device = cursor.mesh()
        cursor.expect(",")
    sharding = _read_sharding(cursor)
    if bracketed:
        cursor.expect(">")
    cursor.end()
    return mesh, sharding if device is None else replace(sharding, device=device)


def read_dimensions(text: str) -> tuple[DimSharding, ...]:
    """The dimensions of ``[{"x"}, {?}]``."""
    return tuple(whole(text, lambda cursor: cursor.listed("[", "]", lambda: _read_dim(cursor))))


def _read_dim(cursor: Cursor) -> DimSharding:
    cursor.expect("{")
    refs: list[AxisRef] = []
    open_ = False
    while not cursor.take("}"):
        if refs:
            cursor.expect(",")
        open_ = cursor.take("?")
        if open_:
            cursor.expect("}")
            break
        refs.append(cursor.axis())
    priority = int(cursor.match(r"p\d+", "a priority")[1:]) if cursor.peek("p") else None
    return DimSharding(tuple(refs), open_, priority)


def _read_sharding(cursor: Cursor) -> Sharding:
    dims = tuple(cursor.listed("[", "]", lambda: _read_dim(cursor)))
    sets: dict[str, tuple[AxisRef, ...]] = {}
    reduction = "add"
    while cursor.take(","):
        key = cursor.word("'replicated' or 'unreduced'")
        if key not in ("replicated", "unreduced") or key in sets:
            raise cursor.fail("'replicated' or 'unreduced', each once,")
        cursor.expect("=")
        if key == "unreduced" and not cursor.peek("{"):
            reduction = cursor.word("a reduction")
            reduction = {"sum": "add", "multiply": "mul"}.get(reduction, reduction)
        sets[key] = cursor.axes()
    return Sharding(dims, sets.get("replicated", ()), sets.get("unreduced", ()), reduction)
