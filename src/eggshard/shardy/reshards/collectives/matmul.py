"""The pass that drops all-gathers and reduce-scatters around products, for XLA's collective matrix multiplication."""

from __future__ import annotations

from typing import Any

from eggshard.shardy.module import ShardyModule, maker, uses
from eggshard.shardy.passes import shardy_pass

_PRODUCTS = ("stablehlo.dot", "stablehlo.dot_general")


@shardy_pass("remove-all-gather-reduce-scatter-for-cmv1", on="func.func")
def remove_all_gather_reduce_scatter_for_cmv1(module: ShardyModule) -> None:
    """Drop gathers of which only a product is made, else reduce-scatters of products, so that XLA may overlap them.

    A product whose reduce-scatter goes takes its sharding.
    """
    dropped: list[Any] = []
    for op in module.walk(*_PRODUCTS):
        gathers = [
            gather for value in op.operands
            if (gather := maker(value, "sdy.all_gather")) is not None and len(uses(value)) == 1
        ]
        dropped += gathers
        users = uses(op.results[0])
        if gathers or len(users) != 1 or users[0][0].name != "sdy.reduce_scatter":
            continue
        scatter, stated = users[0][0], module.sharding(op.results[0])
        if stated is None or not stated.sharding.unreduced:
            module.set_sharding(op.results[0], module.sharding(scatter.results[0]))
            dropped.append(scatter)
    for op in dropped:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
