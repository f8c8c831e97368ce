"""The rules of the ops that JAX emits, in programs as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.shardy.differential import assert_agrees

X = np.ones((8, 16), np.float32)
IMAGE, KERNEL = np.ones((2, 9, 8, 4), np.float32), np.ones((3, 3, 2, 6), np.float32)
INDICES = np.arange(6, dtype=np.int32).reshape(2, 3)


def attention(x: Any) -> Any:
    q = (x[None] @ jnp.ones((16, 32))).reshape(1, 8, 4, 8)
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, q), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", scores, q).reshape(1, 8, 32)


def convolved(x: Any, k: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=layout, feature_group_count=2)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 1, 1), "VALID")


def looped(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        total, table = carry
        return (total + row, lax.dynamic_update_slice(table, row[None] * total, (0, 0))), jnp.cumsum(row)

    return lax.scan(step, (x[0], x), x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention, (X,)),
    "attention's gradient": (jax.grad(lambda x: attention(x).sum()), (X,)),
    "convolution": (convolved, (IMAGE, KERNEL)),
    "convolution's gradients": (jax.grad(lambda x, k: convolved(x, k).sum(), (0, 1)), (IMAGE, KERNEL)),
    "embedding": (lambda x, i: x[i], (X, INDICES)),
    "embedding's gradient": (jax.grad(lambda x, i: (x[i] ** 2).sum()), (X, INDICES)),
    "scatters": (lambda x, i: (x.at[i].set(0), x.at[i, i].max(1), x.at[:, i[0]].add(2)), (X, INDICES)),
    "sorting": (lambda x: (jnp.sort(x), jnp.argsort(x, axis=0), lax.top_k(x, 3), jnp.median(x)), (X,)),
    "loops": (looped, (X,)),
    "rolled, padded, flipped": (
        lambda x: (jnp.roll(x, 3, 0), jnp.pad(x, ((1, 2), (0, 0)), mode="wrap"), x[::-1, ::2], jnp.diff(x)), (X,)),
    "joined and reshaped": (
        lambda x: (jnp.concatenate([x, x[:3]]), jnp.repeat(x, 3, 1).reshape(6, -1), jnp.stack([x, x]).T), (X,)),
    "linear algebra": (
        lambda a: [f(a) for f in (jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd)],
        (np.stack([np.eye(4, dtype=np.float32)] * 3),)),
    "transforms": (lambda x: (jnp.fft.fft(x), jnp.fft.irfft(x, axis=0), jnp.fft.fft2(x)), (X,)),
    "random numbers": (lambda k: (jax.random.normal(k, (8, 4)), jax.random.permutation(k, 8)), (jax.random.key(0),)),
    "bits": (lambda x: (lax.bitcast_convert_type(x, jnp.int8), jnp.isnan(x), jnp.where(x.sum() > 0, x, -x)), (X,)),
    "approximate top": (lambda x: lax.approx_max_k(x, 3), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_of_programs_from_jax_are_shardys(name: str) -> None:
    function, arguments = PROGRAMS[name]
    text = jax.jit(function).lower(*arguments).as_text()
    for option in ("", "{conservative-propagation=true}"):
        assert_agrees(text, f"populate-op-sharding-rules{option}")
