"""Products, perceptrons and classifiers, and steps of training them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, f32, i32


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


def cross_entropy(w: Array, x: Array, labels: Array) -> Array:
    """The loss of a classifier of many classes."""
    logits = x @ w
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]).mean()


def embedding(e: Array, i: Array, w: Array) -> Array:
    """Rows looked up, and a layer."""
    return jax.nn.gelu(e[i] @ w)


def tied_step(e: Array, i: Array, labels: Array) -> Array:
    """A step of training an embedding that is the classifier's weights, too (Press and Wolf)."""
    return e - 0.1 * jax.grad(lambda e: cross_entropy(e.T, jnp.tanh(e[i]), labels))(e)


def experts(x: Array, w: Array) -> Array:
    """A layer per expert, whose rows are given."""
    return jnp.einsum("erd,edf->erf", x, w)


def gram(x: Array) -> Array:
    """The products of all columns."""
    return x.T @ x


def kernel_ridge(x: Array, y: Array, a: Array) -> Array:
    """Predictions of a Gaussian kernel machine at other points."""
    square = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T
    return jnp.exp(-0.01 * square) @ a


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    b, d, f = sizes.batch, sizes.width, sizes.hidden
    w1, w2, x = f32(d, f), f32(f, d), f32(b, d)
    weights = {"DP": (P(), P()), "FSDP": (P(ALL), P(ALL)), "TP": (P(None, ALL), P(ALL)),
               "DP+TP": (P(None, "y"), P("y")), "FSDP+TP": (P("x", "y"), P("y", "x"))}
    rows = {"DP": P(ALL), "FSDP": P(ALL), "TP": P(), "DP+TP": P("x"), "FSDP+TP": P("x")}
    return [
        Open("product", lambda x, w: x @ w, (x, w1), {"DP": (P(ALL), P()), "TP": (P(), P(None, ALL)),
                                                      "DP+TP": (P("x"), P(None, "y"))}),
        Open("layers", mlp, (x, w1, w2), {k: (rows[k], *weights[k]) for k in weights}),
        Open("step of layers", mlp_step, (w1, w2, x, x), {k: (*weights[k], rows[k], rows[k]) for k in weights},
             {0: 0, 1: 1}),
        Open("step of least squares", linear_step, (w1, x, f32(b, f)),
             {"DP": (P(), P(ALL), P(ALL)), "FSDP": (P(ALL), P(ALL), P(ALL)), "TP": (P(None, ALL), P(), P(None, ALL))},
             {0: 0}),
        Open("step with momentum", momentum_step, (w1, w1, x, f32(b, f)),
             {"DP": (P(), P(), P(ALL), P(ALL)), "FSDP": (P(ALL), P(ALL), P(ALL), P(ALL)),
              "ZeRO-1": (P(), P(ALL), P(ALL), P(ALL)), "TP": (P(None, ALL), P(None, ALL), P(), P(None, ALL))},
             {0: 0, 1: 1}),
        Open("cross entropy", cross_entropy, (f32(d, 8 * d), x, i32(b)),
             {"DP": (P(), P(ALL), P(ALL)), "vocabulary": (P(None, ALL), P(), P()),
              "DP + vocabulary": (P(None, "y"), P("x"), P("x"))}),
        Open("embedding", embedding, (f32(16 * d, d), i32(b), f32(d, d)),
             {"DP": (P(), P(ALL), P()), "vocabulary": (P(ALL), P(), P()), "features": (P(None, ALL), P(), P())}),
        Open("tied embeddings", tied_step, (f32(8 * d, d), i32(b), i32(b)),
             {"DP": (P(), P(ALL), P(ALL)), "vocabulary": (P(ALL), P(), P()), "features": (P(None, ALL), P(), P()),
              "DP + vocabulary": (P("y"), P("x"), P("x"))}, {0: 0}),
        Open("experts", experts, (f32(8, b, d), f32(8, d, d)),
             {"EP": (P(ALL), P(ALL)), "DP": (P(None, ALL), P()), "EP+DP": (P("x", "y"), P("x"))}),
        Open("products of columns", gram, (f32(4 * b, d),), {"rows": (P(ALL),), "columns": (P(None, ALL),)}),
        Open("kernel machine", kernel_ridge, (f32(4 * b, 64), f32(4 * b, 64), f32(4 * b, 8)),
             {"rows": (P(ALL), P(), P()), "examples": (P(), P(ALL), P(ALL)), "tiles": (P("x"), P("y"), P("y"))}),
    ]
