"""Sharding groups: values to be sharded alike wherever they are."""

from __future__ import annotations

import warnings
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import sharding_of, state_sharding
from eggshard.shardy.module import ShardyModule, behind, create, rank

GROUP, GROUP_ID = "sdy.sharding_group", "group_id"


def group_of(op: Any) -> int:
    """The number of the group that an op puts its operand into."""
    return int(ir.IntegerAttr(op.attributes[GROUP_ID]).value)


def sync_groups(module: ShardyModule) -> None:
    """State for every value of a group what is stated for one of them.

    Where different shardings are stated, each value gets a constraint, open everywhere, and this is in the group
    instead.
    """
    members: dict[int, list[Any]] = {}
    for op in module.walk(GROUP):
        members.setdefault(group_of(op), []).append(op.operands[0])
    for group in sorted(members):
        values = members[group]
        stated = [s for s in (sharding_of(module, value) for value in values) if s is not None]
        telling = [s for s in stated if not _says_nothing(s)] if len(values) > 1 else stated
        if not telling:
            continue
        if all(sharding == telling[0] for sharding in telling):
            for value in values:
                state_sharding(module, value, telling[0])
            continue
        warnings.warn(
            f"the values of sharding group {group} have different shardings ({telling[0]} and others): each gets an "
            "open constraint, which is in the group instead of it", stacklevel=2)
        for value in values:
            _constrain(value, TensorSharding.fully_open(telling[0].mesh, rank(value)))


def _constrain(value: Any, sharding: TensorSharding) -> None:
    constraint = create("sdy.sharding_constraint", [value], [value.type], {"sharding": str(sharding)}, behind(value))
    value.replace_all_uses_except(constraint.results[0], constraint)


def _says_nothing(sharding: TensorSharding) -> bool:
    return all(d.open and not d.axes for d in sharding.dims)
