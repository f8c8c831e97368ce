"""Training steps and blocks of large models, in the shardings that people train them with.

``PROGRAMS`` is the fixed table, ``variants`` draws sizes, meshes and shardings of the same kinds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from bench.programs import BenchProgram
from bench.programs.matmul import mlp

Weights = tuple[Array, ...]

_define = partial(BenchProgram.define, family="training", own_inputs=True)

#: Weights of `gated_layer`: what they are between, as letters of `sizes`.
_GATED = ("d", "dq", "dk", "dk", "qd", "d", "df", "df", "fd")
#: How the weights of `gated_layer` are sharded: over all devices both ways, Megatron's way, or by rows (FSDP).
STYLES: dict[str, tuple[str, ...]] = {
    "2-D": ("-", "x y", "x y", "x y", "y x", "-", "x y", "x y", "y x"),
    "Megatron": ("-", "- y", "- y", "- y", "y -", "-", "- y", "- y", "y -"),
    "FSDP": ("-", "x -", "x -", "x -", "x -", "-", "x -", "x -", "x -"),
    "FSDP and Megatron": ("-", "x y", "x y", "x y", "y x", "-", "x y", "x y", "y x"),
}


def root_mean_square(x: Array, scale: Array) -> Array:
    """The activations divided by their root mean square."""
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def grouped_attention(heads: int, groups: int) -> Callable[..., Array]:
    """Causal attention in which several query heads share one key and value head."""

    def apply(x: Array, wq: Array, wk: Array, wv: Array, wo: Array) -> Array:
        batch, sequence, _ = x.shape
        features = wq.shape[1] // heads
        q = (x @ wq).reshape(batch, sequence, groups, heads // groups, features)
        k, v = ((x @ w).reshape(batch, sequence, groups, features) for w in (wk, wv))
        scores = jnp.einsum("bqghd,bkgd->bghqk", q, k) / math.sqrt(features)
        causal = jnp.tril(jnp.ones((sequence, sequence), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1)
        return jnp.einsum("bghqk,bkgd->bqghd", weights, v).reshape(batch, sequence, -1) @ wo

    return apply


def gated_layer(heads: int, groups: int) -> Callable[..., Array]:
    """A layer of a modern decoder: 9 weights."""
    attend = grouped_attention(heads, groups)

    def apply(x: Array, *w: Array) -> Array:
        x = x + attend(root_mean_square(x, w[0]), *w[1:5])
        h = root_mean_square(x, w[5])
        return x + (jax.nn.silu(h @ w[6]) * (h @ w[7])) @ w[8]

    return apply


def gated_weights(style: str, layers: int, d: int, q: int, k: int, f: int) -> tuple[str, ...]:
    """The weights of so many layers: width d, all query heads q, all key heads k, MLP f."""
    sizes = {"d": d, "q": q, "k": k, "f": f}
    shapes = ("x".join(str(sizes[letter]) for letter in letters) for letters in _GATED)
    return tuple(f"{shape}: {spec}" for shape, spec in zip(shapes, STYLES[style], strict=True)) * layers


def stacked(layer: Callable[..., Array], weights: int) -> Callable[..., Array]:
    """Layers one after the other, unrolled."""

    def apply(x: Array, *w: Array) -> Array:
        for i in range(0, len(w), weights):
            x = layer(x, *w[i : i + weights])
        return x

    return apply


def _as_is(arrays: Weights) -> Weights:
    return arrays


def momentum_step(
    function: Callable[..., Array],
    rate: float = 1e-2,
    whole: Callable[[Weights], Weights] = _as_is,
    summed: Callable[[Weights], Weights] = _as_is,
) -> Callable[..., Any]:
    """One step of momentum on the mean square error: takes x, target, weights, and as many momenta.

    Code for one device says how it comes by ``whole`` weights, and how gradients of its examples are ``summed``.
    """

    def apply(x: Array, target: Array, *state: Array) -> Any:
        weights, momenta = state[: len(state) // 2], state[len(state) // 2 :]
        loss = _squared_error(function, x, target)
        gradients = summed(jax.grad(loss)(whole(weights)))
        momenta = tuple(0.9 * m + g for m, g in zip(momenta, gradients, strict=True))
        return tuple(w - rate * m for w, m in zip(weights, momenta, strict=True)), momenta

    return apply


def adam_step(
    function: Callable[..., Array],
    rate: float = 1e-3,
    whole: Callable[[Weights], Weights] = _as_is,
    summed: Callable[[Weights], Weights] = _as_is,
) -> Callable[..., Any]:
    """One step of Adam on the mean square error: takes x, target, weights, first moments, roots of the second ones.

    ``whole`` and ``summed`` are as those of `momentum_step`.
    """

    def apply(x: Array, target: Array, *state: Array) -> Any:
        n = len(state) // 3
        weights, first, roots = state[:n], state[n : 2 * n], state[2 * n :]
        loss = _squared_error(function, x, target)
        gradients = summed(jax.grad(loss)(whole(weights)))
        first = tuple(0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True))
        roots = tuple(jnp.sqrt(0.99 * r * r + 0.01 * g * g) for r, g in zip(roots, gradients, strict=True))
        moved = (w - rate * m / (r + 1e-3) for w, m, r in zip(weights, first, roots, strict=True))
        return tuple(moved), first, roots

    return apply


def _squared_error(function: Callable[..., Array], x: Array, target: Array) -> Callable[[Weights], Array]:
    return lambda held: jnp.mean((function(x, *held) - target) ** 2)


def mixture(experts: int, capacity: int) -> Callable[..., Array]:
    """Experts chosen per token by the largest gate, dispatched by one-hot products (as in GShard)."""

    def apply(x: Array, gate: Array, up: Array, down: Array) -> Array:
        batch, sequence, width = x.shape
        tokens = x.reshape(batch * sequence, width)
        scores = jax.nn.softmax(tokens @ gate, -1)
        chosen = jax.nn.one_hot(jnp.argmax(scores, -1), experts, dtype=x.dtype)
        place = jnp.cumsum(chosen, 0) * chosen - 1
        slots = jax.nn.one_hot(place, capacity, dtype=x.dtype) * chosen[..., None]
        inputs = jnp.einsum("tec,td->ecd", slots, tokens)
        outputs = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inputs, up)), down)
        weighted = slots * jnp.sum(scores * chosen, -1)[:, None, None]
        return jnp.einsum("tec,ecd->td", weighted, outputs).reshape(batch, sequence, width)

    return apply


def sequence_parallel(layer: Callable[..., Array], spec: PartitionSpec) -> Callable[..., Array]:
    """A layer between which the activations are sharded along the sequence."""

    def apply(x: Array, *w: Array) -> Array:
        x = lax.with_sharding_constraint(x, spec)
        return lax.with_sharding_constraint(layer(x, *w), spec)

    return apply


def scanned(layer: Callable[..., Array]) -> Callable[..., Array]:
    """As many layers as the weights are stacked, in a loop."""

    def apply(x: Array, *w: Array) -> Array:
        return lax.scan(lambda value, held: (layer(value, *held), None), x, w)[0]

    return apply


def pipelined(stages: int, microbatches: int) -> Callable[..., Array]:
    """Stages as a stacked dimension through which microbatches move by one every tick (as in GSPMD, section 3.3)."""

    def apply(x: Array, up: Array, down: Array) -> Array:
        size = x.shape[0] // microbatches
        empty = jnp.zeros((stages - 1, size, x.shape[1]), x.dtype)
        batches = jnp.concatenate([x.reshape(microbatches, size, -1), empty])

        def tick(state: Array, batch: Array) -> tuple[Array, Array]:
            state = jnp.roll(state, 1, 0).at[0].set(batch)
            state = state + jnp.einsum("sbf,sfd->sbd", jax.nn.relu(jnp.einsum("sbd,sdf->sbf", state, up)), down)
            return state, state[-1]

        return lax.scan(tick, jnp.zeros((stages, size, x.shape[1]), x.dtype), batches)[1][stages - 1 :]

    return apply


def _specs(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(argument.partition(": ")[2] for argument in arguments)


def _with_layers(scanned_layers: int, weights: Sequence[str]) -> tuple[str, ...]:
    """Weights stacked: one more dimension in front, held whole."""
    return tuple(f"{scanned_layers}x{w.replace(': ', ': - ')}" for w in weights)


def _tables() -> Sequence[BenchProgram]:
    tokens, whole = "8x128x256: x - -", "8x128x256: - - -"
    layer = gated_layer(8, 2)
    one = {style: gated_weights(style, 1, 256, 256, 64, 512) for style in STYLES}
    two = {style: gated_weights(style, 2, 256, 256, 64, 512) for style in STYLES}
    experts = ("256x8: - -", "8x256x512: y - -", "8x512x256: y - -")
    data = ("1024x512: x -",) * 2
    large = ("8192x128: x -",) * 2
    rowwise, thin = ("512x2048: x -", "2048x512: x -"), ("128x512: x -", "512x128: x -")
    rows: list[tuple[str, str, Sequence[str], Callable[..., Any], Any, dict[str, Any]]] = [
        ("GQA block, Megatron", "4x2", (tokens, *one["Megatron"]), layer, "x - -", {}),
        ("GQA block, 2-D weights", "4x2", (tokens, *one["2-D"]), layer, "x - -", {}),
        ("GQA block, sequence parallel", "4x2", ("8x128x256: x y -", *one["Megatron"]),
         sequence_parallel(layer, PartitionSpec("x", "y", None)), "x y -", {}),
        ("GQA block, FSDP", "8", (tokens, *one["FSDP"]), layer, "x - -", {}),
        ("GQA training, 1 layer, FSDP", "8", (tokens, tokens, *one["FSDP"] * 2),
         momentum_step(layer), (_specs(one["FSDP"]),) * 2, {}),
        ("GQA training, 2 layers, 2-D", "4x2", (tokens, tokens, *two["2-D"] * 2),
         momentum_step(stacked(layer, 9)), (_specs(two["2-D"]),) * 2, {}),
        ("GQA training, 2 layers, Megatron", "4x2", (tokens, tokens, *two["Megatron"] * 2),
         momentum_step(stacked(layer, 9)), (_specs(two["Megatron"]),) * 2, {}),
        ("mixture of experts", "4x2", (tokens, *experts), mixture(8, 256), "x - -", {}),
        ("mixture of experts, one axis", "8",
         ("8x128x256: x - -", "256x8: - -", "8x256x512: x - -", "8x512x256: x - -"), mixture(8, 256), "x - -", {}),
        ("MLP step, Adam, ZeRO-3", "8", (*data, *rowwise * 3), adam_step(mlp), (_specs(rowwise),) * 3, {}),
        ("MLP step, momentum, FSDP, large batch", "8", (*large, *thin * 2), momentum_step(mlp),
         (_specs(thin),) * 2, {}),
        ("scan of 6 GQA layers, Megatron", "4x2", (tokens, *_with_layers(6, one["Megatron"])), scanned(layer),
         "x - -", {}),
        ("scan of 6 GQA layers, FSDP", "8", (tokens, *_with_layers(6, one["FSDP"])), scanned(layer), "x - -", {}),
        ("pipeline of 8 stages", "8", ("64x128: - -", "8x128x256: x - -", "8x256x128: x - -"), pipelined(8, 4),
         "- - -", {}),
        ("GQA block, replicated activations", "4x2", (whole, *one["2-D"]), layer, "- - -", {}),
    ]  # fmt: skip
    return [
        _define(name, mesh=mesh, arguments=arguments, function=function, out=out, **more)
        for name, mesh, arguments, function, out, more in rows
    ]


PROGRAMS: tuple[BenchProgram, ...] = tuple(_tables())


def variants(seed: int, count: int) -> list[BenchProgram]:
    """Programs drawn by a seed: blocks and steps of random widths, styles and meshes."""
    random_ = random.Random(f"training {seed}")
    return [_variant(random_, f"variant {seed}.{i}") for i in range(count)]


def _variant(random_: random.Random, name: str) -> BenchProgram:
    style = random_.choice(list(STYLES))
    mesh = random_.choice(["8", "4"]) if style == "FSDP" else random_.choice(["4x2", "2x4", "2x2"])
    heads, groups, features = random_.choice([(4, 2, 16), (8, 4, 8), (8, 8, 16)])
    d = random_.choice([64, 128, 256])
    sizes = (d, heads * features, groups * features, random_.choice([2, 4]) * d)
    batch, sequence = random_.choice([8, 16]), random_.choice([32, 64, 96])
    layer = gated_layer(heads, groups)
    tokens = f"{batch}x{sequence}x{d}: {random_.choice(['x - -', '- - -', 'x - -'])}"
    weights = gated_weights(style, 1, *sizes)
    kind = random_.choice(["block", "step", "scan"])
    if kind == "block":
        arguments: tuple[str, ...] = (tokens, *weights)
        function: Callable[..., Any] = layer
        out: Any = _specs((tokens,))[0]
    elif kind == "step":
        arguments, function, out = (tokens, tokens, *weights * 2), momentum_step(layer), (_specs(weights),) * 2
    else:
        arguments, function, out = (tokens, *_with_layers(4, weights)), scanned(layer), _specs((tokens,))[0]
    title = f"{name}: {kind}, {style}, {batch}x{sequence}x{d} on {mesh}"
    return _define(title, mesh=mesh, arguments=arguments, function=function, out=out)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """The activations with their mean taken off, divided by their standard deviation."""
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * scale + shift


def classic_layer(heads: int) -> Callable[..., Array]:
    """A layer of the first decoders, biases everywhere: 13 weights."""
    attend = grouped_attention(heads, heads)

    def apply(x: Array, *w: Array) -> Array:
        (s1, t1, wq, wk, wv, wo, bo, s2, t2, up, bu, down, bd) = w
        x = x + attend(layer_norm(x, s1, t1), wq, wk, wv, wo) + bo
        return x + jax.nn.gelu(layer_norm(x, s2, t2) @ up + bu) @ down + bd

    return apply


def step_of_layers(kind: str, layers: int) -> BenchProgram:
    """A training step of so many layers on a 4x2 mesh: light, heavy, scanned, or with experts (see `bench.layers`)."""
    d, f = (512, 2048) if kind == "heavy" else (192, 512)
    tokens = "8x256x512: x - -" if kind == "heavy" else "8x96x192: x - -"
    name = f"{kind} step, {layers} layers"
    step = momentum_step
    if kind == "heavy":
        square = f"{d}x{d}"
        weights: tuple[str, ...] = (
            f"{d}: -", f"{d}: -", *(f"{square}: x y",) * 3, f"{square}: y x", f"{d}: -", f"{d}: -", f"{d}: -",
            f"{d}x{f}: x y", f"{f}: y", f"{f}x{d}: y x", f"{d}: -",
        ) * layers
        function, step = stacked(classic_layer(8), 13), adam_step
    else:
        plain = gated_weights("2-D", 1, d, d, d // 3, f)
        gated = gated_layer(6, 2)
        function, weights = stacked(gated, 9), plain * layers
        if kind == "scanned":
            function, weights = scanned(gated), _with_layers(layers, plain)
        elif kind == "experts":
            mixed = mixture(8, 128)
            experts = (f"{d}x8: - -", f"8x{d}x{f}: y - -", f"8x{f}x{d}: y - -")
            weights = (*plain, *experts) * (layers // 2)
            function = stacked(lambda x, *w: (lambda h: h + mixed(h, *w[9:]))(gated(x, *w[:9])), 12)
    copies = 3 if kind == "heavy" else 2
    return _define(name, mesh="4x2", arguments=(tokens, tokens, *weights * copies), function=step(function),
                   out=(_specs(weights),) * copies)
