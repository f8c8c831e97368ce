"""Insertion of ops that hold the shardings of data-flow edges during propagation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.shardy.edges import EDGE, FUNCTION_EDGE, owner_of
from eggshard.shardy.module import SHARDING, ShardyModule, inside_first
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.traits import is_static


def add_edges(module: ShardyModule, owners: Sequence[Any]) -> None:
    """Put data-flow edges behind these owners; those of tokens have none."""
    for owner in reversed(owners):
        if is_static(owner):
            sharding = module.sharding(owner)
            stated = {} if sharding is None else {"sharding": ir.Attribute.parse(str(sharding))}
            with after(owner):
                edge = ir.Operation.create(EDGE, results=[owner.type], operands=[owner], attributes=stated)
            owner.replace_all_uses_except(edge.results[0], edge)


@shardy_pass("add-func-data-flow-edges")
def add_function_data_flow_edges(module: ShardyModule) -> None:
    """Put an op ``sdy.func_data_flow_edge`` behind arguments of functions other than main, and results of calls."""
    main = module.main
    for function in module.functions:
        if (main is None or function != main) and function.regions[0].blocks:
            block = function.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(block):
                for argument in block.arguments:
                    _add_function_edge(module, argument)
    for call in inside_first(module.module.operation):
        if call.name == "func.call" and call.results:
            with after(call.results[0]):
                for result in call.results:
                    _add_function_edge(module, result)


def _add_function_edge(module: ShardyModule, owner: Any) -> None:
    if not is_static(owner):
        return
    sharding = module.sharding(owner)
    stated = {} if sharding is None else {SHARDING: ir.Attribute.parse(f"#sdy.sharding_per_value<[{sharding.body()}]>")}
    edge = ir.Operation.create(FUNCTION_EDGE, results=[owner.type], operands=[owner], attributes=stated)
    owner.replace_all_uses_except(edge.results[0], edge)


def after(value: Any) -> ir.InsertionPoint:
    """The place behind the op that defines a value; the top of its block for an argument."""
    if isinstance(value, ir.BlockArgument):
        return ir.InsertionPoint.at_block_begin(ir.BlockArgument(value).owner)
    return ir.InsertionPoint.after(owner_of(value))
