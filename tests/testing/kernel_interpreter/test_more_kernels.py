"""Descriptors, warp specialisation, tensor memory, scaled products and rarer ops, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

from testing.kernel_interpreter import run  # noqa: E402
from tests.testing.kernel_interpreter import kernels_more as kernels  # noqa: E402
from tests.testing.kernel_interpreter.single_ops import call, function, module  # noqa: E402
from tests.testing.kernel_interpreter.stages import stages  # noqa: E402

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.alignment import check_layouts  # noqa: E402

RNG = np.random.default_rng(4)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def outputs(kernel: Any, signature: str, target: str, arguments: list[Any], grid: tuple[int, ...] = (1,),
            **constants: Any) -> list[Any]:
    """What the last stage leaves; the others leave the same, bit for bit."""
    found = {}
    for stage, compiled in stages(kernel, signature, target, **constants).items():
        found[stage] = run(compiled, arguments, grid)
        if stage != "ttir":
            check_layouts(compiled)
    for left in found.values():
        for a, b in zip(left, found["last"], strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return found["last"]


MATMUL = "a:*fp16 b:*fp16 c:*fp16 M:i32 N:i32 K:i32"


@pytest.mark.parametrize("target", ["sm80", "sm90", "sm100", "gfx942"])
@pytest.mark.parametrize("specialised", [False, True])
def test_matmul_of_blocks(target: str, specialised: bool) -> None:
    a, b = normal(200, 128, dtype=np.float16), normal(128, 136, dtype=np.float16)
    found = outputs(kernels.block_matmul, MATMUL, target, [a, b, np.zeros((200, 136), np.float16), 200, 136, 128],
                    (2, 2), BM=128, BN=128, BK=64, WS=specialised)
    np.testing.assert_allclose(found[2], a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-2)


def test_persistent_matmul() -> None:
    a, b = normal(200, 128, dtype=np.float16), normal(128, 136, dtype=np.float16)
    found = outputs(kernels.persistent_matmul, MATMUL + " programs:i32", "sm90",
                    [a, b, np.zeros((200, 136), np.float16), 200, 136, 128, 3], (3,), BM=64, BN=64, BK=32)
    np.testing.assert_allclose(found[2], a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("target", ["sm90", "sm100", "gfx942"])
def test_scaled_products(target: str) -> None:
    a = RNG.integers(0, 256, (128, 64)).astype(np.uint8)
    b = normal(128, 128).astype(ml_dtypes.float8_e4m3fn)
    a_scale, b_scale = (RNG.integers(120, 134, (128, 4)).astype(np.uint8) for _ in range(2))
    kernel = stages(kernels.scaled, "a:*u8 a_scale:*u8 b:*fp8e4nv b_scale:*u8 c:*fp32", target, K=128, M=128, N=128)
    left = np.stack([a & 15, a >> 4], -1).reshape(128, 128).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    left *= np.repeat(2.0 ** (a_scale.astype(np.float64) - 127), 32, 1)
    right = b.astype(np.float64) * np.repeat(2.0 ** (b_scale.astype(np.float64) - 127), 32, 1).T
    for compiled in kernel.values():
        found = run(compiled, [a, a_scale, b, b_scale, np.zeros((128, 128), np.float32)])
        np.testing.assert_allclose(found[4], left @ right, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("target", ["sm80", "sm90", "gfx942"])
def test_batched_products(target: str) -> None:
    a, b = normal(4, 32, 16), normal(4, 16, 32)
    found = outputs(kernels.batched, "a:*fp32 b:*fp32 c:*fp32", target, [a, b, np.zeros((4, 32, 32), np.float32)],
                    B=4, M=32, N=32, K=16)
    np.testing.assert_allclose(found[2], a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["sm80", "sm100", "gfx942"])
def test_rows_by_descriptor(target: str) -> None:
    x, rows = normal(64, 64), RNG.permutation(64)[:32].astype(np.int32)
    found = outputs(kernels.picked_rows, "x:*fp32 indices:*i32 y:*fp32", target, [x, rows, np.zeros_like(x)],
                    N=64, COUNT=32, ROWS=64)
    expected = np.zeros_like(x)
    expected[rows] = 2 * x[rows]
    np.testing.assert_array_equal(found[2], expected)


@pytest.mark.parametrize("target", ["sm80", "sm90", "gfx942"])
def test_reductions_by_descriptor(target: str) -> None:
    x = normal(64, 64)
    found = outputs(kernels.reduced_blocks, "x:*fp32 y:*fp32", target, [x, np.zeros((32, 32), np.float32)], (2, 2),
                    N=64, B=32)
    np.testing.assert_allclose(found[1], x.reshape(2, 32, 2, 32).sum((0, 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["sm80", "sm90", "gfx942"])
def test_calls_and_assertions(target: str) -> None:
    x = normal(128)
    found = outputs(kernels.clipped, "x:*fp32 y:*fp32 limit:fp32", target, [x, np.zeros_like(x), 0.5], N=128)
    np.testing.assert_array_equal(found[1], np.clip(x, -1, 1))


@pytest.mark.parametrize("target", ["sm80", "sm90", "gfx942"])
def test_random_numbers(target: str) -> None:
    (found,) = outputs(kernels.random_numbers, "y:*fp32 seed:i32", target, [np.zeros(2048, np.float32), 7], N=1024)
    uniform, gaussian = np.split(found, 2)
    assert ((uniform >= 0) & (uniform < 1)).all() and abs(uniform.mean() - 0.5) < 0.05
    assert abs(gaussian.mean()) < 0.1 and abs(gaussian.std() - 1) < 0.1


@pytest.mark.parametrize("target", ["sm90", "gfx942"])
def test_quantised_rows(target: str) -> None:
    kind, dtype = ("fp8e4nv", ml_dtypes.float8_e4m3fn) if target == "sm90" else ("fp8e4b8", ml_dtypes.float8_e4m3fnuz)
    x, limit = normal(2, 100), float(ml_dtypes.finfo(dtype).max)
    found = stages(kernels.quantised, f"x:*fp32 y:*{kind} scales:*fp32 n:i32", target, B=128)
    for compiled in found.values():  # the last divides by way of reciprocals: rounded otherwise
        _, y, scales = run(compiled, [x, np.zeros((2, 100), dtype), np.zeros(2, np.float32), 100], (2,))
        np.testing.assert_allclose(scales, np.abs(x).max(1) / 448, rtol=1e-6)
        exact = np.clip(x / scales[:, None], -limit, limit)
        np.testing.assert_allclose(y.astype(np.float32), exact, rtol=2 ** -4 + 1e-6, atol=2 ** -9)


def test_a_wait_that_never_ends_is_refused() -> None:
    memory = "!ttg.memdesc<1xi64, #s, #ttg.shared_memory, mutable>"
    kernel = module(function(["i32"], f'''
%m = "ttg.local_alloc"() : () -> {memory}
"ttng.init_barrier"(%m) <{{count = 1 : i32}}> : ({memory}) -> ()
"ttng.wait_barrier"(%m, %a0) <{{operandSegmentSizes = array<i32: 1, 1, 0, 0>}}> : ({memory}, i32) -> ()
"tt.return"(%a0) : (i32) -> ()'''))
    assert call(kernel, [np.int32(1)]) == [1]  # the phase before the first
    with pytest.raises(ProgramError, match="ttng.wait_barrier.*nobody completes"):
        call(kernel, [np.int32(0)])
