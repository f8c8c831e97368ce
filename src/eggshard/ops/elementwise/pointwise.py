"""The base of elementwise ops: one shape, and one factor for each of its dimensions."""

from __future__ import annotations

from eggshard.errors import ProgramError
from eggshard.ops.base import Factor, FactorRule, OpDef, Regions, Types
from eggshard.ops.signatures import require_count
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

Linear = tuple[tuple[str, tuple[int, ...]], ...]


def pointwise_rule(operands: Types, shape: tuple[int, ...], linear: Linear = ()) -> FactorRule:
    """One pass factor per dimension; scalars among tensors belong to none."""
    whole = tuple((i,) for i in range(len(shape)))
    return FactorRule(
        tuple(Factor(n) for n in shape),
        tuple(whole if t.rank == len(shape) else () for t in operands),
        (whole,),
        linear,
    )


class Pointwise(OpDef):
    """Base of ops on operands of one shape. ``evaluate`` broadcasts, so scalars stand for whole tensors."""

    pointwise = True
    arity = 1

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, self.arity)
        for t in operands[1:]:
            if t.shape != operands[0].shape:
                raise ProgramError("operands have different shapes; broadcast_in_dim makes them equal")
        return (TensorType(operands[0].shape, self.result_dtype(attrs, operands)),)

    def result_dtype(self, attrs: Attributes, operands: Types) -> str:
        """The result's element type; ProgramError for operand types that the op does not accept."""
        raise NotImplementedError(self.name)

    def linear(self, attrs: Attributes, operands: Types) -> Linear:
        """Linear entries of the sharding rule."""
        return ()

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return pointwise_rule(operands, results[0].shape, self.linear(attrs, operands))
