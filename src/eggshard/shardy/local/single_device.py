"""Values on a single device, in a program that every device runs."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.local.ordinary import has_effects
from eggshard.shardy.module import BODIES, OWN_SHARDING, SHARDING, ShardyModule, function_type, uses
from eggshard.shardy.passes import shardy_pass


@shardy_pass("resolve-single-device-sharding", on="")
def resolve_single_device_sharding(module: ShardyModule) -> None:
    """Let every device hold, and compute, what is to lie on a single device: that device then has it too.

    Reshards between the two are no more. ShardingError for an op with effects on a single device, which all devices
    would have.
    """
    meshes = module.meshes
    whole = next((name for name, mesh in meshes.items() if isinstance(mesh, Mesh) and mesh.axes), None)

    def single(sharding: TensorSharding) -> bool:
        named = isinstance(sharding.mesh, str) and isinstance(meshes.get(sharding.mesh), int)
        return named or sharding.sharding.device is not None

    def everywhere(sharding: TensorSharding, rank: int) -> TensorSharding:
        if not single(sharding):
            return sharding
        return TensorSharding.closed(sharding.mesh if whole is None else whole, ((),) * rank)

    for function in module.functions:
        types = function_type(function)
        arguments = list(function.regions[0].blocks[0].arguments) if len(function.regions[0].blocks) else []
        for argument, sharding in zip(arguments, module.argument_shardings(function), strict=False):
            if sharding and single(sharding):
                module.set_sharding(argument, everywhere(sharding, _rank(argument.type)) if whole else None)
        for i, sharding in enumerate(module.function_result_shardings(function)):
            if sharding and single(sharding):
                kept = everywhere(sharding, _rank(types.results[i])) if whole else None
                module.set_function_result_sharding(function, i, kept)
    for op in module.walk():
        own = OWN_SHARDING.get(op.name)
        if own and own in op.attributes:
            before = TensorSharding.parse(str(op.attributes[own]))
            op.attributes[own] = ir.Attribute.parse(str(everywhere(before, _rank(op.operands[0].type))))
        lists = (("in_shardings", op.operands), ("out_shardings", op.results)) if op.name in BODIES else (
            (SHARDING, op.results),)
        for key, values in lists if not own else ():
            if key not in op.attributes:
                continue
            stated = read_per_value(str(op.attributes[key]))
            if not any(map(single, stated)):
                continue
            if has_effects(op):
                raise ShardingError(
                    f"{op.name} has effects and lies on a single device ({stated[0]}); every device would have them: "
                    "shard it over a mesh, or take it out of the program"
                )
            if whole is None and op.name not in BODIES:
                del op.attributes[key]
                continue
            ranks = [_rank(v.type) for v in values] or [0] * len(stated)
            closed = [everywhere(s, rank) for s, rank in zip(stated, ranks, strict=True)]
            op.attributes[key] = ir.Attribute.parse(per_value_text(closed))
    _drop_idle_reshards(module)


def _drop_idle_reshards(module: ShardyModule) -> None:
    """Take away reshards of values to where they lie."""
    for op in module.walk("sdy.reshard"):
        before, after = module.sharding(op.operands[0]), module.sharding(op.results[0])
        plain = before is None and after is not None and not any(after.axes) and not after.sharding.unreduced
        if plain or before == after:
            for user, number in uses(op.results[0]):
                user.operands[number] = op.operands[0]
            op.erase()


def _rank(type_: Any) -> int:
    return int(type_.rank) if isinstance(type_, ir.RankedTensorType) else 0
