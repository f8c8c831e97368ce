"""Application of sharding constraints that dictate the sharding of their operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from eggshard.planner.propagation.projection import Projection
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.edges import DATA_FLOW, EDGE, edge_of, edge_owner, holder_of, owner_of, sharding_of, state_sharding
from eggshard.shardy.module import RULE, ShardyModule, behind, create, inside_first, rank
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.origins import Notes
from eggshard.shardy.rules import rule_of

CONSTRAINT, MANUAL = "sdy.sharding_constraint", "sdy.manual_computation"


@shardy_pass("apply-sharding-constraints")
def apply_sharding_constraints(
    module: ShardyModule, debug_sharding_origins: bool = False, debug_propagation_edge_sharding: bool = False
) -> None:
    """Give values the sharding of the constraint or manual computation that uses them.

    That is, of values without one: where it is closed, and no other constraint on the value states another. Values of a
    data-flow edge are not given it, lest all of the edge is bound: everybody else uses the constraint's result instead.
    So do, of a chain of constraints, all later users of its head's operand.
    """
    wanted = debug_sharding_origins or debug_propagation_edge_sharding
    notes = Notes(module, debug_sharding_origins, debug_propagation_edge_sharding) if wanted else None
    for op in inside_first(module.module.operation):
        if op.name == CONSTRAINT:
            _shorten_chain(module, op)
            sharding = _stated(op, 0)

            def moved(op: Any = op) -> Any:
                value = op.operands[0]
                if isinstance(value, ir.BlockArgument):
                    first = ir.BlockArgument(value).owner.operations[0]
                    if first.operation != op:
                        op.move_before(first)
                else:
                    op.move_after(owner_of(value))
                return op

            if _apply(module, op.operands[0], sharding, moved):
                _applied(module, op, sharding, notes)
        elif op.name == MANUAL:
            for number, value in enumerate(op.operands):
                sharding = _stated(op, number)

                def added(value: Any = value, sharding: TensorSharding = sharding) -> Any:
                    return create(CONSTRAINT, [value], [value.type], {"sharding": str(sharding)}, behind(value))

                _apply(module, value, sharding, added)

    if notes:
        notes.write()


def _applied(module: ShardyModule, op: Any, sharding: TensorSharding, notes: Notes | None) -> None:
    """State the rule by which a constraint has given its operand its sharding, and note that it has."""
    rule = rule_of(op)
    if rule is None:
        return
    op.attributes[RULE] = ir.Attribute.parse(str(rule))
    if notes is None:
        return
    mesh = module.mesh(sharding)
    old, new = (Projection.of(rule, [given], [sharding], mesh) for given in (None, sharding))
    if old != new:
        notes.take(op, [op.operands[0], op.results[0]], rule, old, new, mesh)


def _apply(module: ShardyModule, value: Any, sharding: TensorSharding, constraint: Callable[[], Any]) -> bool:
    """Give a value a constraint's sharding; whether it, and not others' use of it, was changed."""
    if holder_of(value) is None or sharding_of(module, value) is not None or any(d.open for d in sharding.dims):
        return False
    if any(_stated(op, number) != sharding for op, number in _constraining(value)):
        return False
    if not _is_edge(value):
        state_sharding(module, value, sharding)
        return True
    op = constraint()
    value.replace_all_uses_except(op.results[0], op)
    if sharding.sharding.unreduced:
        now = sharding_of(module, value) or TensorSharding.fully_open(sharding.mesh, rank(value))
        state_sharding(module, value, now.updated(unreduced=sharding.sharding.unreduced))
    return False


def _is_edge(value: Any) -> bool:
    op = owner_of(value)
    if op.name == EDGE:
        return True
    return op.name in DATA_FLOW and edge_of(edge_owner(value)) is not None


def _shorten_chain(module: ShardyModule, head: Any) -> None:
    """Let later users, in the same block, of what a chain of constraints starts from use its end instead."""
    value = head.operands[0]
    tail = _end_of_chain(module, head)
    if tail is None:
        return
    for use in list(value.uses):
        user = use.owner.operation
        if user == head or user.name == "func.return" or user.block != tail.block:
            continue
        if tail.is_before_in_block(user):
            user.operands[use.operand_number] = tail.results[0]


def _end_of_chain(module: ShardyModule, head: Any) -> Any | None:
    value = head.operands[0]
    if owner_of(value).name == CONSTRAINT or sharding_of(module, value) is not None:
        return None
    if any(op != head for op, _ in _constraining(value)):
        return None
    tail = head
    while True:
        users = [use.owner.operation for use in tail.results[0].uses]
        if len(users) != 1 or users[0].name != CONSTRAINT:
            break
        tail = users[0]
    return None if tail == head or _constraining(tail.results[0]) else tail


def _constraining(value: Any) -> list[tuple[Any, int]]:
    """The constraints and manual computations that use a value, with the operand that it is."""
    users = [(use.owner.operation, use.operand_number) for use in value.uses]
    return [(op, number) for op, number in users if op.name in (CONSTRAINT, MANUAL)]


def _stated(op: Any, number: int) -> TensorSharding:
    if op.name == CONSTRAINT:
        return TensorSharding.parse(str(op.attributes["sharding"]))
    return read_per_value(str(op.attributes["in_shardings"]))[number]
