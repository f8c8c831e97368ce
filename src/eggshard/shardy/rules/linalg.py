"""Factorisations, solvers and transforms: all but the last dimensions are independent problems."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, OpShardingRule
from eggshard.shardy.rules.attributes import integers
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for


@rule_for("stablehlo.cholesky")
def _cholesky(op: Any, conservative: bool) -> OpShardingRule:
    rule = RuleBuilder(op)
    sizes = rule.operands[0]
    rule.add_pointwise(sizes, lambda dim: PASS_THROUGH if dim < len(sizes) - 2 else NEED_REPLICATION)
    return rule.built()


@rule_for("stablehlo.triangular_solve")
def _triangular_solve(op: Any, conservative: bool) -> OpShardingRule:
    """``op(a) x = b`` or ``x op(a) = b``: x has op(a)'s summed dimension, b has its other one."""
    rule = RuleBuilder(op)
    a, b = rule.operands
    rows, columns = len(a) - 2, len(a) - 1
    rule.add_pointwise(a[:-2])
    left = bool(ir.BoolAttr(op.attributes["left_side"]).value)
    transposed = any(word in str(op.attributes["transpose_a"]) for word in (" TRANSPOSE", "ADJOINT"))
    kept, summed = (columns, rows) if transposed == left else (rows, columns)
    solved, other = (rows, columns) if left else (columns, rows)

    def add_kept() -> None:
        rule.add(a[kept], {0: kept, 1: solved}, {}, NEED_REPLICATION)

    if left:
        add_kept()
    rule.add(b[other], {1: other}, {0: other}, NEED_REPLICATION)
    if not left:
        add_kept()
    rule.add(a[summed], {0: summed}, {0: solved}, NEED_REPLICATION)
    return rule.built()


@rule_for("stablehlo.fft")
def _fft(op: Any, conservative: bool) -> OpShardingRule:
    """Transformed dimensions stay whole; the last one takes no part in propagation if the op changes its size."""
    rule = RuleBuilder(op)
    sizes, results = rule.operands[0], rule.results[0]
    batch = len(sizes) - len(integers(op, "fft_length") or ())
    for dim, size in enumerate(sizes):
        kind = PASS_THROUGH if dim < batch else NEED_REPLICATION
        rule.add_everywhere(dim, size, kind, blocked=dim >= batch and size != results[dim])
    return rule.built()


@rule_for("stablehlo.rng_bit_generator")
def _rng_bit_generator(op: Any, conservative: bool) -> OpShardingRule:
    """The state stays whole, and what is drawn is independent of it."""
    rule = RuleBuilder(op)
    for dim, size in enumerate(rule.operands[0]):
        rule.add(size, {0: dim}, {0: dim}, NEED_REPLICATION, blocked=True)
    for dim, size in enumerate(rule.results[1]):
        rule.add(size, {}, {1: dim})
    return rule.built()
