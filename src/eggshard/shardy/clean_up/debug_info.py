"""Names of propagation's debugging notes (origins and edges of each value's axes), and the pass that removes them."""

from __future__ import annotations

from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.rewriting import transform_entries

#: Per value, the stated sharding that each of its axes came from.
ORIGINS = "sdy.sharding_origins"
#: Per op, which operand or result each axis came from, step by step.
EDGES = "sdy.propagation_edges"
#: Origins and edges of the block arguments and the results of an op whose data-flow edges have been removed.
ARGUMENT_ORIGINS, RESULT_ORIGINS = "sdy.block_arg_sharding_origins", "sdy.result_sharding_origins"
ARGUMENT_EDGES, RESULT_EDGES = "sdy.block_arg_propagation_edges", "sdy.result_propagation_edges"
ALL = frozenset({ORIGINS, EDGES, ARGUMENT_ORIGINS, RESULT_ORIGINS, ARGUMENT_EDGES, RESULT_EDGES})


@shardy_pass("remove-propagation-debug-info")
def remove_propagation_debug_info(module: ShardyModule) -> None:
    """Remove what propagation noted about origins and edges, of ops, arguments and results."""
    for op in module.walk():
        if op.name == "func.func":
            transform_entries(op, lambda entry: {k: v for k, v in entry.items() if k not in ALL})
        else:
            for name in ALL & set(op.attributes):
                del op.attributes[name]
