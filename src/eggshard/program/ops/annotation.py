"""Ops that say where a value should lie and change nothing of what it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eggshard.program.ops.base import Arrays, FactorRule, OpDef, Types, Values, register
from eggshard.program.ops.elementwise import pointwise_rule, require_count
from eggshard.program.ops.movement import moves_addends
from eggshard.program.program import Attributes, Region


class _ShardingConstraint(OpDef):
    """Its operand. Attribute ``sharding`` is what the program's author wants of it; planning reads it."""

    name = "sharding_constraint"
    mlir_name = "sdy.sharding_constraint"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 1)
        return tuple(operands)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return pointwise_rule(operands, results[0].shape, moves_addends(operands[0].dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        return tuple(arrays)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return 0.0

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], fresh: Callable[[], str]
    ) -> tuple[list[str], list[str]]:
        """Nothing: the plan's own steps have placed the value."""
        return [], [operands[0][0]]


register(_ShardingConstraint())
