"""Slices of padded tensors as one op, whose shards are as even as those of the tensor."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.shardy.local.permutation.permuted import Pad, Slice
from eggshard.shardy.module import ShardyModule, create, maker, shape, uses
from eggshard.shardy.passes import shardy_pass

_EDGES = ("edge_padding_low", "edge_padding_high", "interior_padding")


@shardy_pass("fold-slices-of-pads", on="")
def fold_slices_of_pads(module: ShardyModule) -> None:
    """Write a slice of a padded tensor as a pad, which cuts off where its edges are negative, along sharded dimensions.

    The padded tensor is then no value that has to be sharded: its size is often one that shards do not divide.
    """
    for op in module.walk("stablehlo.slice"):
        pad = maker(op.operands[0], "stablehlo.pad")
        if pad is not None and _is_sharded_where_cut(module, op):
            _fold(module, op, pad)


def _is_sharded_where_cut(module: ShardyModule, op: Any) -> bool:
    stated = [module.sharding(value) for value in (op.operands[0], op.results[0])]
    cut = [d for d, (n, k) in enumerate(zip(shape(op.operands[0]), shape(op.results[0]), strict=True)) if n != k]
    return any(s is not None and s.sharding.device is None and any(s.axes[d] for d in cut) for s in stated)


def _fold(module: ShardyModule, op: Any, pad: Any) -> None:
    edges = []
    for n, (low, high, interior), (start, limit, stride) in zip(
            shape(pad.operands[0]), Pad(pad).edges, Slice(op).cuts, strict=True):
        total = low + high + n + max(0, n - 1) * interior
        if (start, limit, stride) == (0, total, 1):
            edges.append((low, high, interior))
        elif stride == 1 and not interior:
            edges.append((low - start, limit - low - n, 0))
        else:
            return
    attributes = {name: ir.DenseI64ArrayAttr.get(list(column))
                  for name, column in zip(_EDGES, zip(*edges, strict=True), strict=True)}
    made = create("stablehlo.pad", pad.operands, [op.results[0].type], attributes, op, location=op.location)
    sharding = module.sharding(op.results[0])
    if sharding is not None:
        module.set_sharding(made.results[0], sharding)
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    if not uses(pad.results[0]):
        pad.erase()
