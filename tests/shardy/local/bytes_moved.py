"""What a module's collectives send, by the formulas of rings: bytes per device, the busiest one's for permutes."""

from __future__ import annotations

import math
from typing import Any

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

from eggshard.program.sharding import atoms, gather_cuts
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_all_to_all, read_axis_list, read_axis_lists
from eggshard.shardy.module import ShardyModule, shape


def wire_bytes(text: str) -> float:
    """The sum over all collectives, Shardy's on shards of ceiling size and those in manual computations."""
    with jax_mlir.make_ir_context():
        module = ShardyModule(ir.Module.parse(text))
        assert not module.walk("sdy.reshard"), "reshards have no bytes yet"
        return sum(_sent(module, op) for op in module.walk())


def _sent(module: ShardyModule, op: Any) -> float:
    if op.name == "stablehlo.collective_permute":
        return 4.0 * math.prod(shape(op.results[0]))
    if op.name not in ("sdy.all_gather", "sdy.all_to_all", "sdy.collective_permute", "sdy.all_reduce",
                       "sdy.reduce_scatter"):
        return 0.0
    sharding = TensorSharding.parse(str(op.attributes["out_sharding"]))
    if op.name == "sdy.all_gather":
        axes = [a for dim in read_axis_lists(str(op.attributes["gathering_axes"])) for a in dim]
    elif op.name == "sdy.all_to_all":
        axes = [a for param in read_all_to_all(str(op.attributes["params"])) for a in param.axes]
    elif op.name == "sdy.reduce_scatter":
        axes = [a for dim in read_axis_lists(str(op.attributes["reduce_scatter_axes"])) for a in dim]
    elif op.name == "sdy.all_reduce":
        axes = list(read_axis_list(str(op.attributes["reduction_axes"])))
    else:
        axes = []
    mesh = module.mesh(sharding)
    mesh = mesh.refined(gather_cuts(
        [sharding.sharding, TensorSharding.closed(sharding.mesh, [tuple(axes)]).sharding], mesh))
    local = _local(module, op.results[0], sharding)
    group = mesh.count(atoms(axes, mesh))
    if op.name == "sdy.collective_permute":
        return local
    if op.name == "sdy.all_gather":  # of shards with their padding
        return _local(module, op.operands[0], module.sharding(op.operands[0])) * (group - 1)
    if op.name == "sdy.reduce_scatter":
        return local * (group - 1)
    return local * (group - 1) / group * (2 if op.name == "sdy.all_reduce" else 1)


def _local(module: ShardyModule, value: Any, sharding: TensorSharding | None) -> float:
    """The bytes of a shard of 32-bit elements."""
    if sharding is None:
        return 4.0 * math.prod(shape(value))
    mesh = module.mesh(sharding)
    mesh = mesh.refined(gather_cuts([sharding.sharding], mesh))
    counts = [mesh.count(atoms(dim, mesh)) for dim in sharding.axes]
    return 4.0 * math.prod(-(-n // count) for n, count in zip(shape(value), counts, strict=True))
