"""Values on a single device, in a program that every device runs."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.local.ordinary import has_effects
from eggshard.shardy.module import OWN_SHARDING, ShardyModule
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.rewriting import drop_shardings, sharding_attributes, transform_shardings


@shardy_pass("resolve-single-device-sharding", on="")
def resolve_single_device_sharding(module: ShardyModule) -> None:
    """Let every device hold, and compute, what is to lie on a single device: that device then has it too.

    Reshards between the two are no more. ShardingError for an op with effects on a single device, which all devices
    would have.
    """
    whole = next((name for name, mesh in module.meshes.items() if isinstance(mesh, Mesh) and mesh.axes), None)

    def everywhere(sharding: TensorSharding, type_: Any) -> TensorSharding:
        if not module.on_one_device(sharding):
            return sharding
        rank = type_.rank if isinstance(type_, ir.RankedTensorType) else 0
        return TensorSharding.closed(sharding.mesh if whole is None else whole, ((),) * rank)

    for op in module.walk():
        for name, _ in sharding_attributes(op) if op.name not in OWN_SHARDING and has_effects(op) else ():
            stated = read_per_value(str(op.attributes[name]))
            if any(map(module.on_one_device, stated)):
                raise ShardingError(
                    f"{op.name} has effects and lies on a single device ({stated[0]}); every device would have them: "
                    "shard it over a mesh, or take it out of the program"
                )
    transform_shardings(module, everywhere)
    if whole is None:
        drop_shardings(module)
    _drop_idle_reshards(module)


def _drop_idle_reshards(module: ShardyModule) -> None:
    """Take away reshards of values to where they lie."""
    for op in module.walk("sdy.reshard"):
        before, after = module.sharding(op.operands[0]), module.sharding(op.results[0])
        plain = before is None and after is not None and not any(after.axes) and not after.sharding.unreduced
        if plain or before == after:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
