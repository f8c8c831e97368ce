"""Random numbers: the functional bit generator, and the stateful rng."""

from __future__ import annotations

import numpy as np

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops import numerics
from eggshard.ops.base import REPLICATE, Arrays, Factor, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import labelled_rule
from eggshard.ops.signatures import require_class, require_count
from eggshard.ops.sources.random_bits import philox, threefry
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, numpy_dtype


class _RngBitGenerator(OpDef):
    """(new state, random bits of ``shape`` and ``dtype``) from a state of two (Philox also three) ui64 words.

    ``rng_algorithm`` is THREE_FRY, PHILOX, or DEFAULT, which is Philox as on XLA's CPU and GPU backends. It is a
    function of its state, but which bits fall where depends on the whole shape, so nothing is sharded.
    """

    name = "rng_bit_generator"
    stated = ("shape", "dtype")
    attributes = {"rng_algorithm": codec.RNG_ALGORITHM}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        state, algorithm = operands[0], attrs["rng_algorithm"]
        words = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}
        if algorithm not in words:
            raise ProgramError(f"rng algorithm {algorithm!r} is none of {', '.join(words)}")
        if state.dtype != "ui64" or state.rank != 1 or state.shape[0] not in words[algorithm]:
            sizes = " or ".join(map(str, words[algorithm]))
            raise ProgramError(f"the state of {algorithm} is {sizes} words of ui64, not {state}")
        bits = TensorType(tuple(attrs["shape"]), attrs["dtype"])
        require_class(bits, "iuf")
        if numerics.bit_width(bits.dtype) < 8:
            raise ProgramError(f"generates elements of at least 8 bits, not {bits.dtype}")
        return (state, bits)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        kinds = {"word": Factor(operands[0].shape[0], REPLICATE)}
        return labelled_rule(operands, results, (["word"], ["word"], [None] * results[1].rank), kinds)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        generate = threefry if attrs["rng_algorithm"] == "THREE_FRY" else philox
        with np.errstate(over="ignore"):
            state, bits = generate(arrays[0], tuple(attrs["shape"]), numerics.bit_width(attrs["dtype"]))
        return state, bits.view(numpy_dtype(attrs["dtype"]))

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        """About 10 rounds of 5 integer operations for every 32 bits."""
        return 50.0 * results[1].bytes / 4


class _Rng(OpDef):
    """Numbers of ``shape`` from a hidden state, uniform in [operand 0, operand 1) or normal; operand 2 is the shape.

    Two equal ones give different numbers, so it is not pure.
    """

    name = "rng"
    stated = ("shape",)
    pure = False
    attributes = {"rng_distribution": codec.RNG_DISTRIBUTION}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 3)
        if any(t != TensorType((), operands[0].dtype) for t in operands[:2]):
            raise ProgramError("the distribution's parameters are scalars of one element type")
        return (TensorType(tuple(attrs["shape"]), operands[0].dtype),)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        raise LoweringError("its numbers depend on hidden state, which the simulator lacks; use rng_bit_generator")


for _definition in (_RngBitGenerator(), _Rng()):
    register(_definition)
