"""More kernels: what newer hardware and rarer ops bring."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def block_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    result = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WS):
        total = tl.dot(left.load([row, k]), right.load([k, column]), total)
    result.store([row, column], total.to(tl.float16))


@triton.jit
def persistent_matmul(a, b, c, M, N, K, programs, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        rows = (tile // tiles_n) * BM + tl.arange(0, BM)
        columns = (tile % tiles_n) * BN + tl.arange(0, BN)
        total = tl.zeros([BM, BN], tl.float32)
        for k in range(0, K, BK):
            inner = k + tl.arange(0, BK)
            left = tl.load(a + rows[:, None] * K + inner[None, :], mask=rows[:, None] < M, other=0.0)
            right = tl.load(b + inner[:, None] * N + columns[None, :], mask=columns[None, :] < N, other=0.0)
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def scaled(a, a_scale, b, b_scale, c, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    inner = tl.arange(0, K)
    groups = tl.arange(0, K // 32)
    halves = tl.arange(0, K // 2)
    left = tl.load(a + rows[:, None] * (K // 2) + halves[None, :])
    left_scale = tl.load(a_scale + rows[:, None] * (K // 32) + groups[None, :])
    right = tl.load(b + inner[:, None] * N + columns[None, :])
    right_scale = tl.load(b_scale + columns[:, None] * (K // 32) + groups[None, :])
    total = tl.dot_scaled(left, left_scale, "e2m1", right, right_scale, "e4m3")
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def batched(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.arange(0, B)[:, None, None]
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    inner = tl.arange(0, K)
    left = tl.load(a + batch * M * K + rows[None, :, None] * K + inner[None, None, :])
    right = tl.load(b + batch * K * N + inner[None, :, None] * N + columns[None, None, :])
    total = tl.dot(left, right, input_precision="ieee")
    tl.store(c + batch * M * N + rows[None, :, None] * N + columns[None, None, :], total)


@triton.jit
def picked_rows(x, indices, y, N: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[ROWS, N], strides=[N, 1], block_shape=[1, N])
    target = tl.make_tensor_descriptor(y, shape=[ROWS, N], strides=[N, 1], block_shape=[1, N])
    rows = tl.load(indices + tl.arange(0, COUNT))
    target.scatter(source.gather(rows, 0) * 2, rows, 0)


@triton.jit
def reduced_blocks(x, y, N: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[N, N], strides=[N, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(y, shape=[B, B], strides=[B, 1], block_shape=[B, B])
    tile = source.load([tl.program_id(0) * B, tl.program_id(1) * B])
    target.atomic_add([0, 0], tile)


@triton.jit(noinline=True)
def _doubled(limit):
    tl.device_assert(limit > 0, "limit")
    return limit * 2


@triton.jit
def clipped(x, y, limit, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.device_print("limit", limit)
    both = _doubled(limit)
    tl.store(y + at, tl.clamp(tl.load(x + at), -both, both))


@triton.jit
def random_numbers(y, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.rand(seed, at))
    tl.store(y + N + at, tl.randn(seed, at))


@triton.jit
def quantised(x, y, scales, n, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    values = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(values), 0) / 448.0
    tl.store(scales + row, scale)
    tl.store(y + row * n + at, (values / scale).to(y.dtype.element_ty), mask=at < n)
