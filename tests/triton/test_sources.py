"""Planned kernels beside their sources: two interpreters that share nothing, ours of layouts and Triton's of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")

from bench.programs.kernels import PROGRAMS  # noqa: E402
from testing import source_interpreter  # noqa: E402
from testing.kernel_interpreter import run  # noqa: E402
from tests.slowness import some  # noqa: E402

from eggshard.triton.compiler.pipeline import target_of  # noqa: E402
from eggshard.triton.frontend import load  # noqa: E402
from eggshard.triton.planning import plan_layouts  # noqa: E402

RANDOM = np.random.default_rng(0)


def floats(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(kind)


def nothing(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, kind)


#: Arguments, the element type of those of any, instances, and the tolerance where it is not that of 32 bits.
CASES: dict[str, tuple[Mapping[str, Any], str, tuple[int, ...], float]] = {
    "softmax": ({
        "x_ptr": floats(3, 1024), "y_ptr": nothing(3, 1024), "columns": 1000, "stride": 1024,
    }, "fp32", (3,), 1e-5),
    "layer_norm": ({
        "x_ptr": floats(32, 256), "y_ptr": nothing(32, 256), "w_ptr": floats(256), "b_ptr": floats(256),
        "mean_ptr": nothing(32), "scale_ptr": nothing(32), "M": 30, "N": 256, "stride": 256, "eps": 1e-5,
    }, "fp32", (2,), 1e-4),
    "add_transposed": ({
        "x_ptr": floats(96, 80), "z_ptr": floats(80, 96), "y_ptr": nothing(96, 80), "M": 96, "N": 80,
    }, "fp32", (2, 2), 0.0),
    "batched_reductions": ({
        "x_ptr": floats(8, 16, 128), "sum_ptr": nothing(8, 128), "top_ptr": nothing(8, 16),
        "where_ptr": nothing(8, 16, kind=np.int32), "N": 128,
    }, "fp32", (2,), 1e-5),
    "power_iteration": ({
        "a_ptr": floats(64, 64), "x_ptr": floats(64), "y_ptr": nothing(64), "tolerance": 1.5,
    }, "fp32", (1,), 1e-3),
    "gate": ({
        "x_ptr": floats(64, 128, kind=np.float16), "w_ptr": floats(128, 64, kind=np.float16),
        "weights_ptr": nothing(64, 4), "experts_ptr": nothing(64, 4, kind=np.int32), "lse_ptr": nothing(64),
        "M": 60, "K": 128, "stride_x": 128, "stride_w": 64,
    }, "fp16", (1,), 1e-3),
}


@pytest.mark.parametrize("name", some(sorted(CASES), 3))
def test_a_planned_kernel_computes_what_its_source_says(name: str) -> None:
    arguments, element, grid, tolerance = CASES[name]
    program = replace(next(p for p in PROGRAMS if p.name == name), dtype=element)
    ours = triton.compile(program.source(), target=target_of("sm80"), options=program.options)
    plan = plan_layouts(load(ours.asm["ttgir"]))
    assert plan.cost < plan.given_cost or name in ("softmax", "layer_norm")
    runtime = [key for key, kind in program.signature.items() if kind != "constexpr"]
    found = dict(zip(
        [key for key in runtime if isinstance(arguments[key], np.ndarray)],
        run(plan.kernel, [arguments[key] for key in runtime], grid), strict=True))
    expected = source_interpreter.run(program.function, {**arguments, **program.constexprs}, grid)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=tolerance, atol=tolerance, err_msg=key)
    assert any(np.any(array != arguments[key]) for key, array in expected.items())
