"""Functions whose shardings are to be chosen, with the specs that users write by hand.

Sizes are drawn by a seed; names stay. Specs are of a mesh of 4 x 2 devices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

#: All devices along one dimension.
ALL = ("x", "y")


class Open(NamedTuple):
    """A function and its arguments, none of which says where it lies.

    carry: {position of an argument: position of the result that becomes it}. hand: per name of a way what users state,
    one spec per argument. small: whether all ways to state its arguments may be tried.
    """

    name: str
    function: Callable[..., Any]
    arguments: Sequence[jax.ShapeDtypeStruct]
    hand: Mapping[str, Sequence[P]]
    carry: Mapping[int, int] = {}
    small: bool = True


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def mlp(x: Array, w1: Array, w2: Array) -> Array:
    """Two layers, forward."""
    return jax.nn.relu(x @ w1) @ w2


def mlp_step(w1: Array, w2: Array, x: Array, t: Array) -> tuple[Array, Array]:
    """A step of gradient descent."""
    g = jax.grad(lambda w: jnp.mean((mlp(x, *w) - t) ** 2))((w1, w2))
    return w1 - 0.1 * g[0], w2 - 0.1 * g[1]


def linear_step(w: Array, x: Array, t: Array) -> Array:
    """Least squares, one step."""
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - t) ** 2))(w)


def momentum_step(w: Array, m: Array, x: Array, t: Array) -> tuple[Array, Array]:
    """Least squares with momentum."""
    m = 0.9 * m + jax.grad(lambda w: jnp.mean((x @ w - t) ** 2))(w)
    return w - 0.1 * m, m


def attention(x: Array, wqkv: Array, wo: Array, heads: int) -> Array:
    """Self-attention of a batch of sequences."""
    b, t, d = x.shape
    q, k, v = jnp.split((x @ wqkv).reshape(b, t, heads, 3 * d // heads), 3, axis=-1)
    a = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 8.0)
    return jnp.einsum("bhts,bshd->bthd", a, v).reshape(b, t, d) @ wo


def embedding(e: Array, i: Array, w: Array) -> Array:
    """Rows looked up, and a layer."""
    return jax.nn.gelu(e[i] @ w)


def cross_entropy(w: Array, x: Array, labels: Array) -> Array:
    """The loss of a classifier of many classes."""
    logits = x @ w
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]).mean()


def experts(x: Array, w: Array) -> Array:
    """A layer per expert, whose rows are given."""
    return jnp.einsum("erd,edf->erf", x, w)


def convolution(x: Array, k: Array) -> Array:
    """Images in channels-last form."""
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def gram(x: Array) -> Array:
    """The products of all columns."""
    return x.T @ x


def power_iteration(a: Array, v: Array) -> Array:
    """Some iterations in a loop."""
    def body(_: int, v: Array) -> Array:
        w = a @ v
        return w / jnp.linalg.norm(w)

    return lax.fori_loop(0, 10, body, v)


def diffusion(steps: int, u: Array) -> Array:
    """A five-point stencil, steps one after the other."""
    for _ in range(steps):
        u = u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
    return u


def diffusion_loop(steps: int, u: Array) -> Array:
    """The same in a loop."""
    return lax.fori_loop(0, steps, lambda _, v: diffusion(1, v), u)


def poisson(r: Array) -> Array:
    """Poisson's equation by transforms."""
    n = r.shape[0]
    k = jnp.fft.fftfreq(n)
    h = r
    for axis in (2, 1, 0):
        h = jnp.fft.fft(h, axis=axis)
    h = h / (k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2 + 1e-6)
    for axis in (0, 1, 2):
        h = jnp.fft.ifft(h, axis=axis)
    return h


def stacked(w: Array, x: Array) -> Array:
    """Layers in a scan."""
    return lax.scan(lambda h, u: (jax.nn.relu(h @ u), None), x, w)[0]


def stacked_step(w: Array, x: Array) -> Array:
    """A step of training layers in a scan."""
    return w - 0.1 * jax.grad(lambda w: jnp.mean(stacked(w, x) ** 2))(w)


def lstm(wx: Array, wh: Array, xs: Array) -> Array:
    """A recurrent layer."""
    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, o, u = jnp.split(x @ wx + h @ wh, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    z = jnp.zeros((xs.shape[1], wh.shape[0]))
    return lax.scan(step, (z, z), xs)[1]


def layers_step(heads: int, weights: Sequence[Sequence[Array]], x: Array, t: Array) -> Any:
    """A step of training a transformer."""
    def block(w: Sequence[Array], x: Array) -> Array:
        x = x + attention(_norm(x), w[0], w[1], heads)
        return x + mlp(_norm(x), w[2], w[3])

    def loss(weights: Sequence[Sequence[Array]]) -> Array:
        h = x
        for w in weights:
            h = block(w, h)
        return jnp.mean((h - t) ** 2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def programs(seed: int = 0) -> list[Open]:
    """The functions, at sizes drawn by the seed."""
    rng = random.Random(f"{seed} choices")
    b, t, d = rng.choice((512, 1024, 4096)), rng.choice((256, 512)), rng.choice((512, 1024, 2048))
    f, n, steps = 4 * d, rng.choice((1024, 2048, 4096)), rng.choice((2, 3, 4))
    return [*_dense(b, d, f), *_sequences(t, d, f), *_fields(n, steps), *_loops(b, d, steps)]


def _dense(b: int, d: int, f: int) -> list[Open]:
    w1, w2, x = _f32(d, f), _f32(f, d), _f32(b, d)
    weights = {"DP": (P(), P()), "FSDP": (P(ALL), P(ALL)), "TP": (P(None, ALL), P(ALL)),
               "DP+TP": (P(None, "y"), P("y")), "FSDP+TP": (P("x", "y"), P("y", "x"))}
    rows = {"DP": P(ALL), "FSDP": P(ALL), "TP": P(), "DP+TP": P("x"), "FSDP+TP": P("x")}
    return [
        Open("product", lambda x, w: x @ w, (x, w1), {"DP": (P(ALL), P()), "TP": (P(), P(None, ALL)),
                                                      "DP+TP": (P("x"), P(None, "y"))}),
        Open("layers", mlp, (x, w1, w2), {k: (rows[k], *weights[k]) for k in weights}),
        Open("step of layers", mlp_step, (w1, w2, x, x), {k: (*weights[k], rows[k], rows[k]) for k in weights},
             {0: 0, 1: 1}),
        Open("step of least squares", linear_step, (w1, x, _f32(b, f)),
             {"DP": (P(), P(ALL), P(ALL)), "FSDP": (P(ALL), P(ALL), P(ALL)), "TP": (P(None, ALL), P(), P(None, ALL))},
             {0: 0}),
        Open("step with momentum", momentum_step, (w1, w1, x, _f32(b, f)),
             {"DP": (P(), P(), P(ALL), P(ALL)), "FSDP": (P(ALL), P(ALL), P(ALL), P(ALL)),
              "ZeRO-1": (P(), P(ALL), P(ALL), P(ALL)), "TP": (P(None, ALL), P(None, ALL), P(), P(None, ALL))},
             {0: 0, 1: 1}),
        Open("cross entropy", cross_entropy, (_f32(d, 8 * d), x, _i32(b)),
             {"DP": (P(), P(ALL), P(ALL)), "vocabulary": (P(None, ALL), P(), P()),
              "DP + vocabulary": (P(None, "y"), P("x"), P("x"))}),
        Open("embedding", embedding, (_f32(16 * d, d), _i32(b), _f32(d, d)),
             {"DP": (P(), P(ALL), P()), "vocabulary": (P(ALL), P(), P()), "features": (P(None, ALL), P(), P())}),
        Open("experts", experts, (_f32(8, b, d), _f32(8, d, d)),
             {"EP": (P(ALL), P(ALL)), "DP": (P(None, ALL), P()), "EP+DP": (P("x", "y"), P("x"))}),
        Open("products of columns", gram, (_f32(4 * b, d),), {"rows": (P(ALL),), "columns": (P(None, ALL),)}),
    ]


def _sequences(t: int, d: int, f: int) -> list[Open]:
    heads, x = d // 64, _f32(8, t, d)
    weights = [_f32(d, 3 * d), _f32(d, d), _f32(d, f), _f32(f, d)]
    tensor = (P(None, "y"), P("y"), P(None, "y"), P("y"))
    both = (P("x", "y"), P("y", "x"), P("x", "y"), P("y", "x"))
    ways = {"DP": ((P(),) * 4, P(ALL)), "FSDP": ((P(ALL),) * 4, P(ALL)),
            "TP": ((P(None, ALL), P(ALL)) * 2, P()), "DP+TP": (tensor, P("x")), "FSDP+TP": (both, P("x")),
            "DP+TP+SP": (tensor, P("x", "y"))}

    def transformer(layers: int) -> Open:
        carried = {k: k for k in range(4 * layers)}

        def step(*args: Array) -> Any:
            grouped = [args[4 * k : 4 * k + 4] for k in range(layers)]
            return jax.tree.leaves(layers_step(heads, grouped, *args[-2:]))

        return Open(f"transformer of {layers}", step, (*weights * layers, x, x),
                    {k: (*w * layers, at, at) for k, (w, at) in ways.items()}, carried, False)

    return [
        Open("attention", lambda x, wqkv, wo: attention(x, wqkv, wo, heads), (x, *weights[:2]),
             {k: (at, *w[:2]) for k, (w, at) in ways.items()}),
        *map(transformer, (1, 2, 12)),
    ]


def _fields(n: int, steps: int) -> list[Open]:
    u = _f32(n, n)
    tiles = {"rows": (P(ALL),), "columns": (P(None, ALL),), "tiles": (P("x", "y"),)}
    images = _f32(16, 128, 128, 64)
    return [
        Open("diffusion", lambda u: diffusion(steps, u), (u,), tiles, {0: 0}),
        Open("diffusion in a loop", lambda u: diffusion_loop(4 * steps, u), (u,), tiles, {0: 0}),
        Open("poisson", poisson, (jax.ShapeDtypeStruct((128,) * 3, jnp.complex64),),
             {"slabs": (P(ALL),), "pencils": (P("x", "y"),)}, {0: 0}),
        Open("convolution", convolution, (images, _f32(3, 3, 64, 128)),
             {"DP": (P(ALL), P()), "rows": (P(None, ALL), P()), "tiles": (P(None, "x", "y"), P()),
              "channels": (P(), P(None, None, None, ALL)), "DP + channels": (P("x"), P(None, None, None, "y"))}),
    ]


def _loops(b: int, d: int, steps: int) -> list[Open]:
    stack, x = _f32(2 * steps, d, d), _f32(b, d)
    ways = {"DP": (P(), P(ALL)), "FSDP": (P(None, ALL), P(ALL)), "TP": (P(None, None, ALL), P()),
            "stages": (P(ALL) if 2 * steps % 8 == 0 else P("y"), P(ALL)), "FSDP+TP": (P(None, "x", "y"), P("x"))}
    return [
        Open("power iteration", power_iteration, (_f32(4 * d, 4 * d), _f32(4 * d)),
             {"rows": (P(ALL), P()), "columns": (P(None, ALL), P(ALL)), "tiles": (P("x", "y"), P("y"))}),
        Open("scan", stacked, (stack, x), ways),
        Open("step of a scan", stacked_step, (stack, x), ways, {0: 0}),
        Open("recurrent layer", lstm, (_f32(d, 4 * d), _f32(d, 4 * d), _f32(16, 512, d)),
             {"DP": (P(), P(), P(None, ALL)), "TP": (P(None, ALL), P(None, ALL), P()),
              "DP+TP": (P(None, "y"), P(None, "y"), P(None, "x"))}),
    ]
