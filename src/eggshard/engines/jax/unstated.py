"""Where `jax.jit` puts results whose shardings are not stated: XLA propagates those of the arguments to them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.stages import Lowered

from eggshard.engines.jax.meshes import device_mesh
from eggshard.engines.jax.specs import partition_spec
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.planner.optimization import propagated_outputs
from eggshard.program.sharding import whole_mesh


def with_propagated(
    lowered: Lowered, convention: JaxCallingConvention, places: Sequence[NamedSharding | None]
) -> tuple[NamedSharding | None, ...]:
    """Places of a lowered function's results, the missing ones as Shardy's propagation finds them.

    One stays missing that cannot be said over the axes of the mesh, or that types state (explicit axes). ProgramError
    and ShardingError for what cannot be read.
    """
    stated = [s for s in (*convention.argument_shardings, *convention.result_shardings) if s is not None]
    explicit = any(AxisType.Explicit in s.mesh.axis_types for s in stated)
    if len(convention.devices) < 2 or explicit or all(p is not None for p in places):
        return tuple(places)
    program, placements = propagated_outputs(lowered)
    whole = whole_mesh(program.mesh)
    if whole.size != len(convention.devices):
        return tuple(places)
    named = (s.mesh for s in stated if isinstance(s.mesh, Mesh) and dict(s.mesh.shape) == whole.axes)
    mesh = next(named, None) or device_mesh(convention.devices, whole)
    found: list[NamedSharding | None] = []
    for place, placement, leaf in zip(places, placements, convention.results, strict=True):
        spec = partition_spec(placement, program.mesh, tuple(mesh.axis_names), len(leaf.shape))
        if place is None and spec is not None and leaf.dtype != jax.dtypes.float0:
            place = NamedSharding(mesh, spec, memory_kind=leaf.memory or None)
        found.append(place)
    return tuple(found)
