"""Shapes that local removal of layout conversions finds hard: branches in loops, slices of two parents, values that are
used after their loop, two accumulators, loops without a count, in Triton's language."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def masked_matmul(
    a_ptr, b_ptr, mask_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """A product over the blocks that a table keeps; every fourth block the accumulator is clipped."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    limit = tl.load(mask_ptr + offs_n).to(tl.float32)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + offs_m[:, None] * K + (k + offs_k)[None, :])
        b = tl.load(b_ptr + (k + offs_k)[:, None] * N + offs_n[None, :])
        acc = tl.dot(a, b, acc)
        if k % (4 * BK) == 0:
            acc = tl.minimum(acc, limit[None, :])
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def branch_in_loop(x_ptr, w_ptr, y_ptr, flags_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """Row sums over blocks of columns: flagged blocks are weighted by a vector read in the branch."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        x = tl.load(x_ptr + offs_m[:, None] * N + columns[None, :]).to(tl.float32)
        if tl.load(flags_ptr + start // BN) != 0:
            w = tl.load(w_ptr + columns)
            x = x * w[None, :]
            total = total * 0.5
        total += tl.sum(x, 1)
    tl.store(y_ptr + offs_m, total)


@triton.jit
def pairwise_distance(x_ptr, z_ptr, y_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Squared distances of rows: sums of squares of both operands beside the product, as rows and as columns."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    left = tl.zeros((BM,), tl.float32)
    right = tl.zeros((BN,), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(x_ptr + offs_m[:, None] * K + (k + offs_k)[None, :])
        z = tl.load(z_ptr + offs_n[:, None] * K + (k + offs_k)[None, :])
        acc = tl.dot(x, tl.trans(z), acc)
        left += tl.sum(x.to(tl.float32) * x.to(tl.float32), 1)
        right += tl.sum(z.to(tl.float32) * z.to(tl.float32), 1)
    distance = left[:, None] + right[None, :] - 2.0 * acc
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], distance)


@triton.jit
def two_accumulators(
    x_ptr, gate_ptr, up_ptr, y_ptr, top_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """silu(x @ gate) * (x @ up) with two accumulators in a loop, and the largest of each row."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    x = x_ptr + offs_m[:, None] * K + offs_k[None, :]
    w = offs_k[:, None] * N + offs_n[None, :]
    first = tl.zeros((BM, BN), tl.float32)
    second = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        block = tl.load(x)
        first = tl.dot(block, tl.load(gate_ptr + w), first)
        second = tl.dot(block, tl.load(up_ptr + w), second)
        x += BK
        w += BK * N
    y = first * tl.sigmoid(first) * second
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y.to(y_ptr.dtype.element_ty))
    tl.atomic_max(top_ptr + offs_m, tl.max(y, 1))


@triton.jit
def used_after_loop(x_ptr, w_ptr, y_ptr, last_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """A running maximum that scales what comes later, stored with the last block and as a column."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    top = tl.full((BM,), 1.0e-6, tl.float32)
    block = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        x = tl.load(x_ptr + offs_m[:, None] * N + columns[None, :]).to(tl.float32)
        w = tl.load(w_ptr + columns)
        block = block * 0.9 + x * w[None, :]
        top = tl.maximum(top, tl.max(tl.abs(block), 1))
    tl.store(last_ptr + offs_m, top)
    y = y_ptr + tl.program_id(0) * BM * BN + tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
    tl.store(y, tl.trans(block / top[:, None]))


@triton.jit
def power_iteration(a_ptr, x_ptr, y_ptr, tolerance, B: tl.constexpr):
    """The dominant vector of a matrix B x B by repeated products until it stands still: a loop without a count."""
    offs = tl.arange(0, B)
    a = tl.load(a_ptr + offs[:, None] * B + offs[None, :])
    x = tl.load(x_ptr + offs)
    change = 1.0
    steps = 0
    while change > tolerance and steps < 1000:
        y = tl.sum(a * x[None, :], 1)
        y = y / tl.sqrt(tl.sum(y * y, 0))
        change = tl.max(tl.abs(y - x), 0)
        x = y
        steps += 1
    tl.store(y_ptr + offs, x)


@triton.jit
def broadcast_slices(x_ptr, row_ptr, column_ptr, y_ptr, top_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A vector broadcast along rows of one tile and along columns of its transpose."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    row = tl.load(row_ptr + offs_m)
    column = tl.load(column_ptr + offs_n)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    z = tl.load(x_ptr + offs_n[:, None] * M + offs_m[None, :])
    left = x * row[:, None] + column[None, :]
    right = z * row[None, :] + column[:, None]
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], left + tl.trans(right))
    tl.store(top_ptr + offs_m, tl.max(left, 1) + tl.max(right, 0))
