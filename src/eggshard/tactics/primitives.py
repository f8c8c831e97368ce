"""The tactics that the others are made of: a mesh axis shards leaves, or does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from eggshard.errors import MeshError
from eggshard.planner.choosing.narrowing import Dims, End, Restriction, Tactic
from eggshard.program.mesh import Mesh
from eggshard.tactics.leaves import Of, chosen_by


def shard(axis: str, dim: int | None = None, *, of: Of = None) -> Tactic:
    """Shard leaves along a mesh axis, in this dimension or, for None, in one that the search finds.

    of: which leaves (`eggshard.tactics`); by default all. MeshError for an axis that the mesh has not, ShardingError
    where there are no such leaves.
    """
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        return sharded(chosen_by(of, ends, ends, "there"), checked(axis, mesh), dim)

    return Tactic(written("shard", axis, *([] if dim is None else [dim]), of=of), restrictions)


def replicate(axis: str, dim: int | None = None, *, of: Of = None) -> Tactic:
    """Do not shard leaves along a mesh axis, in this dimension or, for None, in any.

    of: which leaves (`eggshard.tactics`); by default all. MeshError for an axis that the mesh has not, ShardingError
    where there are no such leaves.
    """
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        return unsharded(chosen_by(of, ends, ends, "there"), checked(axis, mesh), dim)

    return Tactic(written("replicate", axis, *([] if dim is None else [dim]), of=of), restrictions)


def sharded(ends: Sequence[End], axes: tuple[str, ...], dim: int | None = None) -> Iterator[Restriction]:
    """Ask that these axes shard ends, in a dimension or in any."""
    return _restrictions(ends, axes, dim, True)


def unsharded(ends: Sequence[End], axes: tuple[str, ...], dim: int | None = None) -> Iterator[Restriction]:
    """Ask that these axes do not shard ends, in a dimension or in any."""
    return _restrictions(ends, axes, dim, False)


def checked(axis: str, mesh: Mesh) -> tuple[str, ...]:
    """The axis, or nothing where it has one device, along which all lie alike; MeshError where the mesh has none."""
    if axis not in mesh.axes:
        raise MeshError(f"the mesh has no axis {axis!r}; it has {mesh.axes}")
    return (axis,) if mesh.axes[axis] > 1 else ()


def written(name: str, *arguments: object, of: Of = None, **options: object) -> str:
    """How a tactic is called."""
    given = {k: v for k, v in {**options, "of": of}.items() if v is not None}
    return f"{name}({', '.join([*map(repr, arguments), *(f'{k}={_shown(v)}' for k, v in given.items())])})"


def _shown(value: object) -> str:
    return getattr(value, "__name__", "...") if callable(value) else repr(value)


def _restrictions(
    ends: Sequence[End], axes: tuple[str, ...], dim: int | None, wanted: bool
) -> Iterator[Restriction]:
    where = "" if dim is None else f" in dimension {dim}"

    def holds(axis: str, dims: Dims) -> bool:
        return wanted is any(axis in along for i, along in enumerate(dims) if dim is None or i == dim)

    for axis in axes:
        text = f"{'' if wanted else 'not '}sharded along {axis!r}{where}"
        yield from (Restriction(end, partial(holds, axis), text) for end in ends)
