"""Compiled kernels here leave what Triton's interpreter of their sources leaves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

from testing.kernel_interpreter import run  # noqa: E402
from tests.testing.kernel_interpreter import kernels  # noqa: E402
from tests.testing.kernel_interpreter.peer import Case, interpreted  # noqa: E402
from tests.testing.kernel_interpreter.stages import stages  # noqa: E402

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def integers(low: int, high: int, *shape: int) -> Any:
    return RNG.integers(low, high, shape).astype(np.int32)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


HALF = "a:*fp16 b:*fp16 bias:*fp32 c:*fp32 M:i32 N:i32 K:i32 lda:i32 ldb:i32 ldc:i32"

#: Cases, signatures, and how far floats may be apart.
CASES: list[tuple[Case, str, float]] = [
    (Case("softmax", [normal(3, 100), zeros(3, 100), 100], (3,), {"B": 128}), "x:*fp32 y:*fp32 n:i32", 1e-6),
    (Case("layer_norm", [normal(2, 300, dtype=np.float16), normal(300), normal(300), zeros(2, 300), 300, 1e-5], (2,),
          {"B": 128}), "x:*fp16 w:*fp32 b:*fp32 y:*fp32 n:i32 eps:fp32", 1e-5),
    (Case("matmul", [normal(60, 48, dtype=np.float16), normal(48, 50, dtype=np.float16), normal(50), zeros(60, 50),
                     60, 50, 48, 48, 50, 50], (1, 1), {"BM": 64, "BN": 64, "BK": 16}), HALF, 1e-4),
    (Case("attention", [normal(1, 80, 64, dtype=np.float16), normal(1, 80, 64, dtype=np.float16),
                        normal(1, 80, 64, dtype=np.float16), zeros(1, 80, 64), 80, 0.18], (2, 1),
          {"BM": 64, "BN": 32, "D": 64, "CAUSAL": True}), "q:*fp16 k:*fp16 v:*fp16 o:*fp32 n:i32 scale:fp32", 2e-3),
    (Case("top_k", [normal(2, 64), zeros(2, 3), zeros(2, 3, dtype=np.int32)], (2,), {"N": 64, "K": 3}),
     "x:*fp32 values:*fp32 indices:*i32", 0.0),
    (Case("scans", [integers(-20, 20, 4, 16), zeros(4, 16, dtype=np.int32), zeros(4, 16), zeros(4, 16, dtype=np.int32),
                    zeros(16, dtype=np.int32), zeros(16, dtype=np.int32)], (1,), {"M": 4, "N": 16}),
     "x:*i32 sums:*i32 products:*fp32 backwards:*i32 counts:*i32 maxima:*i32", 0.0),
    (Case("integers", [integers(-2 ** 31, 2 ** 31, 100), integers(1, 99, 100), zeros(8, 100, dtype=np.int32), 100],
          (2,), {"B": 64}), "x:*i32 y:*i32 out:*i32 n:i32", 0.0),
    (Case("floats", [normal(100) * 9, normal(100) * 9, zeros(8, 100), 100], (2,), {"B": 64}),
     "x:*fp32 y:*fp32 out:*fp32 n:i32", 1e-6),
    (Case("casts", [normal(128), zeros(128, dtype=np.float16), zeros(128, dtype=ml_dtypes.bfloat16),
                    zeros(128, dtype=np.float64), zeros(128, dtype=np.int32), zeros(128)], (1,), {"B": 128}),
     "x:*fp32 half:*fp16 brain:*bf16 wide:*fp64 bits:*i32 small:*fp32", 0.0),
    (Case("transpose", [normal(40, 50, dtype=np.float16), zeros(50, 40, dtype=np.float16), 40, 50], (2, 2),
          {"BM": 32, "BN": 32}), "x:*fp16 y:*fp16 M:i32 N:i32", 0.0),
    (Case("arranged", [normal(64), integers(0, 8, 8, 8), zeros(64), zeros(64), zeros(64), zeros(64)], (1,), {"N": 64}),
     "x:*fp32 indices:*i32 y:*fp32 z:*fp32 w:*fp32 g:*fp32", 0.0),
    (Case("atomics", [integers(-100, 100, 2, 64), zeros(16, dtype=np.int32), zeros(1),
                      np.full(1, -1000, np.int32), zeros(2, dtype=np.int32)], (2,), {"N": 64, "BUCKETS": 16}),
     "x:*i32 buckets:*i32 total:*fp32 largest:*i32 locks:*i32", 0.0),
    (Case("exchanges", [integers(-100, 100, 2, 64), np.full((2, 64), 7, np.int32)], (2,), {"N": 64}),
     "x:*i32 y:*i32", 0.0),
    (Case("collatz", [np.array([1, 2, 3, 27], np.int32), zeros(4, dtype=np.int32), zeros(4, dtype=np.int32)], (4,), {}),
     "x:*i32 steps:*i32 kinds:*i32", 0.0),
    (Case("blocks", [normal(40, 56, dtype=np.float16), zeros(40, 56, dtype=np.float16), 40, 56], (2,),
          {"BM": 32, "BN": 32}), "x:*fp16 y:*fp16 M:i32 N:i32", 0.0),
    (Case("dequantised", [normal(64, 64, dtype=np.float16), RNG.integers(-128, 128, (32, 64)).astype(np.int8),
                          normal(64), zeros(64, 64), 64, 64], (1,), {"BM": 64, "BN": 64, "BK": 32}),
     "a:*fp16 q:*i8 scales:*fp32 c:*fp32 K:i32 N:i32", 1e-4),
]

#: Buffers that Triton's interpreter gets otherwise than compiled kernels: it cuts bf16 off where they round, and loses
#: the carry into the exponent as it rounds to 8 bits (0.49 becomes 0.25). Ours are tested against exact rounding.
OTHERWISE = {("casts", 2), ("casts", 5)}


@pytest.fixture(scope="module")
def peer() -> list[list[Any]]:
    return interpreted([case for case, *_ in CASES])


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.kernel for case, *_ in CASES])
def test_compiled_kernels_do_what_their_sources_do(number: int, peer: list[list[Any]]) -> None:
    case, signature, tolerance = CASES[number]
    found = stages(getattr(kernels, case.kernel), signature, "sm90", **case.constants)
    for kernel in (found["ttir"], found["last"]):
        left = run(kernel, case.arguments, case.grid)
        for buffer, (ours, theirs) in enumerate(zip(left, peer[number], strict=True)):
            if (case.kernel, buffer) not in OTHERWISE:
                np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance,
                                           atol=tolerance)
