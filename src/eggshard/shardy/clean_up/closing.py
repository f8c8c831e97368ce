"""The pass that closes stated shardings, so that no dimension is open to propagation."""

from __future__ import annotations

from eggshard.program.sharding import DimSharding
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.rewriting import transform_shardings


@shardy_pass("close-shardings")
def close_shardings(module: ShardyModule) -> None:
    """Close every dimension of every sharding, and drop replicated axes.

    Priorities stay where a dimension has axes: an empty closed dimension has none.
    """
    transform_shardings(module, lambda sharding, _: closed(sharding))


def closed(sharding: TensorSharding) -> TensorSharding:
    """Close all dimensions of a sharding and drop its replicated axes; only sharded dimensions keep a priority."""
    dims = tuple(DimSharding(d.axes, priority=d.priority if d.axes else None) for d in sharding.dims)
    return sharding.updated(dims=dims, replicated=())
