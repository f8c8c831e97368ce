"""All-reduces of several values on CPUs: small ones of one element type go as one array."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.emit.devices import plan_of, run_on_xla

from eggshard.emit.collectives_text import PACKED
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.simulate.simulator import run
from eggshard.steps.steps import AllReduce

LARGE = TensorType((PACKED // 8 + 1, 2), "f32")
CASES: tuple[tuple[str, tuple[TensorType, ...], int], ...] = (
    ("add", (TensorType((3, 5), "f32"), TensorType((7,), "f32"), TensorType((1, 2, 2), "f32")), 1),
    ("add", (TensorType((4,), "f32"), TensorType((4, 2), "i32"), TensorType((6,), "f32"), TensorType((3,), "i32")), 2),
    ("max", (TensorType((4,), "f32"), TensorType((1, 3), "f32")), 1),
    ("add", (TensorType((4,), "f32"), LARGE, TensorType((1, 3), "f32"), LARGE), 3),
    ("and", (TensorType((4,), "i1"), TensorType((2, 3), "i1")), 1),
)


#: Over a network the large ones are small.
OF_SEVERAL = [(*case, 2) for case in (*CASES[:3], (*CASES[3][:2], 1), CASES[4])]


@pytest.mark.parametrize(("monoid", "types", "collectives", "processes"), [*((*c, 1) for c in CASES), *OF_SEVERAL])
def test_small_operands_are_one_array(
    monoid: str, types: tuple[TensorType, ...], collectives: int, processes: int
) -> None:
    mesh = Mesh({"x": 4, "y": 2})
    plan = plan_of(mesh, types, AllReduce(("x",), monoid))
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, 2 if t.dtype == "i1" else 9, (mesh.size, *t.shape)) for t in types)
    shards: list[Any] = [a.astype(numpy_dtype(t.dtype)) for a, t in zip(drawn, types, strict=True)]
    found, text = run_on_xla(plan, shards, "cpu", processes)
    for got, want, t in zip(found, run(plan, shards), types, strict=True):
        np.testing.assert_array_equal(got.reshape(np.shape(want)), want, err_msg=str(t))
    reduced = re.findall(r"= (.*) all-reduce\(", text)
    assert sum(shape.count("[") for shape in reduced) == collectives
