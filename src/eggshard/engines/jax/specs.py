"""Placements as JAX's partition specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import PartitionSpec

from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.sharding import Sharding, whole_mesh


def spec_of(placement: Placement, mesh: Mesh, names: tuple[str, ...]) -> PartitionSpec | None:
    """The partition spec of a placement over a mesh of the same shape with these axis names; None with sub-axes."""
    sharding = Sharding.from_placement(placement, mesh)
    if any(axis.size for axis in sharding.axes):
        return None
    named = dict(zip(whole_mesh(mesh).axes, names, strict=True))
    return trimmed([tuple(named[a.name] for a in d.axes) for d in sharding.dims])


def partition_spec(placement: Placement, mesh: Mesh, names: tuple[str, ...], rank: int) -> PartitionSpec | None:
    """Over axes of these names, where the first ``rank`` dimensions of a placement lie; None with sub-axes."""
    spec = spec_of(placement, mesh, names)
    return None if spec is None else trimmed(tuple(spec)[:rank])


def trimmed(entries: Sequence[Any]) -> PartitionSpec:
    """A spec in the form in which JAX reports shardings: plain names for single axes, no empty entries at the end."""
    plain = [None if not e else e[0] if isinstance(e, tuple) and len(e) == 1 else e for e in entries]
    while plain and plain[-1] is None:
        plain.pop()
    return PartitionSpec(*plain)
