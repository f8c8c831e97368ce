"""Sharding annotations, which state where values should be placed and return them unchanged."""

from __future__ import annotations

from eggshard.ops.base import Arrays, FactorRule, OpDef, Printed, Printer, Regions, Results, Types, Values, register
from eggshard.ops.elementwise.pointwise import pointwise_rule
from eggshard.ops.shapes.movement import moves_partial_sums
from eggshard.ops.signatures import require_count
from eggshard.program import codec
from eggshard.program.attributes import Attributes


class _ShardingConstraint(OpDef):
    """Return the operand unchanged; attribute ``sharding`` states how its author wants it sharded, for the planner."""

    name = "sharding_constraint"
    computes = False
    mlir_name = "sdy.sharding_constraint"

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        return tuple(operands)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return pointwise_rule(operands, results[0].shape, moves_partial_sums(operands[0].dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return tuple(arrays)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        """Nothing: the plan's own steps have placed the value."""
        return [], [operands[0][0]]


class _ShardingGroup(OpDef):
    """Ask that the operands of all ops of one ``group_id`` be sharded alike (JAX's shard_alike). No results.

    Propagation gives all members of a group one sharding, stated or found. The baseline keeps to it, and so do members
    that the program returns without a sharding of their own, where it can be observed. Elsewhere it is a hint, as
    constraints are: all members have the same candidates, and pruning of candidates spares this one.
    """

    name = "sharding_group"
    mlir_name = "sdy.sharding_group"
    attributes = {"group_id": codec.Integer()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        return ()

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return ()

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        """Nothing, as above."""
        return [], []


register(_ShardingConstraint())
register(_ShardingGroup())
