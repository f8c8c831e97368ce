"""Making stated shardings final: no dimension stays open to propagation."""

from __future__ import annotations

from jaxlib.mlir import ir

from eggshard.placement.sharding import DimSharding
from eggshard.shardy.attributes import TensorSharding, per_value_text, read_per_value
from eggshard.shardy.module import BODIES, OWN_SHARDING, SHARDING, ShardyModule
from eggshard.shardy.passes import shardy_pass


@shardy_pass("close-shardings")
def close_shardings(module: ShardyModule) -> None:
    """Close every dimension of every sharding, and drop replicated axes."""
    for function in module.functions:
        for i, sharding in enumerate(module.argument_shardings(function)):
            if sharding:
                module.set_sharding(function.regions[0].blocks[0].arguments[i], closed(sharding))
        for i, sharding in enumerate(module.function_result_shardings(function)):
            if sharding:
                module.set_function_result_sharding(function, i, closed(sharding))
    for op in module.walk():
        names = ("in_shardings", "out_shardings") if op.name in BODIES else (SHARDING,)
        own = OWN_SHARDING.get(op.name)
        if own:
            op.attributes[own] = ir.Attribute.parse(str(closed(TensorSharding.parse(str(op.attributes[own])))))
        for name in names:
            if name in op.attributes:
                shardings = map(closed, read_per_value(str(op.attributes[name])))
                op.attributes[name] = ir.Attribute.parse(per_value_text(shardings))


def closed(sharding: TensorSharding) -> TensorSharding:
    """The same with all dimensions closed, and without replicated axes; only sharded dimensions keep a priority."""
    dims = tuple(DimSharding(d.axes, priority=d.priority if d.axes else None) for d in sharding.dims)
    return sharding.updated(dims=dims, replicated=())
