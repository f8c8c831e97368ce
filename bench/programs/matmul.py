"""Matrix products: tensor, data and fully sharded parallelism, gradients, sums and chains, and what users reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import with_sharding_constraint

from bench.programs import BenchProgram, spec

_define = partial(BenchProgram.define, family="dense")


def mlp(x: Array, up: Array, down: Array) -> Array:
    """Two layers with a rectifier between."""
    return jax.nn.relu(x @ up) @ down


def product(a: Array, b: Array) -> Array:
    return a @ b


def product_of_rows(x: Array, dy: Array) -> Array:
    """The gradient of a weight: sums over the batch."""
    return x.T @ dy


def sum_of_products(x: Array, a: Array, y: Array, b: Array) -> Array:
    return x @ a + y @ b


def chain(x: Array, *weights: Array) -> Array:
    """x times all weights, from the left."""
    for weight in weights:
        x = x @ weight
    return x


def _scaled(x: Array, a: Array) -> Array:
    return 3 * (x @ a)


def _add_three(a: Array, b: Array, e: Array) -> Array:
    return (a + b) + e


def _gather_then_multiply(a: Array, b: Array) -> Array:
    everywhere = spec("- -")
    return with_sharding_constraint(a, everywhere) * with_sharding_constraint(b, everywhere)


def _round_trip(value: Array) -> Array:
    return with_sharding_constraint(with_sharding_constraint(value, spec("- x")), spec("x -"))


def _chunked(x: Array, weight: Array) -> tuple[Array, ...]:
    return tuple(jnp.split(x @ weight, 3, axis=1))


def _split_rows(value: Array) -> Array:
    return value.reshape(2, 4, -1)


def _fft_rows(value: Array) -> Array:
    return jnp.fft.fft(value, axis=1)


def _tables() -> Sequence[BenchProgram]:
    fsdp: list[BenchProgram] = []
    for batch in (1024, 64):
        for weight in ("x -", "- x"):
            arguments = (f"{batch}x512: x -", f"512x2048: {weight}")
            fsdp.append(_named(f"FSDP batch {batch}, weight {weight}", "8", arguments, product, "x -"))
    mlp_weights = ("512x2048: - y", "2048x512: y -")
    mlp_square = ("512x2048: x y", "2048x512: y x")
    rows = ("4096x512: x -", "4096x2048: x -")
    two_products = ("256x256: - x", "256x256: x -") * 2
    return (
        _named("MLP data x tensor, out x -", "4x2", ("1024x512: x -", *mlp_weights), mlp, "x -", control=True),
        _named("MLP data x tensor, out x y", "4x2", ("1024x512: x -", *mlp_weights), mlp, "x y"),
        _named("MLP data x tensor, out x,y -", "4x2", ("1024x512: x -", *mlp_weights), mlp, "x,y -"),
        _named("MLP 2-D weights, batch 1024", "4x2", ("1024x512: x -", *mlp_square), mlp, "x -"),
        _named("MLP 2-D weights, batch 16", "4x2", ("16x512: x -", *mlp_square), mlp, "x -"),
        *fsdp,
        _named("replicated x, weight x -", "8", ("64x512: - -", "512x2048: x -"), product, "- -", control=True),
        _named("replicated x, weight - x", "8", ("64x512: - -", "512x2048: - x"), product, "- -", control=True),
        _named("gradient to x -", "8", rows, product_of_rows, "x -"),
        _named("gradient to replicated", "8", rows, product_of_rows, "- -", control=True),
        _named("gradient to - x, few rows", "8", ("1024x512: x -", "1024x2048: x -"), product_of_rows, "- x"),
        _named("sum of two K-sharded products", "8", two_products, sum_of_products, "- -"),
        _named("scaled K-sharded product to x -", "8", two_products[:2], _scaled, "x -"),
        _named(
            "chain of 2, K sharded", "8", ("64x512: - x", "512x2048: x -", "2048x2048: - -"), chain, "- -", control=True
        ),
        _named("chain of 3, weights x -", "8", ("64x1024: x -", *("1024x1024: x -",) * 3), chain, "x -"),
        _named("chain alternating - x, x -", "8", ("512x512: x -", "512x2048: - x", "2048x512: x -"), chain, "x -"),
        _named("outvoted sum", "8", ("1024x1024: x -", "1024x1024: - x", "1024x1024: - x"), _add_three, "- x"),
        _named("outvoted contraction", "8", ("512x1024: x -", "1024x768: x -"), product, "x -"),
        # The third program of that kind, two K-sharded products, is above.
    )


def _issues() -> Sequence[BenchProgram]:
    square = ("1024x1024: x -",) * 2
    contraction = ("1024x1024: - x", "1024x1024: x -")
    return (
        _named(
            "issue: dot, transposed output", "2x2x2", ("4096x4096: x -", "4096x4096: - y"), product, "y x",
            origin="openxla/xla#4062",
        ),
        _named(
            "issue: wide dot, transposed output", "4x2", ("4096x4096: x -", "4096x8192: - y"), product, "y x",
            origin="openxla/xla#4062",
        ),
        _named(
            "issue: gather both, then multiply", "8", square, _gather_then_multiply, "- -",
            origin="tenstorrent/tt-xla#3047",
        ),
        _named("issue: round trip", "8", ("4096x4096: x -",), _round_trip, "x -", origin="users"),
        _named(
            "issue: chunks of a fused product", "8", ("4096x1024: - -", "1024x3072: - x"), _chunked, ("- x",) * 3,
            origin="tenstorrent/tt-forge#775",
        ),
        _named("issue: contraction sharded, out - x", "8", contraction, product, "- x", origin="users"),
        _named("issue: contraction sharded, out x -", "8", contraction, product, "x -", origin="users"),
        _named(
            "issue: reshape (8, n) to (2, 4, n)", "4x2", ("8x262144: x y",), _split_rows, "y x -",
            origin="openxla/xla#13306",
        ),
        _named(
            "issue: fft along an unsharded axis", "8", ("complex64 2048x2048: x -",), _fft_rows, "x -",
            origin="jax-ml/jax#15680",
        ),
        _named(
            "issue: vmap of fft", "8", ("complex64 2048x2048: x -",), jax.vmap(jnp.fft.fft), "x -",
            origin="jax-ml/jax#20683",
        ),
        _named(
            "issue: two products, one reduction", "4x2",
            ("512x1024: - x,y", "1024x768: x,y -", "512x256: - x,y", "256x768: x,y -"), sum_of_products, "- -",
            origin="users",
        ),
        _named(
            "issue: sharded gradients", "8", ("512x768: x -", "512x1536: x -"), product_of_rows, "x -", origin="ZeRO"
        ),
    )  # fmt: skip


def _normalized(x: Array, scale: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6) * scale


def _permuted(x: Array, order: Array) -> Array:
    return jax.vmap(lambda row, index: row[index])(x, order)


def _controls() -> Sequence[BenchProgram]:
    control = partial(_named, control=True)
    return (
        control("control: batch sharded product", "8", ("2048x512: x -", "512x512: - -"), product, "x -"),
        control("control: column sharded product", "8", ("512x512: - -", "512x2048: - x"), product, "- x"),
        control("control: 2-D sharded product", "4x2", ("1024x512: x -", "512x1024: - y"), product, "x y"),
        control("control: contraction sharded product", "8", ("256x1024: - x", "1024x256: x -"), product, "- -"),
        control("control: batched product", "8", ("16x128x64: x - -", "16x64x128: x - -"), jnp.matmul, "x - -"),
        control("control: softmax of rows", "8", ("1024x512: x -",), jax.nn.softmax, "x -"),
        control("control: layer norm", "8", ("1024x512: x -", "512: -"), _normalized, "x -"),
        control("control: batched Cholesky", "8", ("16x32x32: x - -",), _cholesky, "x - -"),
        control("control: permuted rows", "8", ("64x256: x -", "int32 64x256: x -"), _permuted, "x -"),
        control("control: transposed product", "8", ("1024x512: x -", "512x256: - -"), _transposed, "- x"),
    )


def _cholesky(x: Array) -> Array:
    eye = jnp.eye(x.shape[-1], dtype=x.dtype)
    return jnp.linalg.cholesky(x @ x.swapaxes(-1, -2) + eye)


def _transposed(x: Array, a: Array) -> Array:
    return (x @ a).T


def _named(
    name: str, mesh: str, arguments: Sequence[str], function: Callable[..., Any], out: Any, **more: Any
) -> BenchProgram:
    return _define(name, mesh=mesh, arguments=arguments, function=function, out=out, **more)


PROGRAMS: tuple[BenchProgram, ...] = (*_tables(), *_issues(), *_controls())
