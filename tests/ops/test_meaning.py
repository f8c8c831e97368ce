"""Each op's shape rule, NumPy meaning and spelling against MLIR's verifier, the StableHLO interpreter and XLA."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.oracles import assert_close, function_text, run_interpreter, run_xla
from tests.ops.samples import SAMPLES, Sample, one_op_region, types_of
from tests.slowness import some

from eggshard.ops.evaluate import evaluate_region
from eggshard.ops.region_builder import RegionBuilder

#: Ops whose samples end the interpreter's process: division by zero, NaN to integer, and one it does not know.
INTERPRETER_LACKS = {"divide", "remainder", "convert", "dot", "complex", "iota"}


def _samples(name: str) -> list[Sample]:
    return SAMPLES[name](np.random.default_rng(sum(map(ord, name))))


def _in_interpreter(sample: Sample) -> bool:
    attrs, arrays, _ = sample
    # Its total order compares NaN as the partial order does.
    return all(a.dtype.kind != "c" for a in arrays) and attrs.get("compare_type") != "TOTALORDER"


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - INTERPRETER_LACKS))
def test_interpreter_agrees(name: str) -> None:
    for attrs, arrays, regions in filter(_in_interpreter, _samples(name)):
        region = one_op_region(name, attrs, types_of(arrays), regions)
        got = evaluate_region(region, arrays)
        for mine, theirs in zip(got, run_interpreter(function_text(region), arrays), strict=True):
            assert_close(mine, theirs, (name, attrs, types_of(arrays)))


@pytest.mark.parametrize("name", [*sorted(INTERPRETER_LACKS & SAMPLES.keys()),
                                  *some(sorted(SAMPLES.keys() - INTERPRETER_LACKS), 40)])
def test_xla_agrees(name: str) -> None:
    """All samples of an op in one module, so that it is compiled once."""
    samples = [s for s in _samples(name) if _in_xla(name, s)]
    builder = RegionBuilder([t for _, arrays, _ in samples for t in types_of(arrays)])
    outputs: list[int] = []
    inputs: list[np.ndarray] = []
    for attrs, arrays, regions in samples:
        operands = range(len(inputs), len(inputs) + len(arrays))
        inputs += arrays
        outputs += builder.add(name, operands, attrs, regions)
    region = builder.build(outputs)
    got = evaluate_region(region, inputs)
    for mine, theirs in zip(got, run_xla(function_text(region), inputs), strict=True):
        assert_close(mine, theirs, name)


def _in_xla(name: str, sample: Sample) -> bool:
    # XLA:CPU counts the bits of a sign-extended byte for i4.
    return not (name in ("popcnt", "count_leading_zeros") and any(str(a.dtype) == "int4" for a in sample[1]))
