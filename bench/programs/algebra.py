"""Programs whose bytes fall when the tensors, not only their shardings, are rewritten.

Every program carries an ``equivalent`` function: the same value by other operations, which communicates less under
the same shardings. The peers compile both, so that what can be won is measured and not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from bench.programs import BenchProgram

_KSHARDED = ("256x1024: - x", "1024x256: x -", "1024x256: x -")
_FSDP = ("2048x1024: x -", "1024x1024: x -", "1024x1024: x -")

# name, mesh, arguments, function, the better function, output sharding, whether sums or products are reassociated
_ROWS: tuple[tuple[str, str, Sequence[str], Callable[..., Any], Callable[..., Any], Any, bool], ...] = (
    (
        "one factor, contraction sharded", "8", _KSHARDED,
        lambda a, b, c: a @ b + a @ c,
        lambda a, b, c: a @ (b + c),
        "- -", True,
    ),
    (
        "one factor, weights sharded", "8", _FSDP,
        lambda a, b, c: a @ b + a @ c,
        lambda a, b, c: a @ (b + c),
        "x -", True,
    ),
    (
        "low rank, weights sharded", "8", ("2048x1024: x -", "1024x1024: x -", "1024x16: x -"),
        lambda x, a, b: (x @ a) @ b,
        lambda x, a, b: x @ (a @ b),
        "x -", True,
    ),
    (
        "low rank, contraction sharded", "8", ("1024x1024: - x", "1024x1024: x -", "1024x16: - -"),
        lambda x, a, b: (x @ a) @ b,
        lambda x, a, b: x @ (a @ b),
        "- -", True,
    ),
    (
        "low-rank update, contraction sharded", "8", ("512x1024: - -", "1024x1024: - -", "1024x8: x -", "8x1024: - -"),
        lambda x, w, a, b: x @ (w + a @ b),
        lambda x, w, a, b: x @ w + (x @ a) @ b,
        "- -", True,
    ),
    (
        "low-rank update, batch sharded", "8", ("512x1024: x -", "1024x1024: - -", "1024x8: x -", "8x1024: - -"),
        lambda x, w, a, b: x @ (w + a @ b),
        lambda x, w, a, b: x @ w + (x @ a) @ b,
        "x -", True,
    ),
    (
        "sum of rows, contraction sharded", "8", ("4096x1024: - x", "1024x1024: x -"),
        lambda x, a: jnp.sum(x @ a, axis=0),
        lambda x, a: jnp.sum(x, axis=0) @ a,
        "-", True,
    ),
    (
        "sum of rows, weights sharded", "8", ("4096x1024: x -", "1024x1024: x -"),
        lambda x, a: jnp.sum(x @ a, axis=0),
        lambda x, a: jnp.sum(x, axis=0) @ a,
        "-", True,
    ),
    (
        "mean of columns", "8", ("2048x1024: x -", "1024x1024: x -"),
        lambda x, a: jnp.mean(x @ a, axis=1),
        lambda x, a: x @ jnp.mean(a, axis=1),
        "x", True,
    ),
    (
        "sum of a product", "8", ("1024x1024: - x", "1024x1024: x -"),
        lambda x, a: jnp.sum(x @ a),
        lambda x, a: jnp.sum(x, axis=0) @ jnp.sum(a, axis=1),
        "", True,
    ),
    (
        "mean of a broadcast", "8", ("262144: -", "1024: x"),
        lambda x, y: jnp.mean(x[:, None] * y[None, :], axis=1),
        lambda x, y: x * jnp.mean(y),
        "-", True,
    ),
    (
        "slice of a fused product", "8", ("512x1024: - x", "1024x3072: x -"),
        lambda x, w: (x @ w)[:, :1024],
        lambda x, w: x @ w[:, :1024],
        "- -", False,
    ),
    (
        "two slices of a fused product", "8", ("512x1024: - x", "1024x3072: x -"),
        lambda x, w: (x @ w)[:, :1024] * (x @ w)[:, 1024:2048],
        lambda x, w: (x @ w[:, :1024]) * (x @ w[:, 1024:2048]),
        "- -", False,
    ),
    (
        "first rows of a product", "8", ("1024x1024: - x", "1024x1024: x -"),
        lambda x, a: (x @ a)[:64],
        lambda x, a: x[:64] @ a,
        "- -", False,
    ),
    (
        "concatenate, then project", "8", ("512x1024: - x", "1024x1024: x -", "1024x1024: x -", "2048x64: - -"),
        lambda x, a, b, c: jnp.concatenate([x @ a, x @ b], axis=1) @ c,
        lambda x, a, b, c: x @ (a @ c[: a.shape[1]] + b @ c[a.shape[1] :]),
        "- -", True,
    ),
    (
        "scaling after the product", "8", ("8192x1024: - x", "1024x2: x -"),
        lambda x, v: (jnp.exp(x) / jnp.exp(x).sum(axis=1, keepdims=True)) @ v,
        lambda x, v: (jnp.exp(x) @ v) / jnp.exp(x).sum(axis=1, keepdims=True),
        "x -", True,
    ),
    (
        "reshape undone", "8", ("64x16x1024: - x -",),
        lambda x: jnp.tanh(x.reshape(1024, 1024)).reshape(x.shape),
        jnp.tanh,
        "- x -", False,
    ),
    (
        "transpose and reshape undone", "8", ("1024x1024: x -",),
        lambda x: jnp.tanh(x.T.reshape(-1)).reshape(x.shape[::-1]).T,
        jnp.tanh,
        "x -", False,
    ),
)  # fmt: skip


PROGRAMS: tuple[BenchProgram, ...] = tuple(
    BenchProgram.define(
        f"algebra: {name}", "algebra", mesh, arguments, function, out, equivalent=equivalent, rounding=rounding
    )
    for name, mesh, arguments, function, equivalent, out, rounding in _ROWS
)
