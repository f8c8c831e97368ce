"""Ops without operands: constants and index counters."""

from __future__ import annotations

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import (
    PASS,
    REPLICATE,
    Arrays,
    Factor,
    FactorRule,
    OpDef,
    Regions,
    Results,
    Types,
    register,
    replicated_rule,
)
from eggshard.ops.shard_program import MOST_PLACES, PLACE, ShardProgram
from eggshard.ops.signatures import require_class, require_count
from eggshard.program import codec
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType, float_limits, integer_limits, is_float, mlir_dtype


class _Constant(OpDef):
    """The array of ``value``, a Literal. A splat is the same on every shard, so it is sharded for free."""

    name = "constant"
    computes = False
    attributes = {"value": codec.Dense()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 0)
        if not isinstance(attrs["value"], Literal):
            raise ProgramError("value must be a Literal")
        array = attrs["value"].array
        return (TensorType(array.shape, mlir_dtype(array.dtype)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        if not attrs["value"].splat:
            return replicated_rule(operands, results)
        shape = results[0].shape
        return FactorRule(tuple(Factor(n) for n in shape), (), (tuple((i,) for i in range(len(shape))),))

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        literal, shape = attrs["value"], local_results[0].shape
        if not literal.splat or literal.array.shape == shape:
            return attrs
        return attrs.updated(value=Literal(np.broadcast_to(literal.array.reshape(-1)[0], shape)))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (attrs["value"].array,)


def _consecutive(dtype: str) -> int:
    """How many whole numbers from 0 on the element type holds exactly."""
    part = numerics.part_dtype(dtype)
    return 2 ** (int(float_limits(part).nmant) + 1) if is_float(part) else integer_limits(part)[1] + 1


class _Iota(OpDef):
    """Each element's index along ``iota_dimension``; the other dimensions repeat it, so they are sharded for free.

    A shard of the dimension itself is counted from its start.
    """

    name = "iota"
    stated = ("shape", "dtype")
    computes = False
    attributes = {"iota_dimension": codec.Integer()}
    windows_by_place = True

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 0)
        result = TensorType(tuple(attrs["shape"]), attrs["dtype"])
        require_class(result, "fciu")
        if not 0 <= attrs["iota_dimension"] < result.rank:
            raise ProgramError(f"iota_dimension {attrs['iota_dimension']} does not exist in {result}")
        return (result,)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        dim, (y,) = attrs["iota_dimension"], results
        factors = [Factor(n) for n in y.shape]
        # Shards are counted in places, and converted: every index must be one, and a value of the element type.
        counted = y.shape[dim] <= min(MOST_PLACES, _consecutive(y.dtype))
        factors[dim] = Factor(y.shape[dim], PASS, positional=True) if counted else Factor(y.shape[dim], REPLICATE)
        return FactorRule(tuple(factors), (), (tuple((i,) for i in range(y.rank)),))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        shape, dim = attrs["shape"], attrs["iota_dimension"]
        counter = np.arange(shape[dim]).astype(current().stored(attrs["dtype"]))
        return (np.broadcast_to(counter.reshape((-1,) + (1,) * (len(shape) - dim - 1)), shape),)

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        (y,), dim = program.results, attrs["iota_dimension"]
        counter = program.indices(y, dim)
        if y.type.dtype != PLACE:
            counter = program.op("convert", counter, dtype=y.type.dtype)
        return (program.broadcast(counter, y.local.shape, (dim,)),)


register(_Constant())
register(_Iota())
