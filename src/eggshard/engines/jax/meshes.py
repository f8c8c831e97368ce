"""Meshes of JAX's devices on which plans run, and where arrays lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import mesh as jax_mesh
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from eggshard.errors import LoweringError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.plan.record import PlanRecord
from eggshard.program.mesh import Mesh

#: Public since JAX 0.9.
_mesh = getattr(jax.sharding, "get_mesh", None) or jax_mesh.get_concrete_mesh


def mesh_in_effect() -> jax.sharding.Mesh | None:
    """The mesh of `jax.set_mesh`, if one is in effect; inside a trace JAX does not tell."""
    try:
        mesh = _mesh()
    except ValueError:
        return None
    return None if mesh.empty else mesh


def committed_sharding(array: Any) -> Any:
    """Where an argument must stay, as `jax.jit` sees it; None for tracers, NumPy arrays and uncommitted ones."""
    if isinstance(array, jax.core.Tracer) or not getattr(array, "committed", False):
        return None
    return array.sharding


def default_devices(count: int) -> list[Any]:
    """Return the first ``count`` devices of JAX, fewer if there are not as many.

    With several processes, each takes its own devices if these suffice and the first ones do not include some of every
    process.
    """
    first: list[Any] = jax.devices()[:count]
    own: list[Any] = jax.local_devices()[:count]
    everybody = len({d.process_index for d in first}) == jax.process_count()
    return first if everybody or len(own) < count else own


def device_mesh(devices: Sequence[Any], mesh: Mesh) -> jax.sharding.Mesh:
    """The mesh over these devices, in mesh order."""
    grid = np.array(devices, dtype=object).reshape(tuple(mesh.axes.values()))
    return jax.sharding.Mesh(grid, tuple(mesh.axes), axis_types=(AxisType.Auto,) * grid.ndim)


def made_mesh(devices: Sequence[Any], mesh: Mesh) -> jax.sharding.Mesh:
    """The mesh over these devices as JAX lays it on their links."""
    axes = mesh.axes
    return jax.make_mesh(tuple(axes.values()), tuple(axes), devices=devices, axis_types=(AxisType.Auto,) * len(axes))


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """The mesh without devices."""
    axes = mesh.axes
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def lowered_on(
    mesh: jax.sharding.Mesh | AbstractMesh | None, function: Any, args: Any, kwargs: Mapping[str, Any]
) -> jax.stages.Lowered:
    """A jitted function lowered for arguments on a mesh; on one without devices, for JAX's default platform."""
    if not isinstance(mesh, AbstractMesh):
        return function.lower(*args, **kwargs)
    with jax.sharding.use_abstract_mesh(mesh):
        return function.trace(*args, **kwargs).lower(lowering_platforms=(jax.default_backend(),))


def usual_mesh(whole: Mesh, convention: JaxCallingConvention) -> jax.sharding.Mesh:
    """The mesh over the devices of the lowering, or else over the first ones; LoweringError if these are too few."""
    if len(convention.devices) == whole.size:
        return device_mesh(convention.devices, whole)
    present = default_devices(whole.size)
    if len(present) < whole.size:
        raise LoweringError(
            f"{convention.name} was planned for {whole.size} devices, mesh {whole.axes}; there are {len(present)}. "
            "Plan for a mesh of that many, or run on the simulator with plan.run"
        )
    return device_mesh(present[: whole.size], whole)


def mesh_of(plan: PlanRecord) -> jax.sharding.Mesh:
    """The mesh that the plan's steps run on where none is in effect; LoweringError as of `usual_mesh`."""
    return usual_mesh(plan.mesh, JaxCallingConvention.to_call(plan.program, plan.calling_convention))


def lying_somewhere(arrays: Sequence[Any], whole: Mesh, convention: JaxCallingConvention) -> list[Any]:
    """The arrays; on the mesh in effect, or the usual one, where they lie on no devices that they must stay on."""
    if whole.size == 1 or any(committed_sharding(array) is not None for array in arrays):
        return list(arrays)
    mesh = mesh_in_effect()
    if mesh is None or mesh.size != whole.size:
        mesh = usual_mesh(whole, convention)
    return [jax.device_put(array, NamedSharding(mesh, PartitionSpec())) for array in arrays]
