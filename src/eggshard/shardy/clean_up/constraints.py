"""Passes that retire what only propagation reads: sharding groups are removed, constraints become reshards."""

from __future__ import annotations

from jaxlib.mlir import ir

from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import shardy_pass


@shardy_pass("remove-sharding-groups")
def remove_sharding_groups(module: ShardyModule) -> None:
    """Remove every sharding group; propagation has sharded its members alike."""
    for op in module.walk("sdy.sharding_group"):
        op.erase()


@shardy_pass("sharding-constraint-to-reshard", on="func.func")
def sharding_constraint_to_reshard(module: ShardyModule) -> None:
    """Turn every sharding constraint into a reshard, one for one; other attributes stay.

    A chain of constraints is a chain of reshards: what the last one asks for does not make the others redundant.
    """
    for function in module.functions:
        for op in module.walk("sdy.sharding_constraint", root=function):
            attributes = {name: op.attributes[name] for name in op.attributes}
            with ir.InsertionPoint(op), op.location:
                reshard = ir.Operation.create(
                    "sdy.reshard", [op.results[0].type], list(op.operands), attributes=attributes
                )
            op.results[0].replace_all_uses_with(reshard.results[0])
            op.erase()
