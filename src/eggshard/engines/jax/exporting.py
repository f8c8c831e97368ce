"""Export of a plan lowered for devices that are absent: made on a laptop, loaded on the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax import export as jax_export

from eggshard.engines.jax.callable import PlannedFunction
from eggshard.engines.jax.meshes import abstract_mesh
from eggshard.errors import LoweringError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.program.sharding import whole_mesh

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: What JAX lowers for.
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export(plan: PlanRecord, platforms: Sequence[str] = ("tpu",)) -> jax_export.Exported:
    """The plan lowered on its mesh without devices, for platforms such as "tpu", "cuda" and "cpu".

    It has the signature of the function that was planned. LoweringError for a plan that calls back into this process,
    and for a platform that JAX does not know.
    """
    if isinstance(platforms, str) or not platforms or not set(platforms) <= set(PLATFORMS):
        raise LoweringError(f"platforms is a sequence of names among {', '.join(PLATFORMS)}, and not {platforms!r}")
    convention = JaxCallingConvention.to_call(plan.program, plan.calling_convention)
    if convention.callbacks:
        raise LoweringError(
            f"{convention.name} calls back into Python, which another process cannot do; export it without callbacks"
        )
    planned = PlannedFunction(plan, convention)
    places: list[Any] = [None] * len(convention.arguments)
    options: dict[str, Any] = {}
    if plan.mesh.size > 1:
        mesh = abstract_mesh(whole_mesh(plan.mesh))
        places = planned.input_shardings(mesh)
        options["out_shardings"] = jax.tree.unflatten(convention.out_tree, planned.output_shardings(mesh))

    def function(*args: Any, **kwargs: Any) -> Any:
        return planned(*args, **kwargs)

    function.__name__ = function.__qualname__ = convention.name
    leaves = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place, weak_type=leaf.weak_type)
        for leaf, place in zip(convention.arguments, places, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(convention.in_tree, leaves)
    jitted = jax.jit(function, **options)
    try:
        return jax_export.export(jitted, platforms=tuple(platforms))(*args, **kwargs)
    except NotImplementedError as error:
        raise LoweringError(f"{convention.name} cannot be exported for {tuple(platforms)}: {error}") from error
