"""Kernels in Triton's language, written for what their ops do to values."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, B)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=-float("inf")).to(tl.float32)
    values = values - tl.max(values, 0)
    weights = tl.exp(values)
    tl.store(y + row * n + columns, weights / tl.sum(weights, 0), mask=inside)


@triton.jit
def layer_norm(x, w, b, y, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([B], tl.float32)
    squares = tl.zeros([B], tl.float32)
    for start in range(0, n, B):
        columns = start + tl.arange(0, B)
        values = tl.load(x + row * n + columns, mask=columns < n, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    mean = tl.sum(total, 0) / n
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / n - mean * mean + eps)
    for start in range(0, n, B):
        columns = start + tl.arange(0, B)
        inside = columns < n
        values = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(w + columns, mask=inside, other=0.0)
        bias = tl.load(b + columns, mask=inside, other=0.0)
        tl.store(y + row * n + columns, (values - mean) * scale * weight + bias, mask=inside)


@triton.jit
def matmul(a, b, bias, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    at = a + rows[:, None] * lda + inner[None, :]
    bt = b + inner[:, None] * ldb + columns[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        left = tl.load(at, mask=(rows[:, None] < M) & (inner[None, :] < K - k), other=0.0)
        right = tl.load(bt, mask=(inner[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        at += BK
        bt += BK * ldb
    total += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :]
    total = tl.where(total > 0, total, 0.01 * total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * ldc + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    base = tl.program_id(1) * n * D
    dims = tl.arange(0, D)
    query = tl.load(q + base + rows[:, None] * D + dims[None, :], mask=rows[:, None] < n, other=0.0)
    highest = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    result = tl.zeros([BM, D], tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + base + columns[None, :] * D + dims[:, None], mask=columns[None, :] < n, other=0.0)
        scores = tl.dot(query, key) * scale
        seen = columns[None, :] < n
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        weights = tl.exp2(scores - shift[:, None])
        factor = tl.exp2(highest - shift)
        total = total * factor + tl.sum(weights, 1)
        value = tl.load(v + base + columns[:, None] * D + dims[None, :], mask=columns[:, None] < n, other=0.0)
        result = tl.dot(weights.to(value.dtype), value, result * factor[:, None])
        highest = higher
    result = result / total[:, None]
    tl.store(o + base + rows[:, None] * D + dims[None, :], result.to(o.dtype.element_ty), mask=rows[:, None] < n)


@triton.jit
def top_k(x, values, indices, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, N)
    left = tl.load(x + row * N + columns)
    for k in range(K):
        best, where = tl.max(left, 0, return_indices=True)
        tl.store(values + row * K + k, best)
        tl.store(indices + row * K + k, where)
        left = tl.where(columns == where, -float("inf"), left)


@triton.jit
def scans(x, sums, products, backwards, counts, maxima, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    at = rows * N + columns
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, 1))
    tl.store(products + at, tl.cumprod((values % 3 + 1).to(tl.float32), 0))
    tl.store(backwards + at, tl.cumsum(values, 1, reverse=True))
    tl.store(counts + tl.arange(0, 16), tl.histogram(tl.reshape(values & 15, [M * N]), 16))
    tl.store(maxima + tl.arange(0, N), tl.max(values, 0))


@triton.jit
def _joined(mean_a, square_a, count_a, mean_b, square_b, count_b):
    difference = mean_b - mean_a
    count = count_a + count_b
    share = tl.where(count == 0, 0.0, count_b / tl.where(count == 0, 1.0, count))
    mean = mean_a + difference * share
    return mean, square_a + square_b + difference * difference * count_a * share, count


@triton.jit
def welford(x, means, variances, n, B: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, B)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0)
    mean, square, count = tl.reduce((values, tl.zeros([B], tl.float32), inside.to(tl.float32)), 0, _joined)
    tl.store(means + row, mean)
    tl.store(variances + row, square / count)


@triton.jit
def integers(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < n
    a = tl.load(x + at, mask=inside, other=0)
    b = tl.load(y + at, mask=inside, other=1)
    tl.store(out + 0 * n + at, a // b, mask=inside)
    tl.store(out + 1 * n + at, a % b, mask=inside)
    tl.store(out + 2 * n + at, a >> (b & 7), mask=inside)
    tl.store(out + 3 * n + at, a << (b & 7), mask=inside)
    tl.store(out + 4 * n + at, a * b + (a ^ b) - (a & ~b), mask=inside)
    tl.store(out + 5 * n + at, tl.maximum(a, b) - tl.minimum(a, b), mask=inside)
    tl.store(out + 6 * n + at, tl.abs(a), mask=inside)
    tl.store(out + 7 * n + at, tl.where((a < b) | (a == 3), a, -b), mask=inside)


@triton.jit
def floats(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < n
    a = tl.load(x + at, mask=inside, other=0.0)
    b = tl.load(y + at, mask=inside, other=0.0)
    tl.store(out + 0 * n + at, tl.minimum(a, b), mask=inside)
    tl.store(out + 1 * n + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL), mask=inside)
    tl.store(out + 2 * n + at, a * b - a / b, mask=inside)
    tl.store(out + 3 * n + at, tl.where(a < b, 1.0, 0.0), mask=inside)
    tl.store(out + 4 * n + at, tl.where(a != b, a, b), mask=inside)
    tl.store(out + 5 * n + at, tl.math.fma(a, b, a), mask=inside)
    tl.store(out + 6 * n + at, tl.floor(a) + tl.ceil(b), mask=inside)
    tl.store(out + 7 * n + at, a.to(tl.int32).to(tl.float32), mask=inside)


@triton.jit
def casts(x, half, brain, wide, bits, small, B: tl.constexpr):
    at = tl.arange(0, B)
    values = tl.load(x + at)
    tl.store(half + at, values.to(tl.float16))
    tl.store(brain + at, values.to(tl.bfloat16))
    tl.store(wide + at, values.to(tl.float64) * 1.5)
    tl.store(bits + at, values.to(tl.int32, bitcast=True))
    tl.store(small + at, values.to(tl.float8e5, fp_downcast_rounding="rtne").to(tl.float32))


@triton.jit
def transpose(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tile = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside)
    turned = tl.trans(tile * 2)
    tl.store(y + columns[:, None] * M + rows[None, :], turned, mask=(columns[:, None] < N) & (rows[None, :] < M))


@triton.jit
def arranged(x, indices, y, z, w, g, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    grid = tl.reshape(values, [N // 8, 8])
    turned = tl.permute(tl.reshape(values, [2, N // 8, 4]), [2, 0, 1])
    tl.store(y + tl.arange(0, N), tl.reshape(turned, [N]))
    even, odd = tl.split(tl.reshape(values, [N // 2, 2]))
    tl.store(z + tl.arange(0, N), tl.reshape(tl.join(odd, even), [N]))
    picked = tl.gather(grid, tl.load(indices + tl.arange(0, N // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]), 1)
    tl.store(w + tl.arange(0, N // 8)[:, None] * 8 + tl.arange(0, 8)[None, :], picked)
    tl.store(g + tl.arange(0, N), tl.sort(values))


@triton.jit
def atomics(x, buckets, total, largest, locks, N: tl.constexpr, BUCKETS: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + at)
    tl.atomic_add(buckets + (values & (BUCKETS - 1)), 1, mask=values >= 0)
    tl.atomic_add(total, tl.sum(values.to(tl.float32), 0))
    tl.atomic_max(largest, tl.max(values, 0))
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    tl.store(locks + 1, tl.load(locks + 1) + 1)
    tl.atomic_xchg(locks, 0)


@triton.jit
def collatz(x, steps, kinds):
    i = tl.program_id(0)
    number = tl.load(x + i)
    count = 0
    while number != 1:
        if number % 2 == 0:
            number = number // 2
        else:
            number = 3 * number + 1
        count += 1
    tl.store(steps + i, count)
    if count > 10:
        tl.store(kinds + i, 2)
    elif count > 5:
        tl.store(kinds + i, 1)
    else:
        tl.store(kinds + i, 0)


@triton.jit
def blocks(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    row = tl.program_id(0) * BM
    for column in range(0, N, BN):
        tile = source.load([row, column])
        target.store([row, column], tile * 3)


@triton.jit
def dequantised(a, q, scales, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.arange(0, BM)
    columns = tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + inner[None, :])
        packed = tl.load(q + (k // 2 + tl.arange(0, BK // 2))[:, None] * N + columns[None, :])
        low = (packed << 4).to(tl.int8) >> 4
        high = packed.to(tl.int8) >> 4
        pairs = tl.permute(tl.join(low, high), [0, 2, 1])
        scale = tl.load(scales + columns)
        right = (tl.reshape(pairs, [BK, BN]).to(tl.float32) * scale[None, :]).to(tl.float16)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def exchanges(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + at, mask=at % 3 != 0, other=5)
    old = tl.atomic_cas(x + at, values, values + 4)
    tl.store(y + at, old, mask=old >= 0)
    tl.atomic_add(x + at, old, mask=old > 3)
