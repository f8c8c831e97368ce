"""Plans of programs on element types and sizes that conditions of rules once left out: wrong, or no plan at all."""

import numpy as np
import pytest

pytest.importorskip("egglog")

import eggshard as es  # noqa: E402
from eggshard.program.types import mlir_dtype  # noqa: E402
from eggshard.rewrites.shapes import MATMUL  # noqa: E402

RNG = np.random.default_rng(0)


def _with_and_without_rules(build, *arrays):
    """The result of a program's plan with rules, and without.

    ``build(builder, inputs)`` returns the result; inputs are cut along the dimensions of 64.
    """
    b = es.ProgramBuilder(mesh={"x": 4})
    inputs = [
        b.input(a.shape, mlir_dtype(a.dtype), tuple("x" if n == 64 else None for n in a.shape)) for a in arrays
    ]
    made = build(b, *inputs)
    b.output(made, (None,) * len(made.shape))
    program = b.build()
    model = es.costmodel.WireBytes()
    return [es.optimize(program, cost_model=model, rewrites=r).run(*arrays)[0] for r in (None, [])]


def _integers(shape, dtype):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def test_rows_of_a_product_are_summed_in_its_own_type():
    results = _with_and_without_rules(
        lambda b, x, y: b.op(
            "reduce", b.op("dot_general", x, y, **{**MATMUL, "dtype": "i32"}), dimensions=(1,), monoid="add"
        ),
        _integers((8, 64), np.int32), _integers((64, 256), np.uint16),
    )
    np.testing.assert_array_equal(*results)


def test_products_of_one_type_and_operands_of_several_are_concatenated():
    d = {**MATMUL, "dtype": "i32"}
    results = _with_and_without_rules(
        lambda b, x, y, z: b.op(
            "concatenate", b.op("dot_general", x, z, **d), b.op("dot_general", y, z, **d), dimension=0
        ),
        _integers((8, 64), np.int8), _integers((8, 64), np.int32), _integers((64, 16), np.int32),
    )
    np.testing.assert_array_equal(*results)


def test_parts_of_truth_values_are_added():
    def parts(b, x):
        slices = (
            b.op("slice", x, start_indices=(k,), limit_indices=(k + 32,), strides=(1,)) for k in (0, 32)
        )
        return b.op("add", *slices)

    np.testing.assert_array_equal(*_with_and_without_rules(parts, RNG.random(64) < 0.3))
