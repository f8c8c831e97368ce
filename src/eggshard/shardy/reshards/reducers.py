"""Reductions whose body no all-reduce can repeat, although Shardy's rule lets the reduced dimensions be sharded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.axes import Axes, shard_count
from eggshard.program.monoids import OF_OP
from eggshard.program.op_sharding_rule import NEED_REPLICATION, REDUCTION, OpShardingRule
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import owner_of, terminator
from eggshard.shardy.module import ShardyModule, create, shape
from eggshard.shardy.passes import shardy_pass


def repeatable(op: Any, rule: OpShardingRule) -> OpShardingRule:
    """The rule of an op, with reduced dimensions that need replication where devices' results cannot be combined.

    A body that combines each component by one monoid is repeated by an all-reduce per result; one that looks at several
    components, as that of an argmax, is not, and neither is a body of several steps.
    """
    if op.name != "stablehlo.reduce" or combines_each(op):
        return rule
    factors = tuple(replace(f, kind=NEED_REPLICATION) if f.kind == REDUCTION else f for f in rule.factors)
    return replace(rule, factors=factors)


@shardy_pass("split-reductions", on="")
def split_reductions(module: ShardyModule) -> None:
    """Let devices reduce what they hold where no all-reduce can repeat a reduction's body, as that of an argmax.

    A sharded dimension that is reduced becomes two, of which the first numbers the shards: the second is reduced, and
    then the first, of which explicit reshards gather one element a device. Only where shards are equal.
    """
    for op in module.walk("stablehlo.reduce"):
        if not combines_each(op):
            _split(module, op)


def _split(module: ShardyModule, op: Any) -> None:
    count = len(op.results)
    reduced = [int(d) for d in ir.DenseI64ArrayAttr(op.attributes["dimensions"])]
    stated = [s for x in list(op.operands)[:count] if (s := module.sharding(x)) is not None and any(s.axes)]
    sizes = shape(op.operands[0])
    if not stated or module.on_one_device(stated[0]):
        return
    sharding, sizes_of = stated[0], module.mesh(stated[0]).axes
    shards = {d: n for d in reduced if (n := shard_count(sharding.axes[d], sizes_of)) > 1 and sizes[d] % n == 0}
    if not shards:
        return
    dims, axes, again, inner = list[int](), list[Axes](), list[int](), list[int]()
    for d, size in enumerate(sizes):
        if d in shards:
            again.append(len(dims) - len(inner))
            dims.append(shards[d])
            axes.append(sharding.axes[d])
        if d in reduced:
            inner.append(len(dims))
        dims.append(size // shards.get(d, 1))
        axes.append(() if d in shards else sharding.axes[d])
    kept = [a for i, a in enumerate(axes) if i not in inner]
    apart, part = (TensorSharding.closed(sharding.mesh, listed) for listed in (axes, kept))
    first = op.clone(ir.InsertionPoint(op))
    for i in range(count):
        element_type = ir.RankedTensorType(op.operands[i].type).element_type
        wide = create("stablehlo.reshape", [op.operands[i]], [ir.RankedTensorType.get(dims, element_type)], {}, first)
        module.set_sharding(wide.results[0], apart)
        first.operands[i] = wide.results[0]
        first.results[i].set_type(
            ir.RankedTensorType.get([n for j, n in enumerate(dims) if j not in inner], element_type))
        module.set_sharding(first.results[i], part)
        op.operands[i] = first.results[i]
    first.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(inner)
    op.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(again)


def combines_each(op: Any) -> bool:
    """Whether a reduction's body combines each component, by itself, by one of the ops of `MONOIDS`."""
    (region,) = op.regions
    arguments = region.blocks[0].arguments
    returned = terminator(region).operands
    for i, value in enumerate(returned):
        made = owner_of(value)
        if made == op or made.name.removeprefix("stablehlo.") not in OF_OP:
            return False
        if {arguments[i], arguments[len(returned) + i]} != set(made.operands):
            return False
    return True
