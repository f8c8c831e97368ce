"""Data-flow edges: sets of values that are one tensor, such as a loop's operand, carried value and result.

An edge has *sources*, which flow into it, and *targets*, which are read from it. One of the targets, the *owner*, holds
the edge's sharding; during propagation an op ``sdy.data_flow_edge`` on the owner does.
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.module import BODIES, ShardyModule

#: Ops whose edges are owned by their results; bodies' arguments own some of theirs.
DATA_FLOW = ("stablehlo.while", "stablehlo.case", "stablehlo.optimization_barrier", *BODIES)
#: Shardy has no data-flow edges for it, so its branches return what they happen to; reshards take it as a case.
IF = "stablehlo.if"
EDGE, FUNCTION_EDGE = "sdy.data_flow_edge", "sdy.func_data_flow_edge"


def owner_of(value: Any) -> Any:
    """The operation that a value is a result of, or in whose region it is an argument."""
    if isinstance(value, ir.BlockArgument):
        return ir.BlockArgument(value).owner.owner.operation
    return value.owner.operation if hasattr(value.owner, "operation") else value.owner


def terminator(region: Any) -> Any:
    """The last operation of a region's block."""
    operations = region.blocks[0].operations
    return operations[len(operations) - 1].operation


def edge_owners(op: Any) -> tuple[list[Any], list[Any]]:
    """The block arguments and the results of a data-flow op that own edges."""
    arguments = list(op.regions[0].blocks[0].arguments) if op.name in BODIES else []
    return arguments, list(op.results)


def edge_owner(target: Any) -> Any | None:
    """The owner of the edge that a value is a target of; None if it is no target."""
    op = owner_of(target)
    if op.name not in DATA_FLOW:
        return None
    if op.name == "stablehlo.while" and isinstance(target, ir.BlockArgument):
        return op.results[ir.BlockArgument(target).arg_number]
    return target


def owner_of_source(op: Any, operand: int) -> Any | None:
    """The owner of the edge that is to be looked at when an op's operand changes; None where there is none.

    Edges into bodies are not found from outside, in Shardy neither: they are looked at when their op's turn comes.
    """
    into = not op.name.endswith(".return")
    flow = op if into else op.parent.operation
    if flow.name not in DATA_FLOW or (into and flow.name in BODIES) or operand >= len(flow.results):
        return None
    return flow.results[operand]


def sources(owner: Any) -> list[Any]:
    """The values that flow into an edge; ProgramError for an edge of a value that owns none."""
    return [op.operands[number] for op, number in source_operands(owner)]


def source_operands(owner: Any) -> list[tuple[Any, int]]:
    """The operands through which values flow into an edge: ops and numbers."""
    op = owner_of(owner)
    if op.name not in (*DATA_FLOW, IF):
        raise ProgramError(
            f"an sdy.data_flow_edge is behind a value of {op.name}, of type {owner.type}, which owns no edge; leave "
            f"them to add-data-flow-edges, which puts them behind {', '.join(DATA_FLOW)}")
    if isinstance(owner, ir.BlockArgument):
        return [(op, ir.BlockArgument(owner).arg_number)]
    number = ir.OpResult(owner).result_number
    if op.name == "stablehlo.optimization_barrier":
        return [(op, number)]
    if op.name == "stablehlo.while":
        return [(op, number), (terminator(op.regions[1]), number)]
    return [(terminator(region), number) for region in op.regions]


def other_targets(owner: Any) -> list[Any]:
    """The values read from an edge, but for its owner."""
    op = owner_of(owner)
    if op.name != "stablehlo.while":
        return []
    number = ir.OpResult(owner).result_number
    return [region.blocks[0].arguments[number] for region in op.regions]


def edge_of(owner: Any) -> Any | None:
    """The op ``sdy.data_flow_edge`` of an edge, None if it has none."""
    users = [use.owner.operation for use in owner.uses]
    return users[0] if len(users) == 1 and users[0].name == EDGE else None


def sharding_of(module: ShardyModule, value: Any) -> TensorSharding | None:
    """The sharding stated for a value, at its data-flow edge if it is a target of one."""
    holder = holder_of(value)
    return None if holder is None else module.sharding(holder)


def state_sharding(module: ShardyModule, value: Any, sharding: TensorSharding) -> None:
    """State a value's sharding, at its data-flow edge if it is a target of one; nothing if it can have none."""
    holder = holder_of(value)
    if holder is not None:
        module.set_sharding(holder, sharding)


def holder_of(value: Any) -> Any | None:
    """The value at which a value's sharding is kept: its edge, the edge's owner, or itself.

    None for arguments of reductions and the like, which cannot have a sharding.
    """
    op = owner_of(value)
    if op.name in DATA_FLOW:
        owner = edge_owner(value)
        edge = edge_of(owner)
        return owner if edge is None else edge.results[0]
    return None if isinstance(value, ir.BlockArgument) and op.name != "func.func" else value
