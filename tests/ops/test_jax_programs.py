"""Programs that JAX lowers: read, evaluated in NumPy, and printed again for XLA, they compute what JAX computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.ops.oracles import assert_close, function_text, run_xla

from eggshard.frontends.stablehlo.reading import read
from eggshard.ops.evaluate import evaluate_program

X, W, IMAGE, KERNEL = (4, 6), (6, 6), (2, 8, 8, 3), (3, 3, 3, 4)
NHWC = ("NHWC", "HWIO", "NHWC")


def normalisation(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return jax.nn.softmax(x), jax.nn.logsumexp(x), centred / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def activations(x: Any) -> Any:
    return jax.nn.gelu(x), jax.nn.gelu(x, approximate=False), jax.nn.silu(x), jnp.clip(x, -1, 1), jax.nn.softplus(x)


def cumulative(x: Any) -> Any:
    return (jnp.cumsum(x, 0), lax.cumsum(x, 0, reverse=True), lax.cummax(x, 1), lax.cumlogsumexp(x, 0),
            lax.cumprod(x, 1), lax.associative_scan(jnp.add, x))


def orders(x: Any) -> Any:
    return (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 3), jnp.median(x),
            jnp.searchsorted(jnp.sort(x.ravel()), x))


def gradients(x: Any, w: Any) -> Any:
    return jax.grad(lambda x, w: jnp.sum(jnp.tanh(x @ w) ** 2), (0, 1))(x, w)


def convolutions(image: Any, kernel: Any) -> Any:
    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(lax.conv_general_dilated(a, b, (2, 2), "SAME", dimension_numbers=NHWC) ** 2)

    return jax.grad(loss, (0, 1))(image, kernel)


def pooling(image: Any) -> Any:
    def largest(a: Any) -> Any:
        return lax.reduce_window(a, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    mean = lax.reduce_window(image, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9
    return largest(image), mean, jax.grad(lambda a: jnp.sum(largest(a) ** 2))(image)


def rearrangements(x: Any) -> Any:
    return (jnp.roll(x, 2, 1), jnp.pad(x, 1, mode="wrap"), jnp.pad(x, 1, mode="edge"), jnp.pad(x, 1), x[::-1, 1::2],
            jnp.tril(x), jnp.kron(x, x), jnp.stack([x, x], 1), x[jnp.array([2, 0, 1]), 1:3],
            x.at[jnp.array([0, 2, 2])].add(1.0).at[1].set(5.0), lax.dynamic_slice(x, (1, 9), (2, 3)))


def loops(x: Any) -> Any:
    scanned = lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), x[0], x)
    branched = lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)
    return scanned, lax.fori_loop(0, 5, lambda i, v: v * 0.9 + i, x), branched, lax.map(lambda row: row * row.sum(), x)


def special(x: Any) -> Any:
    functions = jax.scipy.special
    return (functions.gammaln(x), functions.digamma(x), lax.erf_inv(jnp.tanh(x)), functions.i1e(x), jnp.expm1(x),
            functions.zeta(x * x + 1.5, x * x + 0.5), jnp.hypot(x, x), jnp.sinc(x), jnp.cbrt(x), jnp.round(x, 1))


def element_types(x: Any) -> Any:
    whole = (x * 100).astype(jnp.int32)
    narrow = x.astype(jnp.bfloat16)
    return (whole // 7, whole % 7, jnp.bitwise_count(whole), lax.clz(whole), narrow @ narrow.T,
            x.astype(jnp.float8_e4m3fn).astype(jnp.float32), lax.reduce_precision(x, 5, 3), jnp.isnan(x),
            lax.bitcast_convert_type(x, jnp.uint16), jnp.nanmax(jnp.where(x > 0, x, jnp.nan)))


def complex_numbers(x: Any) -> Any:
    return jnp.abs(x + 1j * x), jnp.angle(x + 2j * x), jnp.exp(1j * x), jnp.fft.fft2(x), jnp.fft.irfft(jnp.fft.rfft(x))


def attention(x: Any) -> Any:
    return jax.nn.dot_product_attention(*(x.reshape(1, 4, 2, 3),) * 3, is_causal=True)


def random_numbers(x: Any) -> Any:
    return jax.random.normal(jax.random.key(0), x.shape) + x


CASES: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (normalisation, (X,)), (activations, (X,)), (cumulative, (X,)), (orders, (X,)), (gradients, (X, W)),
    (convolutions, (IMAGE, KERNEL)), (pooling, (IMAGE,)), (rearrangements, (X,)), (loops, (X,)), (special, (X,)),
    (element_types, (X,)), (complex_numbers, (X,)), (attention, (X,)), (random_numbers, (X,)),
]  # fmt: skip


@pytest.mark.parametrize("function, shapes", CASES, ids=[case[0].__name__ for case in CASES])
def test_jax_program(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    jitted = jax.jit(function)
    program = read(jitted.lower(*arrays).as_text())
    wanted = [np.asarray(out) for out in jax.tree.leaves(jitted(*arrays))]
    for mine, theirs in zip(evaluate_program(program, arrays), wanted, strict=True):
        assert_close(mine, theirs, function.__name__)
    for mine, theirs in zip(run_xla(function_text(program.region), arrays), wanted, strict=True):
        assert_close(mine, theirs, function.__name__)
