"""Attention without the matrix of scores in memory, forward and backward, in Triton's language.

Tensors are (batch x heads, positions, D), contiguous; scores are kept in powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, N, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):
    """out = softmax(q k' scale) v, and the logarithm of each row's sum."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * N * D
    offs_m = block * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    q = tl.load(q_ptr + base + offs_m[:, None] * D + offs_d[None, :])
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    last = (block + 1) * BM if CAUSAL else N
    for start in range(0, last, BN):
        start = tl.multiple_of(start, BN)
        k = tl.load(k_ptr + base + (start + offs_n)[None, :] * D + offs_d[:, None])
        scores = tl.dot(q, k) * (scale * 1.44269504)
        if CAUSAL:
            scores = tl.where(offs_m[:, None] >= (start + offs_n)[None, :], scores, -1.0e6)
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        factor = tl.exp2(top - higher)
        total = total * factor + tl.sum(p, 1)
        v = tl.load(v_ptr + base + (start + offs_n)[:, None] * D + offs_d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        top = higher
    tl.store(lse_ptr + head * N + offs_m, top + tl.log2(total))
    out = acc / total[:, None]
    tl.store(out_ptr + base + offs_m[:, None] * D + offs_d[None, :], out.to(out_ptr.dtype.element_ty))


@triton.jit
def attention_gradient_keys(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, N, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):
    """Gradients of the keys and values of a block of positions: a loop over the queries."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * N * D
    offs_n = block * BN + tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    k = tl.load(k_ptr + base + offs_n[:, None] * D + offs_d[None, :])
    v = tl.load(v_ptr + base + offs_n[:, None] * D + offs_d[None, :])
    dk = tl.zeros((BN, D), tl.float32)
    dv = tl.zeros((BN, D), tl.float32)
    first = block * BN // BM * BM if CAUSAL else 0
    for start in range(first, N, BM):
        offs_m = start + tl.arange(0, BM)
        q_t = tl.load(q_ptr + base + offs_m[None, :] * D + offs_d[:, None])
        lse = tl.load(lse_ptr + head * N + offs_m)
        p_t = tl.exp2(tl.dot(k, q_t) * (scale * 1.44269504) - lse[None, :])
        if CAUSAL:
            p_t = tl.where(offs_m[None, :] >= offs_n[:, None], p_t, 0.0)
        grad = tl.load(grad_ptr + base + offs_m[:, None] * D + offs_d[None, :])
        dv = tl.dot(p_t.to(grad.dtype), grad, dv)
        delta = tl.load(delta_ptr + head * N + offs_m)
        ds_t = p_t * (tl.dot(v, tl.trans(grad)) - delta[None, :])
        dk = tl.dot(ds_t.to(q_t.dtype), tl.trans(q_t), dk)
    place = base + offs_n[:, None] * D + offs_d[None, :]
    tl.store(dv_ptr + place, dv.to(dv_ptr.dtype.element_ty))
    tl.store(dk_ptr + place, (dk * scale).to(dk_ptr.dtype.element_ty))


@triton.jit
def attention_gradient_queries(
    q_ptr, k_ptr, v_ptr, out_ptr, grad_ptr, lse_ptr, delta_ptr, dq_ptr, N, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):
    """Gradients of a block of queries, and delta = sum(out grad) of each: a loop over the keys."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * N * D
    offs_m = block * BM + tl.arange(0, BM)
    offs_d = tl.arange(0, D)
    place = base + offs_m[:, None] * D + offs_d[None, :]
    q, grad = tl.load(q_ptr + place), tl.load(grad_ptr + place)
    delta = tl.sum(tl.load(out_ptr + place).to(tl.float32) * grad.to(tl.float32), 1)
    tl.store(delta_ptr + head * N + offs_m, delta)
    lse = tl.load(lse_ptr + head * N + offs_m)
    dq = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        offs_n = start + tl.arange(0, BN)
        k_t = tl.load(k_ptr + base + offs_n[None, :] * D + offs_d[:, None])
        v_t = tl.load(v_ptr + base + offs_n[None, :] * D + offs_d[:, None])
        p = tl.exp2(tl.dot(q, k_t) * (scale * 1.44269504) - lse[:, None])
        ds = p * (tl.dot(grad, v_t) - delta[:, None])
        dq = tl.dot(ds.to(k_t.dtype), tl.trans(k_t), dq)
    tl.store(dq_ptr + place, (dq * scale).to(dq_ptr.dtype.element_ty))
