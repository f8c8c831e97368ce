"""The pass that makes the program of one device, and the one that takes away what is left of shardings."""

from __future__ import annotations

from eggshard.shardy.local.collectives import CollectiveOptions
from eggshard.shardy.local.control import convert_function
from eggshard.shardy.local.conversion import Conversion
from eggshard.shardy.module import OWN_SHARDING, SHARDING, ShardyModule
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
    conversion = Conversion(module, options)
    for function in module.functions:
        convert_function(conversion, function)


@shardy_pass("drop-sharding-and-mesh")
def drop_sharding_and_mesh(module: ShardyModule) -> None:
    """Take away all shardings and meshes. What states a sharding and nothing else stays."""
    for function in module.functions:
        for argument in function.regions[0].blocks[0].arguments if len(function.regions[0].blocks) else ():
            module.set_sharding(argument, None)
        for i in range(len(module.function_result_shardings(function))):
            module.set_function_result_sharding(function, i, None)
    for op in module.walk():
        if op.name == "sdy.mesh":
            op.erase()
        elif SHARDING in op.attributes and op.name not in OWN_SHARDING:
            del op.attributes[SHARDING]
