"""Sharding groups: values to be sharded alike wherever they are."""

from __future__ import annotations

import warnings
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import owner_of, sharding_of, state_sharding
from eggshard.shardy.module import ShardyModule, rank, shape
from eggshard.shardy.passes import shardy_pass

GROUP, GROUP_ID = "sdy.sharding_group", "group_id"


@shardy_pass("sharding-group-import")
def sharding_group_import(module: ShardyModule) -> None:
    """Number sharding groups anew, as one where they share a value, and drop what is said twice.

    ShardingError for groups across the border of a manual computation, or of tensors of different shapes.
    """
    ops = module.walk(GROUP)
    first: dict[int, Any] = {}
    leaders: dict[int, int] = {}

    def leader(group: int) -> int:
        while leaders.setdefault(group, group) != group:
            group = leaders[group]
        return group

    groups_of: dict[Any, list[int]] = {}
    for op in ops:
        group = group_of(op)
        _check(op, first.setdefault(group, op), group)
        groups_of.setdefault(op.operands[0], []).append(group)
    for groups in groups_of.values():
        for group in groups:
            kept = leader(groups[0])
            leaders[leader(group)] = kept
    # The first group that is seen is number 0, and so on.
    numbers = {group: number for number, group in enumerate(g for g in leaders if leaders[g] == g)}
    seen = set()
    for op in ops:
        if op.operands[0] in seen:
            op.erase()
            continue
        seen.add(op.operands[0])
        number = numbers[leader(group_of(op))]
        op.attributes[GROUP_ID] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _check(op: Any, first: Any, group: int) -> None:
    inside, others = _manual(op), _manual(first)
    if (inside is None) != (others is None) or (inside is not None and inside != others):
        raise ShardingError(
            f"sharding group {group} has values inside and outside of one manual computation; give them two groups")
    shapes = shape(op.operands[0]), shape(first.operands[0])
    if shapes[0] != shapes[1]:
        raise ShardingError(
            f"sharding group {group} has tensors of shapes {shapes[1]} and {shapes[0]}; they must be equal")


def _manual(op: Any) -> Any:
    around = op.parent
    while around is not None and around.operation.name != "sdy.manual_computation":
        around = around.operation.parent
    return None if around is None else around.operation


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
    if isinstance(value, ir.BlockArgument):
        point = ir.InsertionPoint.at_block_begin(ir.BlockArgument(value).owner)
    else:
        point = ir.InsertionPoint.after(owner_of(value))
    with point:
        constraint = ir.Operation.create(
            "sdy.sharding_constraint", results=[value.type], operands=[value],
            attributes={"sharding": ir.Attribute.parse(str(sharding))})
    value.replace_all_uses_except(constraint.results[0], constraint)


def _says_nothing(sharding: TensorSharding) -> bool:
    return all(d.open and not d.axes for d in sharding.dims)
