"""Programs in double precision: the same results but for rounding, and what of a program stays as it is stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.samples import SAMPLES, one_op_region, types_of
from tests.ops.samples2 import SAMPLES2

from eggshard.errors import LoweringError
from eggshard.frontends.builder import ProgramBuilder
from eggshard.ops.evaluate import evaluate_program
from eggshard.ops.numerics import part_dtype
from eggshard.ops.widening import jumps, wide_dtype, widened, widened_arrays
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.program.types import TensorType, float_limits, is_float

ALL = SAMPLES | SAMPLES2
LEAST = 1e-30


def program_of(region: Any) -> Program:
    return Program(Mesh({}), region, (None,) * len(region.inputs), (None,) * len(region.outputs))


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_op_widened_means_what_it_meant(name: str) -> None:
    for attributes, operands, regions in ALL[name](np.random.default_rng(sum(map(ord, name)))):
        program = program_of(one_op_region(name, attributes, types_of(operands), regions))
        if any(t.dtype in ("f64", "complex<f64>") for t in program.region.types):
            with pytest.raises(LoweringError, match="f64"):
                widened(program)
            continue
        wide = widened(program)
        assert [t.dtype for t in wide.output_types] == [wide_dtype(t.dtype) for t in program.output_types]
        with np.errstate(all="ignore"):
            want = evaluate_program(program, operands)
            found = evaluate_program(wide, widened_arrays(operands))
        for type_, w, f in zip(program.output_types, want, found, strict=True):
            assert w.shape == f.shape
            if not is_float(type_.dtype):
                np.testing.assert_array_equal(w, f)
                continue
            narrow = w.astype(f.dtype)
            both = np.isfinite(narrow) & np.isfinite(f)
            np.testing.assert_array_equal(np.isnan(narrow), np.isnan(f))
            limit = 16 * float(float_limits(part_dtype(type_.dtype)).eps)
            apart, size = abs(narrow[both] - f[both]), abs(f[both])
            assert (apart <= limit * max(size.max(initial=0), LEAST)).all(), (attributes, apart.max(), limit)


VECTOR = TensorType((64,), "f32")
JUMPS = {
    "smooth": lambda b, x: b.convert(b.convert(b.iota((64,), 0), "f32") * b.tanh(x), "f64"),
    "floor": lambda b, x: b.op("floor", x),
    "to whole numbers": lambda b, x: b.convert(x, "i32"),
    "compare": lambda b, x: b.op("select", b.compare(x, "GT", 0.0), x, -x),
    "round trip": lambda b, x: b.convert(b.convert(x, "bf16"), "f32"),
}


@pytest.mark.parametrize("name", JUMPS)
def test_programs_that_jump_are_told(name: str) -> None:
    b = ProgramBuilder(mesh={"x": 2})
    b.output(JUMPS[name](b, b.input((64,), "f32")))
    assert jumps(b.build().region) == (name != "smooth")
