"""JAX programs that the front end must read: (function, argument arrays), by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def sharded(*spec: Any, **options: Any) -> NamedSharding:
    return NamedSharding(mesh(), P(*spec, **options))


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def mlp(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w) @ v


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bshd,bthd->bhst", q, k) / 4
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def layer(p: dict[str, Any], x: Any) -> Any:
    h = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    q, k, v = (h @ p[n] for n in "qkv")
    h = x + jax.nn.softmax(q @ k.T / 4) @ v
    return h + jax.nn.silu(h @ p["up"]) @ p["down"]


LAYER = {n: random(16, 16, seed=i, scale=0.2) for i, n in enumerate("qkv")}
LAYER |= {"up": random(16, 32, seed=4, scale=0.2), "down": random(32, 16, seed=5, scale=0.2)}


def scan(x: Any, ws: Any) -> Any:
    def body(carry: Any, w: Any) -> Any:
        carry = jnp.tanh(lax.with_sharding_constraint(carry @ w, sharded("x", "y")))
        return carry, carry.sum()

    return lax.scan(body, x, ws)


def power_iteration(a: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        i, v, _ = state
        new = a @ v
        new = new / jnp.linalg.norm(new)
        return i + 1, new, jnp.abs(new - v).max()

    return lax.while_loop(lambda s: (s[2] > 1e-3) & (s[0] < 50), body, (0, x, jnp.float32(1)))


def branches(x: Any, i: Any) -> Any:
    y = lax.cond(x[0] > 0, lambda v: v + x.sum(), lambda v: v * 2, x)
    return lax.switch(i, [jnp.sin, jnp.cos, lambda v: v - y], x)


def reductions(x: Any) -> Any:
    return (x.argmax(1), x.argmin(), x.max(0), jnp.cumsum(x, 0), jnp.any(x > 2, 1), jnp.prod(x, 1),
            jnp.logaddexp.reduce(x, 1), jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 3),
            x.astype(jnp.bfloat16).sum(0))  # fmt: skip


def pooling(x: Any) -> Any:
    window, strides = (1, 2, 2, 1), (1, 2, 2, 1)
    top = lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")
    total = lax.reduce_window(x, 1.0, lax.add, window, strides, "VALID")
    return top, total, jax.grad(lambda a: lax.reduce_window(a, -jnp.inf, lax.max, window, strides, "VALID").sum())(x)


def convolution(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def embedding(table: Any, ids: Any) -> Any:
    return jax.grad(lambda t: (t[ids] ** 2).sum())(table), table[ids], table.at[ids, 0].max(3.0)


def moves(x: Any) -> Any:
    y = jnp.roll(x, 3, 0).at[2:5, 1].set(7.0)
    y = lax.dynamic_update_slice(y, x[:2, :2], (x[0, 0].astype(int), 1))
    return jnp.pad(y, ((1, 2), (0, 1)), constant_values=5)[::2, ::-1], jnp.flip(x), jnp.concatenate([x, y]).T


def casts(x: Any) -> Any:
    i = (x * 10).astype(jnp.int8)
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return i, i.astype(jnp.uint8) >> 1, bits, x > 0, jnp.isfinite(x), x.astype(complex)


def fourier(x: Any) -> Any:
    return jnp.fft.rfft(x), jnp.fft.ifft(jnp.fft.fft(x, axis=0), axis=0)


def solve(a: Any, b: Any) -> Any:
    spd = a @ a.T + 8 * jnp.eye(a.shape[0])
    return jnp.linalg.cholesky(spd), jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(spd), b, lower=True)


def remat(p: dict[str, Any], x: Any) -> Any:
    return jax.grad(lambda q: jax.checkpoint(layer)(q, x).sum())(p)


def local_square(x: Any) -> Any:
    return jax.shard_map(lambda v: v * v + 1, mesh=mesh(), in_specs=P("x", "y"), out_specs=P("x", "y"))(x)


def constants(x: Any) -> Any:
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    return x @ table, jnp.array([True, False, True]), jnp.arange(5, dtype=jnp.bfloat16), jnp.full((3,), jnp.nan)


X = random(8, 16)
PROGRAMS: dict[str, Case] = {
    "mlp": (mlp, (X, random(16, 32, seed=1), random(32, 16, seed=2))),
    "attention": (attention, tuple(random(2, 8, 4, 16, seed=i) for i in range(3))),
    "layer_gradient": (jax.grad(lambda p, x: layer(p, x).sum()), (LAYER, X)),
    "scan": (scan, (X, random(3, 16, 16, seed=1, scale=0.3))),
    "while": (power_iteration, (random(8, 8) @ random(8, 8).T, random(8, seed=3))),
    "branches": (branches, (random(8), np.int32(2))),
    "reductions": (reductions, (X,)),
    "pooling": (pooling, (random(2, 8, 8, 3),)),
    "convolution": (convolution, (random(2, 8, 8, 3), random(3, 3, 3, 4, seed=1))),
    "embedding": (embedding, (X, np.array([3, 1, 3, 0], np.int32))),
    "moves": (moves, (X,)),
    "casts": (casts, (X,)),
    "fft": (fourier, (X,)),
    "solve": (solve, (random(8, 8), random(8, 4, seed=1))),
    "remat": (remat, (LAYER, X)),
    "shard_map": (local_square, (X,)),
    "random": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (16,)), (np.array([1, 2], np.uint32),)),
    "constants": (constants, (random(3, 4),)),
}
