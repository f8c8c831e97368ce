"""Attention, steps of training transformers as they are trained, mixtures of experts, and decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, carried, f32, i32
from bench.programs.choices.dense import mlp
from bench.programs.seconds import decode
from bench.programs.training import adam_step, gated_layer, mixture


def normalized(x: Array) -> Array:
    """The activations with mean 0 and variance 1."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(x: Array, wqkv: Array, wo: Array, heads: int) -> Array:
    """Self-attention of a batch of sequences."""
    b, t, d = x.shape
    q, k, v = jnp.split((x @ wqkv).reshape(b, t, heads, 3 * d // heads), 3, axis=-1)
    a = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 8.0)
    return jnp.einsum("bhts,bshd->bthd", a, v).reshape(b, t, d) @ wo


def block(heads: int, x: Array, *w: Array) -> Array:
    """A layer of a transformer: 4 weights."""
    x = x + attention(normalized(x), w[0], w[1], heads)
    return x + mlp(normalized(x), w[2], w[3])


def layers_step(heads: int, weights: Sequence[Sequence[Array]], x: Array, t: Array) -> Any:
    """A step of training a transformer."""
    def loss(weights: Sequence[Sequence[Array]]) -> Array:
        h = x
        for w in weights:
            h = block(heads, h, *w)
        return jnp.mean((h - t) ** 2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def flat(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose results are one list."""
    return lambda *arguments: jax.tree.leaves(step(*arguments))


def two_experts(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """Every token through the two experts with the largest gates, by one-hot products (GShard)."""
    batch, time, width = x.shape
    tokens, count = x.reshape(-1, width), gate.shape[1]
    capacity = 2 * len(tokens) // count
    scores, chosen = jax.lax.top_k(jax.nn.softmax(tokens @ gate, -1), 2)
    mask = jax.nn.one_hot(chosen, count)
    place = jnp.cumsum(mask.reshape(-1, count), 0).reshape(mask.shape) * mask - 1
    slots = jax.nn.one_hot(place, capacity) * mask[..., None]
    inputs = jnp.einsum("tkec,td->ecd", slots, tokens)
    outputs = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inputs, up)), down)
    return jnp.einsum("tkec,tk,ecd->td", slots, scores, outputs).reshape(x.shape)


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    t, d, f, heads = sizes.time, sizes.width, sizes.hidden, sizes.heads
    x = f32(8, t, d)
    weights = [f32(d, 3 * d), f32(d, d), f32(d, f), f32(f, d)]
    tensor = (P(None, "y"), P("y"), P(None, "y"), P("y"))
    both = (P("x", "y"), P("y", "x"), P("x", "y"), P("y", "x"))
    ways = {"DP": ((P(),) * 4, P(ALL)), "FSDP": ((P(ALL),) * 4, P(ALL)),
            "TP": ((P(None, ALL), P(ALL)) * 2, P()), "DP+TP": (tensor, P("x")), "FSDP+TP": (both, P("x")),
            "DP+TP+SP": (tensor, P("x", "y"))}

    def transformer(layers: int) -> Open:
        def step(*args: Array) -> Any:
            grouped = [args[4 * k : 4 * k + 4] for k in range(layers)]
            return layers_step(heads, grouped, *args[-2:])

        return Open(f"transformer of {layers}", flat(step), (*weights * layers, x, x),
                    {k: (*w * layers, at, at) for k, (w, at) in ways.items()}, carried(4 * layers), False)

    adam = {k: (at, at, *w * 3) for k, (w, at) in ways.items()} | {
        "ZeRO-1": (P(ALL), P(ALL), *(P(),) * 4, *(P(ALL),) * 8)}
    return [
        Open("attention", lambda x, wqkv, wo: attention(x, wqkv, wo, heads), (x, *weights[:2]),
             {k: (at, *w[:2]) for k, (w, at) in ways.items()}),
        *map(transformer, (1, 2, 4, 24)),
        Open("transformer with Adam", flat(adam_step(lambda x, *w: block(heads, x, *w))), (x, x, *weights * 3), adam,
             carried(12, first=2), False),
        _decoder(x, d, f, heads),
        *_experts(x, d, f),
        _decoding(t, d),
    ]


def _decoder(x: jax.ShapeDtypeStruct, d: int, f: int, heads: int) -> Open:
    """A layer as in Llama, forward: root mean squares, grouped heads, gated units."""
    scale, squares = f32(d), (f32(d, d), f32(d, d // 4), f32(d, d // 4), f32(d, d))
    weights = (scale, *squares, scale, f32(d, f), f32(d, f), f32(f, d))
    tensor = (P(), *(P(None, "y"),) * 3, P("y"), P(), P(None, "y"), P(None, "y"), P("y"))
    rows = (P(), *(P(ALL),) * 4, P(), *(P(ALL),) * 3)
    return Open("decoder layer", gated_layer(heads, heads // 4), (x, *weights),
                {"DP": (P(ALL), *(P(),) * 9), "FSDP": (P(ALL), *rows), "DP+TP": (P("x"), *tensor),
                 "DP+TP+SP": (P("x", "y"), *tensor)}, small=False)


def _experts(x: jax.ShapeDtypeStruct, d: int, f: int) -> list[Open]:
    arguments = (x, f32(d, 8), f32(8, d, f), f32(8, f, d))
    ways = {"DP": (P(ALL), P(), P(), P()), "EP": (P(ALL), P(), P(ALL), P(ALL)),
            "EP+DP": (P(ALL), P(), P("x"), P("x")), "EP+TP": (P("x"), P(), P("x", None, "y"), P("x", "y"))}
    tokens = x.shape[0] * x.shape[1]
    return [Open("mixture of experts", mixture(8, 2 * tokens // 8), arguments, ways, small=False),
            Open("mixture of two experts a token", two_experts, arguments, ways, small=False)]


def _decoding(t: int, d: int) -> Open:
    cache, w = f32(32, 4 * t, d // 64, 64), f32(d, d)
    return Open("decoding", decode, (cache, cache, f32(32, d), w, w, w, i32()),
                {"DP": (P(ALL), P(ALL), P(ALL), P(), P(), P(), P()),
                 "heads": (P(None, None, ALL), P(None, None, ALL), P(), *(P(None, ALL),) * 3, P()),
                 "DP + heads": (P("x", None, "y"), P("x", None, "y"), P("x"), *(P(None, "y"),) * 3, P())},
                {0: 1, 1: 2}, False)
