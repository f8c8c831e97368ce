"""Training steps of models whose equal parts are not one row of layers: two stacks, members, experts, steps in time.

All are unrolled, as tracing leaves loops of Python over modules. ``step_of_parts`` traces one of ``KINDS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram
from bench.programs.training import layer_norm, momentum_step

#: A model: its weights, and its function of x and these.
Model = tuple[tuple[str, ...], Callable[..., Array]]

#: Widths of what all models here have in common: activations, hidden layers, heads.
_WIDTH, _HIDDEN, _HEADS = 128, 256, 4
_SQUARE, _UP, _DOWN, _SCALE = f"{_WIDTH}x{_WIDTH}: x y", f"{_WIDTH}x{_HIDDEN}: x y", f"{_HIDDEN}x{_WIDTH}: y x", "-"
_NORM = (f"{_WIDTH}: -",) * 2
_ATTENTION = (*_NORM, *(_SQUARE,) * 3, f"{_WIDTH}x{_WIDTH}: y x")
_PERCEPTRON = (*_NORM, _UP, _DOWN)


def _attend(x: Array, source: Array, scale: Array, shift: Array, *w: Array) -> Array:
    """Multi-head attention of x, normed first, to ``source``, added to x."""
    def heads(value: Array, weight: Array) -> Array:
        return (value @ weight).reshape(*value.shape[:-1], _HEADS, _WIDTH // _HEADS)

    y = layer_norm(x, scale, shift)
    source = y if source is x else source
    q, k, v = heads(y, w[0]), heads(source, w[1]), heads(source, w[2])
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(_WIDTH // _HEADS), -1)
    return x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w[3]


def _perceive(x: Array, scale: Array, shift: Array, up: Array, down: Array) -> Array:
    return x + jax.nn.gelu(layer_norm(x, scale, shift) @ up) @ down


def encoder_decoder(count: int) -> Model:
    """So many layers of an encoder, and as many of a decoder, each of which attends to what the encoder delivers."""
    encoder, decoder = (*_ATTENTION, *_PERCEPTRON), (*_ATTENTION * 2, *_PERCEPTRON)

    def apply(x: Array, *w: Array) -> Array:
        y, start = x, len(encoder) * count
        for i in range(0, start, len(encoder)):
            x = _perceive(_attend(x, x, *w[i : i + 6]), *w[i + 6 : i + 10])
        for i in range(start, len(w), len(decoder)):
            y = _attend(_attend(y, y, *w[i : i + 6]), x, *w[i + 6 : i + 12])
            y = _perceive(y, *w[i + 12 : i + 16])
        return y

    return (*encoder * count, *decoder * count), apply


def ensemble(members: int) -> Model:
    """So many networks of four layers that all see the same, and whose mean counts."""
    def apply(x: Array, *w: Array) -> Array:
        found = []
        for i in range(0, len(w), 16):
            y = x
            for j in range(i, i + 16, 4):
                y = _perceive(y, *w[j : j + 4])
            found.append(y)
        return sum(found[1:], found[0]) / members

    return _PERCEPTRON * 4 * members, apply


def experts(count: int) -> Model:
    """Four layers of so many experts, each with weights of its own, of which the gate takes a weighted sum."""
    gate = f"{_WIDTH}x{count}: - -"
    size = 1 + 2 + 2 * count

    def apply(x: Array, *w: Array) -> Array:
        for i in range(0, len(w), size):
            y = layer_norm(x, w[i + 1], w[i + 2])
            gates = jax.nn.softmax(y @ w[i], -1)
            for e in range(count):
                up, down = w[i + 3 + 2 * e], w[i + 4 + 2 * e]
                x = x + gates[..., e : e + 1] * (jax.nn.gelu(y @ up) @ down)
        return x

    return (gate, *_NORM, *(_UP, _DOWN) * count) * 4, apply


def recurrent(steps: int) -> Model:
    """A long short-term memory over so many places of the sequence, one after the other."""
    def apply(x: Array, w: Array, u: Array, b: Array) -> Array:
        h = c = jnp.zeros((x.shape[0], _WIDTH), x.dtype)
        found = []
        for t in range(steps):
            i, f, g, o = jnp.split(x[:, t] @ w + h @ u + b, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            found.append(h)
        return jnp.stack([*found, *(h,) * (x.shape[1] - steps)], 1)

    return (f"{_WIDTH}x{4 * _WIDTH}: - y", f"{_WIDTH}x{4 * _WIDTH}: - y", f"{4 * _WIDTH}: y"), apply


def u_net(blocks: int) -> Model:
    """Three resolutions of so many residual blocks each, down and up again, what went down joined to what comes up."""
    kernel = "3x3x{0}x{1}: - - - y"
    widths = (16, 32, 64)
    weights: list[str] = ["3x3x1x16: - - - y"]
    for k, n in enumerate(widths):
        weights += [kernel.format(n, n)] * 2 * blocks
        if k + 1 < len(widths):
            weights.append(kernel.format(n, widths[k + 1]))
    for n, wider in zip(widths[-2::-1], widths[:0:-1], strict=True):
        weights += [kernel.format(wider, n), kernel.format(2 * n, n)] + [kernel.format(n, n)] * 2 * blocks
    weights.append("3x3x16x1: - - - -")

    def convolved(x: Array, w: Array, stride: int = 1) -> Array:
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def apply(x: Array, *w: Array) -> Array:
        left = list(w)
        x = convolved(x[..., None], left.pop(0))

        def stage(x: Array) -> Array:
            for _ in range(blocks):
                x = x + convolved(jax.nn.relu(convolved(x, left.pop(0))), left.pop(0))
            return x

        kept = []
        for _ in widths[1:]:
            x = stage(x)
            kept.append(x)
            x = convolved(x, left.pop(0), 2)
        x = stage(x)
        for other in reversed(kept):
            x = jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
            x = jnp.concatenate([other, convolved(x, left.pop(0))], -1)
            x = stage(convolved(x, left.pop(0)))
        return convolved(x, left.pop(0))[..., 0]

    return tuple(weights), apply


#: By name: the model, and how many parts it has.
KINDS: dict[str, tuple[Callable[[int], Model], int]] = {
    "encoder and decoder": (encoder_decoder, 6), "ensemble": (ensemble, 8), "unrolled experts": (experts, 8),
    "recurrent steps": (recurrent, 24), "U-Net": (u_net, 4),
}


def step_of_parts(kind: str, count: int) -> BenchProgram:
    """A step of momentum on the mean square error of a model of ``KINDS`` with so many parts, on a 4x2 mesh."""
    weights, function = KINDS[kind][0](count)
    tokens = "8x64x64: x - -" if kind == "U-Net" else f"8x64x{_WIDTH}: x - -"
    specs = tuple(w.partition(": ")[2] for w in weights)
    return BenchProgram.define(f"{kind}, {count}", family="parts", mesh="4x2", arguments=(tokens, tokens, *weights * 2),
                               function=momentum_step(function), out=(specs, specs), own_inputs=True)
