"""Kinds of op that Shardy distinguishes, listed by name because MLIR's Python interface does not expose traits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jaxlib.mlir import ir

from eggshard.ops import registry
from eggshard.shardy.module import shape

#: Ops on quantized tensors, which have no definitions.
QUANTIZATION = frozenset(("stablehlo.uniform_dequantize", "stablehlo.uniform_quantize"))
#: CHLO's ops that are not elementwise.
_CHLO_OTHERS = frozenset(
    "chlo." + name for name in """
    broadcast_select constant constant_like dynamic_reshape minimum_broadcast_shapes ragged_dot
    rank_specialization_cluster
    rank_specialization_cluster_yield scan top_k
    """.split())
#: Ops that Shardy treats as elementwise, though they are not.
_LIKE_ELEMENTWISE = frozenset(("sdy.propagation_barrier", "sdy.sharding_constraint", "sdy.reshard"))
#: StableHLO's ops that do something besides computing their results, or may.
_EFFECTS = frozenset(
    "stablehlo." + name for name in """
    all_gather all_reduce all_to_all async_done async_start collective_broadcast collective_permute collective_reduce
    composite infeed outfeed recv reduce_scatter rng send
    """.split())
#: Dialects whose ops are otherwise nothing but their results.
_PURE_DIALECTS = ("stablehlo.", "chlo.", "arith.", "math.", "tensor.")
#: Shardy's ops that are nothing but their results.
_PURE = frozenset(("sdy.constant", "sdy.reshard", "sdy.propagation_barrier", "sdy.return"))
#: Ops that have the effects of their regions.
_AS_REGIONS = frozenset(("sdy.manual_computation", "sdy.named_computation"))


def is_elementwise(op: Any) -> bool:
    """Whether an op's result has the shape of its operands, and an element depends on those at its place alone."""
    name = op.name
    if name == "stablehlo.bitcast_convert":
        return shape(op.operands[0]) == shape(op.results[0])
    if name.startswith("chlo."):
        return name not in _CHLO_OTHERS
    return is_pointwise(name) or name in QUANTIZATION or name in _LIKE_ELEMENTWISE


def is_pointwise(name: str) -> bool:
    """Whether the op of this name is defined, and as one on elements."""
    definition = registry.spelled(name)
    return definition is not None and definition.pointwise


def is_terminator(op: Any) -> bool:
    """Whether an op ends its block."""
    return bool(op.name.endswith(".return"))


def is_pure(op: Any, also: Collection[str] = ()) -> bool:
    """Whether nothing but its results would be missed if an op, with its regions, were not there.

    also: names of further ops that are taken as nothing but their results.
    """
    name = op.name
    if name == "stablehlo.custom_call":
        return "has_side_effect" not in op.attributes or not ir.BoolAttr(op.attributes["has_side_effect"]).value
    if name in _EFFECTS:
        return False
    if not (name.startswith(_PURE_DIALECTS) or name in _PURE or name in _AS_REGIONS or name in also):
        return False
    blocks = (block for region in op.regions for block in region.blocks)
    return all(is_pure(inner.operation, also) for block in blocks for inner in block.operations)


def is_static(value: Any) -> bool:
    """Whether a value is a tensor of a known shape."""
    return isinstance(value.type, ir.RankedTensorType) and bool(value.type.has_static_shape)


def is_scalar(value: Any) -> bool:
    """Whether a value is a tensor of rank 0."""
    return isinstance(value.type, ir.RankedTensorType) and value.type.rank == 0
