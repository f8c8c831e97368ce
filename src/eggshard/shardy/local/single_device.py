"""Values on a single device, in a program that every device runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.local.emission import Devices, channels, filled, typed, zero
from eggshard.shardy.local.halo_exchange import manual_computation
from eggshard.shardy.local.ordinary import has_effects
from eggshard.shardy.module import OWN_SHARDING, ShardyModule, create, rank, shape, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.collectives.conversion import reshard_to_collectives
from eggshard.shardy.rewriting import drop_shardings, sharding_attributes, transform_shardings


@shardy_pass("resolve-single-device-sharding", on="")
def resolve_single_device_sharding(module: ShardyModule) -> None:
    """Let every device hold, and compute, what is to lie on a single device: that device then has it too.

    Reshards between the two are no more; operands that are sharded are gathered. What depends on the device that
    computes it (``partition_id``) is sent to all by the one that it is to lie on. ShardingError for an op with effects
    on a single device, which all devices would have.
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
    alone = [(op, device) for op in module.walk()
             if op.name not in OWN_SHARDING and (device := _device(module, op)) is not None]
    transform_shardings(module, everywhere)
    if whole is None:
        drop_shardings(module)
    _drop_idle_reshards(module)
    for op, device in alone if whole is not None else ():
        for value in op.results if _tells_devices_apart(op) else ():
            _send_to_all(module, value, device)
        for i, value in enumerate(op.operands):
            sharding = module.sharding(value)
            if sharding is not None and any(sharding.axes):
                gathered = TensorSharding.closed(sharding.mesh, ((),) * rank(value))
                made = create("sdy.reshard", [value], [value.type], {"sharding": str(gathered)}, op)
                op.operands[i] = made.results[0]
    if alone:
        reshard_to_collectives(module)


def _device(module: ShardyModule, op: Any) -> int | None:
    """The device that the results of an op lie on; None where they lie on several."""
    stated = module.result_shardings(op) if op.results else None
    if not stated or not all(map(module.on_one_device, stated)):
        return None
    own = stated[0].sharding.device
    mesh = module.meshes.get(stated[0].mesh) if isinstance(stated[0].mesh, str) else None
    return mesh if isinstance(mesh, int) else own


def _tells_devices_apart(op: Any) -> bool:
    """Whether what an op computes may differ between devices that have the same arguments."""
    seen, waiting = set(), [op]
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        if found.name in ("stablehlo.partition_id", "stablehlo.replica_id"):
            return True
        waiting += [value.owner.operation for value in found.operands if not isinstance(value, ir.BlockArgument)]
    return False


def _send_to_all(module: ShardyModule, value: Any, device: int) -> None:
    """Give the users of a whole value what a device has of it: the sum of that and of the others' zeros."""
    sharding = module.sharding(value)
    assert sharding is not None
    mesh = module.mesh(sharding)
    place = (mesh.device_ids or tuple(range(mesh.size))).index(device)
    users, channel = uses(value), channels(module)
    after = ir.InsertionPoint.after(value.owner)
    everywhere = manual_computation(mesh, [value], [sharding], [value.type], [sharding], after)
    block = everywhere.regions[0].blocks.append(value.type)
    with ir.InsertionPoint(block):
        i1 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
        here = Devices(mesh, channel).number(tuple(mesh.axes), [int(d == place) for d in range(mesh.size)])
        x = block.arguments[0]
        kept = stablehlo.select(stablehlo.convert(i1, here), x, filled(x, shape(x), zero(x)))
        groups = ir.DenseIntElementsAttr.get(np.arange(mesh.size, dtype=np.int64)[None])
        summed = stablehlo.AllReduceOp(
            [x.type], [kept], groups, channel_handle=stablehlo.ChannelHandle.get(next(channel), 1),
            use_global_device_ids=True)
        scalar = typed(x, ())
        inner = summed.computation.blocks.append(scalar, scalar)
        with ir.InsertionPoint(inner):
            boolean = str(scalar.element_type) == "i1"
            stablehlo.return_([(stablehlo.or_ if boolean else stablehlo.add)(*inner.arguments)])
        sdy.ReturnOp([summed.results[0]])
    for user, number in users:
        user.operands[number] = everywhere.results[0]


def _drop_idle_reshards(module: ShardyModule) -> None:
    """Take away reshards of values to where they lie."""
    for op in module.walk("sdy.reshard"):
        before, after = module.sharding(op.operands[0]), module.sharding(op.results[0])
        plain = before is None and after is not None and not any(after.axes) and not after.sharding.unreduced
        if plain or before == after:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
