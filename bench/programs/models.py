"""Attention, transformer layers and training steps, in the shardings that people use for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram
from bench.programs.matmul import mlp

_define = partial(BenchProgram.define, family="dense")


def attention_core(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention of ``[batch, sequence, heads, features]``."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def attention(heads: int) -> Callable[..., Array]:
    """Attention with its four projections on ``[batch, sequence, features]``."""

    def apply(x: Array, wq: Array, wk: Array, wv: Array, wo: Array) -> Array:
        batch, sequence, features = x.shape
        q, k, v = ((x @ w).reshape(batch, sequence, heads, features // heads) for w in (wq, wk, wv))
        return attention_core(q, k, v).reshape(batch, sequence, features) @ wo

    return apply


def block(heads: int) -> Callable[..., Array]:
    """Attention and an MLP, each with its residual."""
    attend = attention(heads)

    def apply(x: Array, *weights: Array) -> Array:
        x = x + attend(x, *weights[:4])
        return x + mlp(x, *weights[4:])

    return apply


def _normalize(x: Array, scale: Array) -> Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def transformer(layers: int, heads: int) -> Callable[..., Array]:
    """Layers with normalisation before attention and MLP; 8 weights a layer."""
    attend = attention(heads)

    def apply(x: Array, *weights: Array) -> Array:
        for i in range(layers):
            scale, wq, wk, wv, wo, scale2, up, down = weights[8 * i : 8 * i + 8]
            x = x + attend(_normalize(x, scale), wq, wk, wv, wo)
            x = x + mlp(_normalize(x, scale2), up, down)
        return x

    return apply


def transformer_weights(layers: int, features: int, hidden: int) -> tuple[str, ...]:
    """The weights of ``transformer``, sharded both ways: input projections x y, output projections y x."""
    square, inner, outer = f"{features}x{features}", f"{features}x{hidden}", f"{hidden}x{features}"
    attend = (f"{features}: -", *(f"{square}: x y",) * 3, f"{square}: y x")
    return (*attend, f"{features}: -", f"{inner}: x y", f"{outer}: y x") * layers


def gradients(function: Callable[..., Array], weights: int) -> Callable[..., Any]:
    """Gradients of the mean square of ``function(x, *weights)`` against a target: takes weights, x and target."""

    def apply(*arguments: Array) -> Any:
        x, target = arguments[weights:]

        def loss(held: tuple[Array, ...]) -> Array:
            return jnp.mean((function(x, *held) - target) ** 2)

        return jax.grad(loss)(arguments[:weights])

    return apply


def weight_gradients(function: Callable[..., Array]) -> Callable[..., Any]:
    """Gradients of the mean square of ``function(x, *weights)`` for all weights: takes x and weights."""

    def apply(x: Array, *weights: Array) -> Any:
        return jax.grad(lambda held: jnp.mean(function(x, *held) ** 2))(weights)

    return apply


def _scanned(x: Array, up: Array, down: Array) -> Array:
    """As many MLP layers as the weights are stacked, in a loop."""

    def step(value: Array, weights: tuple[Array, Array]) -> tuple[Array, None]:
        return value + mlp(value, *weights), None

    return lax.scan(step, x, (up, down))[0]


def _tables() -> Sequence[BenchProgram]:
    heads = 8
    projections = (*("512x512: - y",) * 3, "512x512: y -")
    dense = ("512x2048: - y", "2048x512: y -")
    qkv = ("2x1024x8x64: - x - -",) * 3
    data = ("1024x512: x -",) * 2
    replicated = ("512x2048: - -", "2048x512: - -")
    rowwise = ("512x2048: x -", "2048x512: x -")
    train = gradients(mlp, 2)
    one, two = transformer(1, 4), transformer(2, 4)
    one_layer, two_layers = (transformer_weights(n, 256, 1024) for n in (1, 2))
    like_weights = tuple(weight.partition(": ")[2] for weight in two_layers)
    tokens = "8x128x256: x - -"
    stacked = ("4x512x1024: - - y", "4x1024x512: - y -")
    stacked_rowwise = ("4x512x1024: - x -", "4x1024x512: - x -")
    rows: list[tuple[str, str, Sequence[str], Callable[..., Any], Any, dict[str, Any]]] = [
        ("attention, heads sharded, out x", "4x2", ("4x256x512: x - -", *projections), attention(heads), "x - -",
         {"control": True}),
        ("attention, sequence parallel", "4x2", ("4x256x512: x y -", *projections), attention(heads), "x y -", {}),
        ("attention, features sharded", "4x2", ("4x256x512: x - y", *projections), attention(heads), "x - y", {}),
        ("attention core, sequence sharded", "8", qkv, attention_core, "- x - -", {}),
        ("attention and MLP, out x", "4x2", ("4x256x512: x - -", *projections, *dense), block(heads), "x - -",
         {"control": True}),
        ("MLP training, data parallel", "8", (*replicated, *data), train, ("- -",) * 2, {"control": True}),
        ("MLP training, FSDP", "8", (*rowwise, *data), train, ("x -",) * 2, {}),
        ("MLP training, sharded gradients", "8", (*replicated, *data), train, ("x -",) * 2, {"origin": "ZeRO-1"}),
        ("transformer, 1 layer", "4x2", (tokens, *one_layer), one, "x - -", {}),
        ("transformer training, 2 layers", "4x2", (tokens, *two_layers), weight_gradients(two), like_weights, {}),
        ("scan of 4 layers, tensor parallel", "4x2", ("256x512: x -", *stacked), _scanned, "x -", {}),
        ("scan of 4 layers, FSDP", "8", ("64x512: x -", *stacked_rowwise), _scanned, "x -", {}),
    ]  # fmt: skip
    return [
        _define(name, mesh=mesh, arguments=arguments, function=function, out=out, **more)
        for name, mesh, arguments, function, out, more in rows
    ]


PROGRAMS: tuple[BenchProgram, ...] = tuple(_tables())
