"""Programs as users of JAX write them: what training, decoding and preprocessing do with sharded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.programs import BenchProgram

Array = jax.Array


def fsdp_step(x: Array, target: Array, up: Array, down: Array) -> tuple[Array, Array]:
    """A step of gradient descent of an MLP whose weights are sharded like the batch."""

    def loss(weights: tuple[Array, Array]) -> Array:
        return jnp.mean((jax.nn.gelu(x @ weights[0]) @ weights[1] - target) ** 2)

    gradients = jax.grad(loss)((up, down))
    return up - 0.1 * gradients[0], down - 0.1 * gradients[1]


def sequence_attention(x: Array, q: Array, k: Array, v: Array, o: Array) -> Array:
    """Attention of eight heads on a sequence that is sharded."""
    heads = [(x @ w).reshape(*x.shape[:2], 8, -1) for w in (q, k, v)]
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) / heads[0].shape[-1] ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads[2])
    return x + mixed.reshape(x.shape) @ o


def tied_embedding(table: Array, tokens: Array, up: Array, down: Array) -> Array:
    """Logits by the table that also embeds the tokens."""
    x = table[tokens]
    x = x + jax.nn.gelu(x @ up) @ down
    return jnp.einsum("btd,vd->btv", x, table)


def cross_entropy(x: Array, table: Array, labels: Array) -> Array:
    """The loss of a vocabulary that is sharded."""
    logits = x @ table
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0])


def greedy_decoding(x: Array, table: Array) -> Array:
    """The next token: where the logits are largest along a sharded vocabulary."""
    return jnp.argmax(x @ table, axis=-1)


def largest_of_shards(x: Array) -> tuple[Array, Array]:
    """The largest element of each column, and its row."""
    return jnp.max(x, axis=0), jnp.argmin(x, axis=0)


def rolls(x: Array) -> Array:
    """Differences of a periodic field along both of its dimensions."""
    return 4 * x - jnp.roll(x, 1, 0) - jnp.roll(x, -1, 0) - jnp.roll(x, 1, 1) - jnp.roll(x, -1, 1)


def causal_convolution(x: Array, taps: Array) -> Array:
    """A sequence that is sharded, convolved with four taps of what came before."""
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return sum((padded[:, i : i + x.shape[1]] * taps[i] for i in range(4)), jnp.zeros_like(x))


def layer_norm_stack(x: Array, up: Array, down: Array) -> Array:
    """Two normalised layers whose features are sharded."""
    for _ in range(2):
        centred = x - x.mean(-1, keepdims=True)
        normal = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        x = x + jax.nn.relu(normal @ up) @ down
    return x


def conjugate_gradients(a: Array, b: Array) -> Array:
    """Four iterations on the normal equations of a system whose rows are sharded."""
    x = jnp.zeros_like(b)
    r = p = b
    for _ in range(4):
        ap = p + a.T @ (a @ p)
        alpha = jnp.vdot(r, r) / jnp.vdot(p, ap)
        x, new = x + alpha * p, r - alpha * ap
        p = new + jnp.vdot(new, new) / jnp.vdot(r, r) * p
        r = new
    return x


def staged(x: Array, weights: Array) -> Array:
    """Stages of a pipeline, one a device, shifted by one each turn."""
    stages = weights.shape[0]
    state = jnp.zeros((stages, *x.shape[1:]), x.dtype)
    for turn in range(x.shape[0]):
        state = jnp.roll(state, 1, axis=0).at[0].set(x[turn])
        state = jax.nn.tanh(jnp.einsum("sbd,sdf->sbf", state, weights))
    return state


def standardised(x: Array, w: Array) -> tuple[Array, Array]:
    """A batch in units of its own spread, and its products."""
    normal = (x - x.mean(0)) / (x.std(0) + 1e-6)
    return normal.T @ normal / x.shape[0], normal @ w


def _tables() -> Sequence[BenchProgram]:
    rows: list[tuple[str, str, Sequence[str], Any, Any]] = [
        ("FSDP step of an MLP", "8", ("1024x256: x -",) * 2 + ("256x1024: x -", "1024x256: x -"), fsdp_step,
         ("x -", "x -")),
        ("attention, sequence sharded", "8", ("4x256x128: - x -", *("128x128: - -",) * 4), sequence_attention, "- x -"),
        ("tied embedding", "4x2", ("4096x128: y -", "int32 16x64: x -", "128x512: - y", "512x128: y -"),
         tied_embedding, "x - y"),
        ("cross entropy, sharded vocabulary", "4x2", ("512x128: x -", "128x4096: - y", "int32 512: x"), cross_entropy,
         ""),
        ("greedy decoding", "8", ("64x128: - -", "128x32768: - x"), greedy_decoding, "-"),
        ("largest of shards", "8", ("65536x16: x -",), largest_of_shards, ("-", "-")),
        ("rolls", "4x2", ("1024x1024: x y",), rolls, "x y"),
        ("causal convolution", "8", ("8x4096x64: - x -", "4x64: - -"), causal_convolution, "- x -"),
        ("layer norm, features sharded", "4x2", ("512x256: x y", "256x1024: y -", "1024x256: - y"), layer_norm_stack,
         "x y"),
        ("conjugate gradients", "8", ("512x512: x -", "512: x"), conjugate_gradients, "x"),
        ("stages of a pipeline", "8", ("6x256x256: - - -", "8x256x256: x - -"), staged, "x - -"),
        ("standardised batch", "8", ("8192x64: x -", "64x32: - -"), standardised, ("- -", "x -")),
    ]  # fmt: skip
    return [BenchProgram.define(name, "users", mesh, arguments, function, out, rounding=True)
            for name, mesh, arguments, function, out in rows]


PROGRAMS: tuple[BenchProgram, ...] = tuple(_tables())
