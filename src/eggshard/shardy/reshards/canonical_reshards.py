"""Canonicalization of reshards: a chain becomes its last one, and two of a value to one sharding become one."""

from __future__ import annotations

from typing import Any

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.dead_ops import erase_dead
from eggshard.shardy.edges import owner_of
from eggshard.shardy.module import ShardyModule, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.shared_reshards import shared_reshard

RESHARD = "sdy.reshard"


@shardy_pass("canonicalize-reshards", on="")
def canonicalize_reshards(module: ShardyModule, common: bool = True) -> None:
    """Drop reshards that only another reshard uses and all ops that no op uses, and share equal reshards.

    As jaxlib's `canonicalize` does; common: also let equal reshards of a value in a block be one, which Shardy's
    export pipeline does not (its ``canonicalize{enable-patterns=sdy-reshard}``).
    """
    changed = True
    while changed:
        changed = erase_dead(module)
        for op in module.walk(RESHARD):
            if uses(op.results[0]):
                changed |= _folded(op)
                changed |= common and _shared(op)
        if common and not changed:  # chains that end elsewhere are folded by now
            changed = share_in_other_shapes(module)


def _folded(op: Any) -> bool:
    """Reshard what the reshard in front of this one reshards, if that has no other use."""
    changed = False
    while (inner := owner_of(op.operands[0])).name == RESHARD and len(uses(inner.results[0])) == 1:
        op.operands[0] = inner.operands[0]
        inner.erase()
        changed = True
    return changed


def share_in_other_shapes(module: ShardyModule) -> bool:
    """Let a reshard be the result of an earlier one of the same elements, brought into its shape; whether one was."""
    for op in module.walk(RESHARD):
        value = shared_reshard(module, op) if uses(op.results[0]) else None
        if value is not None:
            return _replace(op, value)
    return False


def _shared(op: Any) -> bool:
    """Use an equal reshard of the same value, earlier in the block, in place of this one."""
    for use in op.operands[0].uses:
        other = use.owner.operation
        if (
                other != op and other.name == RESHARD and other.block == op.block
                and other.is_before_in_block(op) and same_shards(_sharding(other), _sharding(op))):
            return _replace(op, other.results[0])
    return False


def _replace(op: Any, value: Any) -> bool:
    op.results[0].replace_all_uses_with(value)
    op.erase()
    return True


def same_shards(first: TensorSharding, second: TensorSharding) -> bool:
    """Whether two shardings leave the same on every device, whatever propagation might make of them."""
    one, other = first.sharding, second.sharding
    return (
        first.mesh == second.mesh and first.axes == second.axes and one.replicated == other.replicated
        and (one.unreduced, one.reduction, one.device) == (other.unreduced, other.reduction, other.device))


def _sharding(op: Any) -> TensorSharding:
    return TensorSharding.parse(str(op.attributes["sharding"]))
