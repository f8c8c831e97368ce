"""Kernels around matrix products, in Triton's language: an epilogue, dequantised weights, groups, a gate of experts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_epilogue(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, TF32: tl.constexpr,
):
    """c = gelu(a @ b + bias), programs ordered in groups of rows for the cache."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    row = first + (pid % (GROUP * columns)) % height
    column = (pid % (GROUP * columns)) // height
    offs_m = row * BM + tl.arange(0, BM)
    offs_n = column * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a = a_ptr + (offs_m % M)[:, None] * stride_am + offs_k[None, :]
    b = b_ptr + offs_k[:, None] * stride_bk + (offs_n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=offs_k[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32" if TF32 else "ieee")
        a += BK
        b += BK * stride_bk
    acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    acc = acc * 0.5 * (1.0 + tl.erf(acc * 0.7071067811865476))
    kept = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc.to(c_ptr.dtype.element_ty), mask=kept)


@triton.jit
def matmul_int8_weights(
    x_ptr, w_ptr, scale_ptr, y_ptr, M, N, K, stride_x, stride_w, stride_s, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """y = x @ (w * scale): int8 weights, one scale per column and block of rows."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    x = x_ptr + offs_m[:, None] * stride_x + offs_k[None, :]
    w = w_ptr + offs_k[:, None] * stride_w + offs_n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(x, mask=offs_m[:, None] < M, other=0.0)
        right = tl.load(w)
        scale = tl.load(scale_ptr + k * stride_s + offs_n)
        acc = tl.dot(left, (right.to(tl.float32) * scale[None, :]).to(left.dtype), acc)
        x += BK
        w += BK * stride_w
    out = acc.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + offs_m[:, None] * stride_y + offs_n[None, :], out, mask=offs_m[:, None] < M)


@triton.jit
def matmul_int4_weights(
    x_ptr, w_ptr, scale_ptr, y_ptr, M, N, K, stride_x, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """y = x @ w: two int4 weights of neighbouring columns in a byte, one scale per column."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_half = pid_n * (BN // 2) + tl.arange(0, BN // 2)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    x = x_ptr + offs_m[:, None] * stride_x + offs_k[None, :]
    w = w_ptr + offs_k[:, None] * stride_w + offs_half[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        left = tl.load(x, mask=offs_m[:, None] < M, other=0.0)
        packed = tl.load(w)
        low = ((packed << 4) >> 4).to(left.dtype)
        high = (packed >> 4).to(left.dtype)
        acc = tl.dot(left, tl.interleave(low, high), acc)
        x += BK
        w += BK * stride_w
    acc *= tl.load(scale_ptr + offs_n)[None, :]
    out = acc.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + offs_m[:, None] * stride_y + offs_n[None, :], out, mask=offs_m[:, None] < M)


@triton.jit
def grouped_matmul(
    a_table, b_table, c_table, sizes_ptr, groups, workers,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, DTYPE: tl.constexpr,
):
    """One product per group; tables hold the addresses, sizes (M, N, K); tiles dealt out to programs in turn."""
    tile = tl.program_id(0)
    done = 0
    for g in range(groups):
        m = tl.load(sizes_ptr + g * 3)
        n = tl.load(sizes_ptr + g * 3 + 1)
        k = tl.load(sizes_ptr + g * 3 + 2)
        columns = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * columns
        while tile >= done and tile < done + tiles:
            a = tl.load(a_table + g).to(tl.pointer_type(DTYPE))
            b = tl.load(b_table + g).to(tl.pointer_type(DTYPE))
            c = tl.load(c_table + g).to(tl.pointer_type(DTYPE))
            offs_m = (tile - done) // columns * BM + tl.arange(0, BM)
            offs_n = (tile - done) % columns * BN + tl.arange(0, BN)
            offs_k = tl.arange(0, BK)
            left = a + offs_m[:, None] * k + offs_k[None, :]
            right = b + offs_k[:, None] * n + offs_n[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, tl.cdiv(k, BK)):
                tl.multiple_of(left, [16, 16])
                tl.multiple_of(right, [16, 16])
                acc = tl.dot(tl.load(left), tl.load(right), acc)
                left += BK
                right += BK * n
            kept = (offs_m[:, None] < m) & (offs_n[None, :] < n)
            tl.store(c + offs_m[:, None] * n + offs_n[None, :], acc.to(DTYPE), mask=kept)
            tile += workers
        done += tiles


@triton.jit
def gate(
    x_ptr, w_ptr, weights_ptr, experts_ptr, lse_ptr, M, K, stride_x, stride_w,
    BM: tl.constexpr, E: tl.constexpr, BK: tl.constexpr, TOP: tl.constexpr,
):
    """The gate of a mixture of experts: softmax of x @ w over E experts, the TOP largest and who they are; and the
    logarithm of each row's sum, for its penalty."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_e = tl.arange(0, E)
    offs_k = tl.arange(0, BK)
    x = x_ptr + offs_m[:, None] * stride_x + offs_k[None, :]
    w = w_ptr + offs_k[:, None] * stride_w + offs_e[None, :]
    inside = offs_m < M
    logits = tl.zeros((BM, E), tl.float32)
    for _ in range(0, K, BK):
        logits = tl.dot(tl.load(x, mask=inside[:, None], other=0.0), tl.load(w), logits)
        x += BK
        w += BK * stride_w
    top = tl.max(logits, 1)
    odds = tl.exp(logits - top[:, None])
    total = tl.sum(odds, 1)
    odds = odds / total[:, None]
    tl.store(lse_ptr + offs_m, top + tl.log(total), mask=inside)
    for i in tl.static_range(TOP):
        best = tl.max(odds, 1)
        expert = tl.argmax(odds, 1)
        tl.store(weights_ptr + offs_m * TOP + i, best, mask=inside)
        tl.store(experts_ptr + offs_m * TOP + i, expert, mask=inside)
        odds = tl.where(offs_e[None, :] == expert[:, None], -1.0, odds)


@triton.jit
def batched_outer(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, B: tl.constexpr):
    """c[i] = a[i] @ b[i] for B small matrices at once: a product of rank three."""
    start = tl.program_id(0) * B
    offs_b = start + tl.arange(0, B)
    offs_m, offs_n, offs_k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a = a_ptr + offs_b[:, None, None] * BM * K + offs_m[None, :, None] * K + offs_k[None, None, :]
    b = b_ptr + offs_b[:, None, None] * K * BN + offs_k[None, :, None] * BN + offs_n[None, None, :]
    acc = tl.zeros((B, BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * BN
    c = c_ptr + offs_b[:, None, None] * BM * BN + offs_m[None, :, None] * BN + offs_n[None, None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty))
