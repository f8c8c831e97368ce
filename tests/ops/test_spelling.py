"""MLIR text of ops and regions, read back by MLIR."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.oracles import assert_close, function_text, parse, run_interpreter
from tests.ops.samples import argmax_region

from eggshard.errors import ProgramError
from eggshard.ops.evaluate import evaluate_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.ops.spelling import MlirPrinter
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

X = TensorType((4, 6), "f32")


def _text(*op: object) -> str:
    return "\n".join(MlirPrinter().op(*op)[0])


def test_one_op_is_one_generic_line() -> None:
    text = _text("transpose", Attributes(permutation=(1, 0)), [("%a", X)], [X.with_shape((6, 4))])
    assert text == (
        '%v0 = "stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}> : (tensor<4x6xf32>) -> tensor<6x4xf32>')
    assert _text("chlo.erf", Attributes(), [("%a", X)], [X]).startswith('%v0 = "chlo.erf"(%a) : ')


def test_a_simple_reduction_brings_its_init_and_body() -> None:
    attrs = Attributes(dimensions=(1,), monoid="max")
    lines, names = MlirPrinter().op("reduce", attrs, [("%a", X)], [X.with_shape((4,))], ())
    text = "\n".join(lines)
    assert "dense<0xFF800000> : tensor<f32>" in text and '"stablehlo.maximum"' in text
    (reduction,) = (line for line in lines if '"stablehlo.reduce"' in line)
    assert reduction.startswith(f'{names[0]} = "stablehlo.reduce"(%a, %v0) <{{dimensions = array<i64: 1>}}> ({{')


def test_several_results_are_numbered() -> None:
    index = TensorType((4, 6), "i32")
    operands = [("%a", X), ("%b", index), ("%c", TensorType((), "f32")), ("%d", TensorType((), "i32"))]
    results = [X.with_shape((4,)), index.with_shape((4,))]
    attrs = Attributes(dimensions=(1,))
    lines, names = MlirPrinter().op("reduce_general", attrs, operands, results, (argmax_region(),))
    assert names == [f"{lines[0].split(':')[0]}#0", f"{lines[0].split(':')[0]}#1"]


def test_missing_attributes_and_unknown_ops_are_errors() -> None:
    with pytest.raises(ProgramError, match="permutation"):
        MlirPrinter().op("transpose", Attributes(), [("%a", X)], [X], ())
    with pytest.raises(ProgramError, match="not in the registry"):
        MlirPrinter().op("nonsense", Attributes(), [], [], ())


def test_a_region_can_use_outside_values_for_its_inputs() -> None:
    builder = RegionBuilder([X, X])
    region = builder.build(builder.add("add", (0, 1)))
    assert MlirPrinter().region(region, ["%p", "%q"])[0] == (
        '  %v0 = "stablehlo.add"(%p, %q) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>')
    assert MlirPrinter().region(region)[0] == "^bb0(%v0: tensor<4x6xf32>, %v1: tensor<4x6xf32>):"


def test_a_whole_program_survives() -> None:
    """A softmax and an argmax, printed as one function and run by the reference interpreter."""
    builder = RegionBuilder([X])
    (top,) = builder.add("reduce", (0,), {"dimensions": (1,), "monoid": "max"})
    spread = {"broadcast_dimensions": (0,), "shape": (4, 6)}
    (shifted,) = builder.add("subtract", (0, *builder.add("broadcast_in_dim", (top,), spread)))
    (powers,) = builder.add("exponential", (shifted,))
    (total,) = builder.add("reduce", (powers,), {"dimensions": (1,), "monoid": "add"})
    (soft,) = builder.add("divide", (powers, *builder.add("broadcast_in_dim", (total,), spread)))
    (index,) = builder.add("iota", (), {"shape": (4, 6), "dtype": "i32", "iota_dimension": 1})
    (low,) = builder.add("reduce", (soft,), {"dimensions": (0, 1), "monoid": "min"})
    (zero,) = builder.add("reduce", (index,), {"dimensions": (0, 1), "monoid": "min"})
    best = builder.add("reduce_general", (soft, index, low, zero), {"dimensions": (1,)}, (argmax_region(),))
    region = builder.build((soft, best[1]))
    array = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)
    text = function_text(region)
    parse(text)
    for mine, theirs in zip(evaluate_region(region, [array]), run_interpreter(text, [array]), strict=True):
        assert_close(mine, theirs)
