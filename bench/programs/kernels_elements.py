"""Kernels that move and map elements: transposes, fused maps, rotations, scans, histograms, in Triton's language."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def transpose_gate(x_ptr, gate_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """y = (x * sigmoid(gate))' for x and gate (M, N)."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    kept = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=kept).to(tl.float32)
    g = tl.load(gate_ptr + offs_m[:, None] * N + offs_n[None, :], mask=kept).to(tl.float32)
    y = tl.trans(x * tl.sigmoid(g)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + offs_n[:, None] * M + offs_m[None, :], y, mask=(offs_n[:, None] < N) & (offs_m[None, :] < M))


@triton.jit
def add_transposed(x_ptr, z_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """y = x + z' for x (M, N) and z (N, M), both read along their rows."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    kept = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    place = offs_m[:, None] * N + offs_n[None, :]
    x = tl.load(x_ptr + place, mask=kept)
    z = tl.load(z_ptr + offs_n[:, None] * M + offs_m[None, :], mask=(offs_n[:, None] < N) & (offs_m[None, :] < M))
    tl.store(y_ptr + place, x + tl.trans(z), mask=kept)


@triton.jit
def fused_elementwise(
    x_ptr, gate_ptr, bias_ptr, residual_ptr, row_ptr, y_ptr, rate, seed, M, N,
    BM: tl.constexpr, BN: tl.constexpr,
):
    """y = residual + row_scale * dropout(silu(gate + bias) * x)."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    place = offs_m[:, None] * N + offs_n[None, :]
    kept = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    scale = tl.load(row_ptr + offs_m, mask=offs_m < M, other=0.0)
    x = tl.load(x_ptr + place, mask=kept, other=0.0).to(tl.float32)
    g = tl.load(gate_ptr + place, mask=kept, other=0.0).to(tl.float32) + bias[None, :]
    value = x * g * tl.sigmoid(g)
    value = tl.where(tl.rand(seed, place) > rate, value / (1 - rate), 0.0) * scale[:, None]
    residual = tl.load(residual_ptr + place, mask=kept, other=0.0).to(tl.float32)
    tl.store(y_ptr + place, (residual + value).to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, y_ptr, T, HEADS: tl.constexpr, D: tl.constexpr, BT: tl.constexpr):
    """Positions rotated by pairs of neighbouring features: x (T, HEADS, D), cos and sin (T, D / 2)."""
    offs_t = tl.program_id(0) * BT + tl.arange(0, BT)
    offs_d = tl.arange(0, D)
    half = tl.arange(0, D // 2)
    angles = offs_t[:, None] * (D // 2) + half[None, :]
    inside = (offs_t < T)[:, None]
    cos = tl.load(cos_ptr + angles, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + angles, mask=inside, other=0.0)
    for head in range(HEADS):
        place = (offs_t[:, None] * HEADS + head) * D + offs_d[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BT, D // 2, 2)))
        turned = tl.join(even * cos - odd * sin, odd * cos + even * sin)
        tl.store(y_ptr + place, tl.reshape(turned, (BT, D)).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scan_histogram(
    x_ptr, prefix_ptr, histogram_ptr, N, B: tl.constexpr, BINS: tl.constexpr,
):
    """Prefix sums of the digits of keys, and how often each occurs: a pass of a radix sort."""
    start = tl.program_id(0) * B
    offs = start + tl.arange(0, B)
    kept = offs < N
    digit = tl.load(x_ptr + offs, mask=kept, other=0) & (BINS - 1)
    tl.store(prefix_ptr + offs, tl.cumsum(digit, 0), mask=kept)
    counts = tl.histogram(digit, BINS, mask=kept)
    tl.atomic_add(histogram_ptr + tl.arange(0, BINS), counts)


@triton.jit
def row_scan(x_ptr, decay_ptr, y_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """Exponential moving sums along rows, carried from block to block, by a scan of its own operator."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    decay = tl.load(decay_ptr + offs_m)
    carried = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        x = tl.load(x_ptr + offs_m[:, None] * N + columns[None, :]).to(tl.float32)
        factor = tl.broadcast_to(decay[:, None], (BM, BN))
        reach, y = tl.associative_scan((factor, x), 1, _decayed)
        y += carried[:, None] * reach
        last = tl.arange(0, BN)[None, :] == BN - 1
        carried = tl.sum(tl.where(last, y, 0.0), 1)
        tl.store(y_ptr + offs_m[:, None] * N + columns[None, :], y.to(y_ptr.dtype.element_ty))


@triton.jit
def _decayed(factor, value, later_factor, later_value):
    return factor * later_factor, value * later_factor + later_value


@triton.jit
def sort_rows(x_ptr, y_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """Rows sorted, the largest first."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    kept = (columns < N)[None, :]
    x = tl.load(x_ptr + offs_m[:, None] * N + columns[None, :], mask=kept, other=-float("inf"))
    tl.store(y_ptr + offs_m[:, None] * N + columns[None, :], tl.sort(x, 1, descending=True), mask=kept)


@triton.jit
def gather_rows(x_ptr, index_ptr, y_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """y[i, j] = x[i, index[i, j]]."""
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    place = offs_m[:, None] * N + columns[None, :]
    index = tl.load(index_ptr + place)
    tl.store(y_ptr + place, tl.gather(tl.load(x_ptr + place), index, 1))
