"""Kernels at every stage of their compilation for every target compute what NumPy computes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

from testing.kernel_interpreter import run  # noqa: E402
from tests.testing.kernel_interpreter import kernels  # noqa: E402
from tests.testing.kernel_interpreter.stages import TARGETS, stages  # noqa: E402

RNG = np.random.default_rng(0)


def outputs(function: Any, signature: str, target: str, arguments: list[Any], grid: tuple[int, ...] = (1,),
            aligned: bool = True, **constants: Any) -> list[Any]:
    """What the kernel leaves at its last stage, after all stages left the same, undefined elements or not."""
    found = {}
    for stage, kernel in stages(function, signature, target, aligned, **constants).items():
        for undefined in (0, 0xFF):
            found[stage, undefined] = run(kernel, arguments, grid, undefined=undefined)
    last = found["last", 0]
    for where, left in found.items():
        for number, (a, b) in enumerate(zip(left, last, strict=True)):
            assert a.dtype == b.dtype
            if not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=1e-5,
                                           err_msg=f"{where}, buffer {number}")
    return last


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax(target: str) -> None:
    x = normal(3, 100)
    x[1, 7] = np.nan
    x[2] = -np.inf
    _, y = outputs(kernels.softmax, "x:*fp32 y:*fp32 n:i32", target, [x, np.zeros_like(x), 100], (3,), B=128)
    e = np.exp(x[0] - x[0].max())
    np.testing.assert_allclose(y[0], e / e.sum(), rtol=1e-5)
    assert np.isnan(y[1:]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_layer_norm(target: str) -> None:
    x, w, b = normal(2, 300, dtype=np.float16), normal(300), normal(300)
    found = outputs(kernels.layer_norm, "x:*fp16 w:*fp32 b:*fp32 y:*fp32 n:i32 eps:fp32", target,
                    [x, w, b, np.zeros((2, 300), np.float32), 300, 1e-5], (2,), B=128)
    values = x.astype(np.float64)
    mean, variance = values.mean(1, keepdims=True), values.var(1, keepdims=True)
    np.testing.assert_allclose(found[3], (values - mean) / np.sqrt(variance + 1e-5) * w + b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp32", "fp8e5"])
def test_matmul(target: str, kind: str) -> None:
    if kind == "fp8e5" and target == "gfx942":
        pytest.skip("the compiler has no fp8e5 products there")
    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp8e5": ml_dtypes.float8_e5m2}[kind]
    m, n, k = 100, 112, 96
    a, b, bias = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype), normal(n)
    found = outputs(kernels.matmul, f"a:*{kind} b:*{kind} bias:*fp32 c:*fp32 M:i32 N:i32 K:i32 lda:i32 ldb:i32 ldc:i32",
                    target, [a, b, bias, np.zeros((m, n), np.float32), m, n, k, k, n, n], (2, 2), BM=64, BN=64, BK=32)
    expected = a.astype(np.float64) @ b.astype(np.float64) + bias
    expected = np.where(expected > 0, expected, 0.01 * expected)
    np.testing.assert_allclose(found[3], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(target: str, causal: bool) -> None:
    n, d = 90, 64
    q, k, v = (normal(2, n, d, dtype=np.float16) for _ in range(3))
    found = outputs(kernels.attention, "q:*fp16 k:*fp16 v:*fp16 o:*fp32 n:i32 scale:fp32", target,
                    [q, k, v, np.zeros((2, n, d), np.float32), n, d ** -0.5 * 1.4426950408889634], (2, 2),
                    BM=64, BN=32, D=64, CAUSAL=causal)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) * d ** -0.5
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(found[3], weights @ v / weights.sum(-1, keepdims=True), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_top_k(target: str) -> None:
    x = normal(4, 128)
    x[0, 3] = x[0, 9] = 7.0
    _, values, indices = outputs(kernels.top_k, "x:*fp32 values:*fp32 indices:*i32", target,
                                 [x, np.zeros((4, 3), np.float32), np.zeros((4, 3), np.int32)], (4,), N=128, K=3)
    order = np.argsort(-x, 1, kind="stable")[:, :3]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("target", TARGETS)
def test_scans(target: str) -> None:
    x = RNG.integers(-20, 20, (8, 32)).astype(np.int32)
    like = np.zeros_like(x)
    _, sums, products, backwards, counts, maxima = outputs(
        kernels.scans, "x:*i32 sums:*i32 products:*fp32 backwards:*i32 counts:*i32 maxima:*i32", target,
        [x, like, np.zeros(x.shape, np.float32), like.copy(), np.zeros(16, np.int32), np.zeros(32, np.int32)],
        M=8, N=32)
    np.testing.assert_array_equal(sums, np.cumsum(x, 1))
    np.testing.assert_array_equal(products, np.cumprod((np.fmod(x, 3) + 1).astype(np.float32), 0))
    np.testing.assert_array_equal(backwards, np.cumsum(x[:, ::-1], 1)[:, ::-1])
    np.testing.assert_array_equal(counts, np.bincount((x & 15).ravel(), minlength=16))
    np.testing.assert_array_equal(maxima, x.max(0))


@pytest.mark.parametrize("target", TARGETS)
def test_welford(target: str) -> None:
    x = normal(3, 100)
    _, means, variances = outputs(kernels.welford, "x:*fp32 means:*fp32 variances:*fp32 n:i32", target,
                                  [x, np.zeros(3, np.float32), np.zeros(3, np.float32), 100], (3,), B=128)
    np.testing.assert_allclose(means, x.mean(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variances, x.var(1), rtol=1e-4)


def c_division(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder with the signs of C."""
    x, y = a.astype(object), b.astype(object)
    quotient = np.sign(x) * np.sign(y) * (abs(x) // abs(y))
    return quotient.astype(a.dtype), (x - quotient * y).astype(a.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "u8", "u32", "u64"])
def test_integers(target: str, kind: str) -> None:
    dtype = np.dtype({"i": "int", "u": "uint"}[kind[0]] + kind[1:])
    limits = np.iinfo(dtype)
    n = 100
    a = RNG.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True)
    b = RNG.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True)
    b[:50] = b[:50] % 7 + 1
    b[b == 0] = 1
    a[:4] = [limits.min, limits.max, 0, 3]
    b[:4] = [1, 2, 3, 100]
    found = outputs(kernels.integers, f"x:*{kind} y:*{kind} out:*{kind} n:i32", target,
                    [a, b, np.zeros((8, n), dtype), n], (2,), B=64)[2]
    with np.errstate(all="ignore"):
        quotient, remainder = c_division(a, b)
        absolute = a if kind[0] == "u" else np.where(a < 0, -a, a)
        expected = [quotient, remainder, a >> (b & 7), a << (b & 7), a * b + (a ^ b) - (a & ~b),
                    np.maximum(a, b) - np.minimum(a, b), absolute, np.where((a < b) | (a == 3), a, -b)]
    for row, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(row, values)


@pytest.mark.parametrize("target", TARGETS)
def test_floats(target: str) -> None:
    n = 120
    a, b = normal(n) * 10, normal(n) * 10
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 3.5]
    a[:49], b[:49] = np.repeat(special, 7), np.tile(special, 7)
    found = outputs(kernels.floats, "x:*fp32 y:*fp32 out:*fp32 n:i32", target,
                    [a, b, np.zeros((8, n), np.float32), n], (2,), B=64)[2]
    with np.errstate(all="ignore"):
        fused = (a.astype(np.longdouble) * b + a).astype(np.float32)
        whole = np.clip(np.nan_to_num(np.trunc(a.astype(np.float64))), -2.0 ** 31, 2.0 ** 31 - 1)
        expected = [np.fmin(a, b), np.maximum(a, b), a * b - a / b, (a < b).astype(np.float32),
                    np.where(a != b, a, b), fused, np.floor(a) + np.ceil(b), whole.astype(np.int32).astype(np.float32)]
    for row, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(row, values.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_casts(target: str) -> None:
    x = (normal(256) * 10.0 ** RNG.integers(-8, 8, 256)).astype(np.float32)
    x[:4] = [np.nan, np.inf, 65504 * 1.01, -0.0]
    _, half, brain, wide, bits, small = outputs(
        kernels.casts, "x:*fp32 half:*fp16 brain:*bf16 wide:*fp64 bits:*i32 small:*fp32", target,
        [x, np.zeros(256, np.float16), np.zeros(256, ml_dtypes.bfloat16), np.zeros(256), np.zeros(256, np.int32),
         np.zeros(256, np.float32)], B=256)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(half, x.astype(np.float16))
        np.testing.assert_array_equal(brain.astype(np.float32), x.astype(ml_dtypes.bfloat16).astype(np.float32))
        np.testing.assert_array_equal(wide, x.astype(np.float64) * 1.5)
        np.testing.assert_array_equal(bits, x.view(np.int32))
        limited = np.clip(x, -57344, 57344).astype(ml_dtypes.float8_e5m2).astype(np.float32)
        np.testing.assert_array_equal(small, limited)


@pytest.mark.parametrize("target", TARGETS)
def test_transpose(target: str) -> None:
    x = normal(70, 50, dtype=np.float16)
    _, y = outputs(kernels.transpose, "x:*fp16 y:*fp16 M:i32 N:i32", target,
                   [x, np.zeros((50, 70), np.float16), 70, 50], (3, 2), BM=32, BN=32)
    np.testing.assert_array_equal(y, 2 * x.T)


@pytest.mark.parametrize("target", TARGETS)
def test_arranged(target: str) -> None:
    n = 64
    x, indices = normal(n), RNG.integers(0, 8, (n // 8, 8)).astype(np.int32)
    empty = [np.zeros(n, np.float32) for _ in range(4)]
    _, _, y, z, w, g = outputs(kernels.arranged, "x:*fp32 indices:*i32 y:*fp32 z:*fp32 w:*fp32 g:*fp32", target,
                               [x, indices, *empty], N=n)
    np.testing.assert_array_equal(y, x.reshape(2, n // 8, 4).transpose(2, 0, 1).ravel())
    np.testing.assert_array_equal(z, x.reshape(-1, 2)[:, ::-1].ravel())
    np.testing.assert_array_equal(w, np.take_along_axis(x.reshape(-1, 8), indices, 1).ravel())
    np.testing.assert_array_equal(g, np.sort(x))


@pytest.mark.parametrize("target", TARGETS)
def test_atomics(target: str) -> None:
    x = RNG.integers(-100, 100, (4, 128)).astype(np.int32)
    _, buckets, total, largest, locks = outputs(
        kernels.atomics, "x:*i32 buckets:*i32 total:*fp32 largest:*i32 locks:*i32", target,
        [x, np.zeros(16, np.int32), np.zeros(1, np.float32), np.full(1, -1000, np.int32), np.zeros(2, np.int32)], (4,),
        N=128, BUCKETS=16)
    np.testing.assert_array_equal(buckets, np.bincount(x[x >= 0] & 15, minlength=16))
    assert total[0] == x.sum() and largest[0] == x.max()
    np.testing.assert_array_equal(locks, [0, 4])


@pytest.mark.parametrize("target", TARGETS)
def test_while_and_if(target: str) -> None:
    x = np.array([1, 2, 3, 6, 7, 27], np.int32)
    _, steps, kinds = outputs(kernels.collatz, "x:*i32 steps:*i32 kinds:*i32", target,
                              [x, np.zeros(6, np.int32), np.zeros(6, np.int32)], (6,))
    np.testing.assert_array_equal(steps, [0, 1, 7, 8, 16, 111])
    np.testing.assert_array_equal(kinds, [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("target", TARGETS)
def test_descriptors(target: str) -> None:
    x = normal(40, 56, dtype=np.float16)
    _, y = outputs(kernels.blocks, "x:*fp16 y:*fp16 M:i32 N:i32", target, [x, np.zeros_like(x), 40, 56], (2,),
                   BM=32, BN=32)
    np.testing.assert_array_equal(y, 3 * x)


@pytest.mark.parametrize("target", TARGETS)
def test_dequantised_matmul(target: str) -> None:
    m, n, k = 64, 64, 128
    a, scales = normal(m, k, dtype=np.float16), normal(n)
    numbers = RNG.integers(-8, 8, (k, n)).astype(np.int8)
    packed = ((numbers[0::2] & 15) | (numbers[1::2] << 4)).astype(np.int8)
    found = outputs(kernels.dequantised, "a:*fp16 q:*i8 scales:*fp32 c:*fp32 K:i32 N:i32", target,
                    [a, packed, scales, np.zeros((m, n), np.float32), k, n], BM=64, BN=64, BK=64)
    right = (numbers.astype(np.float32) * scales).astype(np.float16)
    np.testing.assert_allclose(found[3], a.astype(np.float64) @ right.astype(np.float64), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_exchanges(target: str) -> None:
    x = RNG.integers(-100, 100, (2, 64)).astype(np.int32)
    left, old = outputs(kernels.exchanges, "x:*i32 y:*i32", target, [x, np.full_like(x, 7)], (2,), N=64)
    seen = np.where(np.arange(128).reshape(2, 64) % 3 != 0, x, 5)
    np.testing.assert_array_equal(left, np.where(seen == x, seen + 4, x) + np.where(x > 3, x, 0))
    np.testing.assert_array_equal(old, np.where(x >= 0, x, 7))
