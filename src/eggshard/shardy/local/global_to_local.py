"""The pass that converts a module with global shapes into the program of one device."""

from __future__ import annotations

from eggshard.shardy.local.collectives import CollectiveOptions
from eggshard.shardy.local.control import HANDLERS, convert_function
from eggshard.shardy.local.conversion import Conversion
from eggshard.shardy.local.ordinary import convert_ordinary, is_computed_in_place
from eggshard.shardy.local.permutation.factors import exchange_in_place
from eggshard.shardy.local.permutation.permuted import PERMUTED
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import shardy_pass


@shardy_pass("convert-global-to-local")
def convert_global_to_local(
    module: ShardyModule,
    per_dim_all_gather: bool = False,
    combine_multi_dimension_reduce_scatter: bool = False,
    enable_rgv3: bool = False,
) -> None:
    """Give every tensor the type of its shard, and every op the meaning that it has on shards.

    Shardy's collectives become StableHLO's, with groups of logical devices; computations with bodies are put in place.
    Nothing is resharded: operands and results that do not fit together, sizes that are not divisible, and ops that
    would need their neighbours' data are refused.

    per_dim_all_gather, combine_multi_dimension_reduce_scatter: whether what several dimensions need is one collective,
    or one each. enable_rgv3: groups of devices are written as axes of the mesh.
    """
    options = CollectiveOptions(per_dim_all_gather, combine_multi_dimension_reduce_scatter, enable_rgv3)
    conversion = Conversion(module, options, HANDLERS, convert_ordinary)
    for op in module.walk(*PERMUTED):
        if not is_computed_in_place(conversion, op):
            exchange_in_place(module, op)
    for function in module.functions:
        convert_function(conversion, function)
