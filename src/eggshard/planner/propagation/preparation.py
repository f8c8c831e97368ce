"""Preparation of a program for propagation: one constant per use, data-flow edges of loops, constraints applied."""

from __future__ import annotations

import warnings
from dataclasses import replace

from eggshard.errors import EggshardWarning, ShardingError
from eggshard.planner.propagation.draft import (
    CONSTRAINT,
    DATA_FLOW,
    EDGE,
    GROUP,
    MANUAL,
    RETURN,
    DraftOp,
    Value,
    inside_first,
    within,
)
from eggshard.program.sharding import Sharding

_KEEPS_CONSTANT = frozenset(("broadcast_in_dim", "reshape", "slice"))


def prepare(function: DraftOp) -> None:
    """All of it. ShardingError for sharding groups that cannot be sharded alike."""
    split_constants(function)
    add_edges(function)
    apply_constraints(function)
    join_groups(function)


# -- constants ---------------------------------------------------------------------------------------------------------


def split_constants(function: DraftOp) -> None:
    """Compute constants, and broadcasts of scalars, anew for each of their users; scalars themselves are not split.

    A constant is one, or an iota, or what elementwise ops, broadcasts, reshapes and slices make of constants.
    """
    constants: dict[DraftOp, None] = {}
    expansions: dict[DraftOp, None] = {}
    for op in list(within(function)):
        if op.name == GROUP:
            continue
        preserving = (op.name in _KEEPS_CONSTANT or op.elementwise) and op.pure
        if op.name in ("constant", "iota") or (preserving and all(v.definer in constants for v in op.operands)):
            constants[op] = None
        elif op.name == "broadcast_in_dim" and op.operands[0].type.rank == 0:
            expansions[op] = None
        else:
            for number, value in enumerate(list(op.operands)):
                if value.type.rank and (value.definer in constants or value.definer in expansions):
                    copies: dict[Value, Value] = {}
                    _copy(value, copies)
                    op.set(number, copies[value])
    unused: set[DraftOp] = set()
    for op in (*expansions, *reversed(constants)):
        users = [user for value in op.results for user, _ in value.uses]
        if all(user.name == GROUP for user in users):
            for user in (*users, op):
                user.release()
                unused.add(user)
    for block in {op.block for op in unused if op.block is not None}:
        block.ops = [op for op in block.ops if op not in unused]


def _copy(value: Value, copies: dict[Value, Value]) -> None:
    """Compute a value anew, in front of where it was, with all that it is computed from but for scalars."""
    op = value.definer
    if not value.type.rank or value in copies or op is None:
        return
    for operand in op.operands:
        _copy(operand, copies)
    copy = op.copy()
    for number, operand in enumerate(list(copy.operands)):
        if operand in copies:
            copy.set(number, copies[operand])
    copies.update(zip(op.results, copy.results, strict=True))
    for user, _ in value.uses:
        if user.name == GROUP:
            user.copy().set(0, copies[value])


# -- data-flow edges ---------------------------------------------------------------------------------------------------


def add_edges(function: DraftOp) -> None:
    """Put a data-flow edge behind the owner of every value that flows through regions; it keeps the sharding."""
    for op in inside_first(function):
        if op.name in DATA_FLOW:
            arguments = op.blocks[0].arguments if op.name == MANUAL else []
            for owner in (*reversed(arguments), *reversed(op.results)):
                edge = DraftOp(EDGE, [owner.type])
                edge.use(owner)
                edge.results[0].sharding = owner.sharding
                edge.stand_behind(owner)
                owner.replace(edge.results[0], edge)


def edge_owner(target: Value) -> Value | None:
    """The owner of the edge that a value is a target of; None if it is no target."""
    op = target.owner
    if op.name not in DATA_FLOW:
        return None
    return op.results[target.number] if op.name == "while" and target.block is not None else target


def edge_of(owner: Value) -> DraftOp | None:
    """The edge of an owner, which is its only user; None if it has none."""
    users = owner.uses
    return users[0][0] if len(users) == 1 and users[0][0].name == EDGE else None


def holder_of(value: Value) -> Value:
    """The value at which a value's sharding is kept: its edge, or itself."""
    owner = edge_owner(value)
    edge = None if owner is None else edge_of(owner)
    return edge.results[0] if edge is not None else value if owner is None else owner


def sources(owner: Value) -> list[Value]:
    """The values that flow into an edge."""
    op, number = owner.owner, owner.number
    if owner.block is not None or op.name == "optimization_barrier":
        return [op.operands[number]]
    bodies = op.blocks[1:] if op.name == "while" else op.blocks
    ends = [block.ops[-1].operands[number] for block in bodies]
    return [op.operands[number], *ends] if op.name == "while" else ends


def watching_edge(op: DraftOp, operand: int) -> DraftOp | None:
    """The edge that is to be looked at when an op's operand changes; None where there is none.

    Edges into bodies are not found from outside, in Shardy neither: they are looked at when their op's turn comes.
    """
    into = op.name != RETURN
    flow = op if into or op.block is None else op.block.owner
    if flow.name not in DATA_FLOW or (into and flow.name == MANUAL) or operand >= len(flow.results):
        return None
    return edge_of(flow.results[operand])


# -- constraints -------------------------------------------------------------------------------------------------------


def apply_constraints(function: DraftOp) -> None:
    """Give values the sharding of the constraint or manual computation that uses them.

    That is, of values without one: where it is closed, and no other constraint on the value states another. Values of a
    data-flow edge are not given it, lest all of the edge is bound: everybody else uses the constraint's result instead.
    So do, of a chain of constraints, all later users of its head's operand.
    """
    for op in inside_first(function):
        if op.name == CONSTRAINT:
            _shorten_chain(op)
            _apply(op.operands[0], op.results[0].sharding, op)
        elif op.name == MANUAL:
            for value, sharding in zip(list(op.operands), op.ends[0], strict=True):
                _apply(value, sharding, None)


def _apply(value: Value, sharding: Sharding | None, constraint: DraftOp | None) -> None:
    holder = holder_of(value)
    if holder.sharding is not None or sharding is None or any(d.open for d in sharding.dims):
        return
    if any(other != sharding for other in _constraints_on(value).values()):
        return
    if holder is value and value.owner.name != EDGE:
        value.sharding = sharding
        return
    if constraint is None:
        _constrain(value, sharding)
    else:
        constraint.remove()
        constraint.stand_behind(value)
        value.replace(constraint.results[0], constraint)
    if sharding.unreduced:
        holder.sharding = replace(holder.sharding or Sharding.fully_open(value.type.rank), unreduced=sharding.unreduced)


def _constrain(value: Value, sharding: Sharding) -> None:
    """Let all users of a value use it under a constraint."""
    constraint = DraftOp(CONSTRAINT, [value.type])
    constraint.results[0].sharding = sharding
    constraint.use(value)
    constraint.stand_behind(value)
    value.replace(constraint.results[0], constraint)


def _constraints_on(value: Value) -> dict[tuple[DraftOp, int], Sharding | None]:
    """What the constraints and manual computations that use a value state for it."""
    return {
        (op, number): op.results[0].sharding if op.name == CONSTRAINT else op.ends[0][number]
        for op, number in value.uses if op.name in (CONSTRAINT, MANUAL)
    }


def _shorten_chain(head: DraftOp) -> None:
    """Let later users, in the same block, of what a chain of constraints starts from use its end instead."""
    value, tail = head.operands[0], head
    if value.owner.name == CONSTRAINT or holder_of(value).sharding is not None or len(_constraints_on(value)) > 1:
        return
    while len(users := tail.results[0].uses) == 1 and users[0][0].name == CONSTRAINT:
        tail = users[0][0]
    if tail is head or _constraints_on(tail.results[0]) or tail.block is None:
        return
    later = set(tail.block.ops[tail.block.ops.index(tail) + 1 :])
    for user, number in value.uses:
        if user is not head and user in later and not (user.name == RETURN and tail.block.owner.block is None):
            user.set(number, tail.results[0])


# -- sharding groups ---------------------------------------------------------------------------------------------------


def groups_of(function: DraftOp) -> list[list[Value]]:
    """The values that are to be sharded alike, one list per group; groups that share a value are one."""
    leaders: dict[int, int] = {}
    first: dict[int, DraftOp] = {}

    def leader(group: int) -> int:
        while leaders.setdefault(group, group) != group:
            group = leaders[group]
        return group

    named: dict[Value, list[int]] = {}
    for op in within(function):
        if op.name == GROUP:
            group = op.attributes["group_id"]
            _check(op, first.setdefault(group, op), group)
            named.setdefault(op.operands[0], []).append(group)
    for groups in named.values():
        for group in groups:
            leaders[leader(group)] = leader(groups[0])
    out: dict[int, list[Value]] = {}
    for value, groups in named.items():
        out.setdefault(leader(groups[0]), []).append(value)
    return list(out.values())


def _check(op: DraftOp, first: DraftOp, group: int) -> None:
    if _manual(op) is not _manual(first):
        raise ShardingError(
            f"sharding group {group} has values inside and outside of one manual computation; give them two groups")
    shapes = first.operands[0].type.shape, op.operands[0].type.shape
    if shapes[0] != shapes[1]:
        raise ShardingError(
            f"sharding group {group} has tensors of shapes {shapes[0]} and {shapes[1]}; they must be equal")


def _manual(op: DraftOp) -> DraftOp | None:
    around = op.block.owner if op.block is not None else None
    while around is not None and around.name != MANUAL:
        around = around.block.owner if around.block is not None else None
    return around


def join_groups(function: DraftOp) -> None:
    """State for every value of a group what is stated for one of them.

    Where different shardings are stated, each value gets a constraint, open everywhere, and this is in the group
    instead.
    """
    for values in groups_of(function):
        stated = [s for s in (holder_of(value).sharding for value in values) if s is not None]
        telling = [s for s in stated if not all(d.open and not d.axes for d in s.dims)] if len(values) > 1 else stated
        if not telling:
            continue
        if all(sharding == telling[0] for sharding in telling):
            for value in values:
                holder_of(value).sharding = telling[0]
            continue
        warnings.warn(
            f"the values of a sharding group have different shardings ({telling[0]} and others): each gets an open "
            "constraint, which is in the group instead of it", EggshardWarning, stacklevel=2)
        for value in values:
            _constrain(value, Sharding.fully_open(value.type.rank))
