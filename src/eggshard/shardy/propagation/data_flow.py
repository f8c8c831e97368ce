"""Insertion of ops that hold the shardings of data-flow edges during propagation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.shardy.attributes import per_value_text
from eggshard.shardy.edges import EDGE, FUNCTION_EDGE
from eggshard.shardy.module import SHARDING, ShardyModule, behind, create, inside_first
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.traits import is_static


def add_edges(module: ShardyModule, owners: Sequence[Any]) -> None:
    """Put data-flow edges behind these owners; those of tokens have none."""
    for owner in reversed(owners):
        if is_static(owner):
            sharding = module.sharding(owner)
            _add(EDGE, owner, {} if sharding is None else {"sharding": str(sharding)}, behind(owner))


@shardy_pass("add-func-data-flow-edges")
def add_function_data_flow_edges(module: ShardyModule) -> None:
    """Put an op ``sdy.func_data_flow_edge`` behind arguments of functions other than main, and results of calls."""
    main = module.main
    for function in module.functions:
        if (main is None or function != main) and function.regions[0].blocks:
            block = function.regions[0].blocks[0]
            _add_function_edges(module, block.arguments, ir.InsertionPoint.at_block_begin(block))
    for call in inside_first(module.module.operation):
        if call.name == "func.call":
            _add_function_edges(module, call.results, ir.InsertionPoint.after(call))


def _add_function_edges(module: ShardyModule, owners: Sequence[Any], at: Any) -> None:
    for owner in filter(is_static, owners):
        sharding = module.sharding(owner)
        _add(FUNCTION_EDGE, owner, {} if sharding is None else {SHARDING: per_value_text([sharding])}, at)


def _add(name: str, owner: Any, stated: dict[str, str], at: Any) -> None:
    edge = create(name, [owner], [owner.type], stated, at)
    owner.replace_all_uses_except(edge.results[0], edge)
