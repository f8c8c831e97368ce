"""Kernels that reduce: softmax, layer normalisation, cross entropy, reductions of a batch, in Triton's language."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, columns, stride, B: tl.constexpr):
    """Rows of at most B columns."""
    row = tl.program_id(0)
    offs = tl.arange(0, B)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < columns, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + offs, (y / tl.sum(y, 0)).to(y_ptr.dtype.element_ty), mask=offs < columns)


@triton.jit
def layer_norm(
    x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, scale_ptr, M, N, stride, eps, BM: tl.constexpr, BN: tl.constexpr,
):
    """Rows normalised in two loops over their columns: moments, then the result."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    rows = offs_m < M
    x = x_ptr + offs_m[:, None] * stride
    total = tl.zeros((BM, BN), tl.float32)
    squares = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        block = tl.load(x + columns[None, :], mask=rows[:, None] & (columns < N)[None, :], other=0.0).to(tl.float32)
        total += block
        squares += block * block
    mean = tl.sum(total, 1) / N
    variance = tl.sum(squares, 1) / N - mean * mean
    scale = tl.rsqrt(variance + eps)
    tl.store(mean_ptr + offs_m, mean, mask=rows)
    tl.store(scale_ptr + offs_m, scale, mask=rows)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        kept = rows[:, None] & (columns < N)[None, :]
        w = tl.load(w_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        block = tl.load(x + columns[None, :], mask=kept, other=0.0).to(tl.float32)
        y = (block - mean[:, None]) * scale[:, None] * w[None, :] + b[None, :]
        tl.store(y_ptr + offs_m[:, None] * stride + columns[None, :], y.to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit
def layer_norm_gradient(
    x_ptr, grad_ptr, w_ptr, mean_ptr, scale_ptr, dx_ptr, dw_ptr, db_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr,
):
    """Gradients of a normalised input whose rows fit a block; those of weight and bias summed over the rows."""
    columns = tl.arange(0, BN)
    kept = columns < N
    w = tl.load(w_ptr + columns, mask=kept, other=0.0).to(tl.float32)
    dw = tl.zeros((BN,), tl.float32)
    db = tl.zeros((BN,), tl.float32)
    for start in range(tl.program_id(0) * BM, M, tl.num_programs(0) * BM):
        offs_m = start + tl.arange(0, BM)
        place = offs_m[:, None] * N + columns[None, :]
        both = (offs_m < M)[:, None] & kept[None, :]
        mean = tl.load(mean_ptr + offs_m, mask=offs_m < M, other=0.0)
        scale = tl.load(scale_ptr + offs_m, mask=offs_m < M, other=0.0)
        x = tl.load(x_ptr + place, mask=both, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + place, mask=both, other=0.0).to(tl.float32)
        normal = tl.where(both, (x - mean[:, None]) * scale[:, None], 0.0)
        weighted = grad * w[None, :]
        along = tl.sum(normal * weighted, 1) / N
        across = tl.sum(weighted, 1) / N
        dx = (weighted - normal * along[:, None] - across[:, None]) * scale[:, None]
        tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=both)
        dw += tl.sum(grad * normal, 0)
        db += tl.sum(grad, 0)
    tl.atomic_add(dw_ptr + columns, dw, mask=kept)
    tl.atomic_add(db_ptr + columns, db, mask=kept)


@triton.jit
def cross_entropy(logits_ptr, labels_ptr, loss_ptr, grad_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Loss and gradient of rows of logits, the maximum and the sum kept while the columns go by."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    rows = offs_m < M
    label = tl.load(labels_ptr + offs_m, mask=rows, other=0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        kept = rows[:, None] & (columns < N)[None, :]
        x = tl.load(logits_ptr + offs_m[:, None] * N + columns[None, :], mask=kept, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        top = higher
    lse = top + tl.log(total)
    hit = tl.load(logits_ptr + offs_m * N + label, mask=rows, other=0.0).to(tl.float32)
    tl.store(loss_ptr + offs_m, lse - hit, mask=rows)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        kept = rows[:, None] & (columns < N)[None, :]
        x = tl.load(logits_ptr + offs_m[:, None] * N + columns[None, :], mask=kept, other=-float("inf")).to(tl.float32)
        p = tl.exp(x - lse[:, None]) - tl.where(columns[None, :] == label[:, None], 1.0, 0.0)
        tl.store(grad_ptr + offs_m[:, None] * N + columns[None, :], p.to(grad_ptr.dtype.element_ty), mask=kept)


@triton.jit
def batched_reductions(
    x_ptr, sum_ptr, top_ptr, where_ptr, N, BATCH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):
    """Of blocks (BATCH, BM, N): sums over rows, the largest and its place over columns."""
    batch = tl.program_id(0) * BATCH + tl.arange(0, BATCH)
    offs_m = tl.arange(0, BM)
    rows = (batch[:, None] * BM + offs_m[None, :]) * N
    top = tl.full((BATCH, BM), float("-inf"), tl.float32)
    place = tl.zeros((BATCH, BM), tl.int32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        x = tl.load(x_ptr + rows[:, :, None] + columns[None, None, :]).to(tl.float32)
        tl.store(sum_ptr + batch[:, None] * N + columns[None, :], tl.sum(x, 1))
        best, at = tl.max(x, 2, return_indices=True)
        place = tl.where(best > top, at + start, place)
        top = tl.maximum(top, best)
    out = batch[:, None] * BM + offs_m[None, :]
    tl.store(top_ptr + out, top)
    tl.store(where_ptr + out, place)
