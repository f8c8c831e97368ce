"""Evaluation of regions and programs op by op."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.samples import argmax_region, scalar_reshaping_region

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops.evaluate import evaluate_elementwise, evaluate_program, evaluate_region
from eggshard.ops.reductions.reduction import fold, monoid_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.program.types import TensorType, numpy_dtype

X = TensorType((2, 3), "f32")


def _program() -> Program:
    builder = RegionBuilder([X, X])
    (total,) = builder.add("add", (0, 1))
    (twice,) = builder.add("add", (total, total))
    return Program(Mesh({"x": 2}), builder.build((twice, total, 0)), (None, None), (None, None, None))


def test_a_program_in_order() -> None:
    a, b = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    twice, total, first = evaluate_program(_program(), [a, b])
    np.testing.assert_array_equal(twice, 2 * (a + b))
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(first, a)


@pytest.mark.parametrize("inputs, message", [
    ([np.ones((2, 3), np.float32)], "takes 2 inputs, got 1"),
    ([np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)], r"input 1 .* is tensor<2x3xf32>, got .*\(3, 2\)"),
    ([np.ones((2, 3)), np.ones((2, 3), np.float32)], "input 0 .* float64"),
])  # fmt: skip
def test_inputs_must_be_of_the_programs_types(inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        evaluate_program(_program(), inputs)


def test_errors_of_ops_name_the_op_and_its_place() -> None:
    builder = RegionBuilder([TensorType((3, 2), "i4")])
    values = builder.add("bitcast_convert", (0,), {"dtype": "i8", "shape": (3,)}, location="model.py:7")
    with pytest.raises(LoweringError, match=r"bitcast_convert\(tensor<3x2xi4>\) at model.py:7: the simulator lacks"):
        evaluate_region(builder.build(values), [np.zeros((3, 2), numpy_dtype("i4"))])


def test_a_scalar_region_index_by_index() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 3, 4)).astype(np.float32)
    (total,) = evaluate_elementwise(scalar_reshaping_region(), [x, y])
    np.testing.assert_array_equal(total, x + y)
    index = np.zeros((3, 4), np.int32)
    best, _ = evaluate_elementwise(argmax_region(), [x, index, y, index + 1])
    np.testing.assert_array_equal(best, np.maximum(x, y))


@pytest.mark.parametrize("count", [1, 2, 5, 8, 13])
def test_fold_keeps_the_order(count: int) -> None:
    """A reducer that is associative and not commutative: the first of its arguments."""
    scalar = TensorType((), "i32")
    first = RegionBuilder([scalar, scalar]).build((0,))
    (out,) = fold(first, [np.arange(count * 2, dtype=np.int32).reshape(count, 2)])
    np.testing.assert_array_equal(out, [0, 1])
    (total,) = fold(monoid_region("add", "i32"), [np.arange(count, dtype=np.int32)])
    assert total == count * (count - 1) // 2


@pytest.mark.parametrize("dtype", ["i1", "i4", "i32", "ui8", "ui64", "f16", "bf16", "f32", "f8E4M3FN", "complex<f32>"])
def test_identities_change_nothing(dtype: str) -> None:
    kind = numpy_dtype(dtype)
    values = np.array([0, 1] if dtype == "i1" else [0, 1, 3, 7]).astype(kind)
    for name in monoids.of_dtype(dtype):
        identity = np.array(monoids.identity(name, dtype)).astype(kind)
        (out,) = evaluate_region(monoid_region(name, dtype), [values, np.broadcast_to(identity, values.shape)])
        np.testing.assert_array_equal(out, values, err_msg=f"{name} {dtype}")
    if dtype.startswith(("i", "u")) and dtype != "i1":
        low, high = monoids.identity("max", dtype), monoids.identity("min", dtype)
        assert int(np.array(low).astype(kind)) == low and int(np.array(high).astype(kind)) == high


def test_unknown_monoids_are_errors() -> None:
    with pytest.raises(ProgramError, match="'mean' is unknown"):
        monoids.identity("mean", "f32")
