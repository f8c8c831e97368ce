"""Programs that show what users reported of XLA, JAX, Shardy, Enzyme-JAX, Reactant and PyTorch, a few lines each.

``origin`` names the threads, and is empty for single elements, inner products and solvers, which stand beside them.
Positions, widths and shifts are drawn by a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram, axes_of, dimensions
from bench.programs.reshard import reshard_program

_FAMILY = "upstream"
_FIELD = "1024x1024: x y"
_SOLVED = "512x512: x y"
_ROWS = "1024x1024: x -"

# name, threads, mesh, shape, source, target
_RESHARDS = (
    ("slabs to pencils", "openxla/xla#15207 jax-ml/jax#21562", "4x2", "256x64x64", "y - x", "- x,y -"),
    ("two dimensions swap axes", "pytorch/pytorch#132751", "4x2", "1024x1024", "x y", "y x"),
    ("axes in another order", "pytorch/pytorch#160266 pytorch/pytorch#165712", "4x2", "1024x1024", "x,y -", "y,x -"),
    ("minor axis moved", "pytorch/pytorch#131210", "4x2", "64x256x64", "- x,y -", "- x y"),
)

Row = tuple[str, str, str, Sequence[str], Callable[..., Any], Any]
"""Name, threads, mesh, arguments, function, output shardings."""


def programs(seed: int = 0) -> tuple[BenchProgram, ...]:
    """All programs, those of threads first; the same for the same seed, and under the same names for all."""
    drawn = random.Random(seed)
    moved = (
        reshard_program(name, axes_of(mesh), dimensions(shape), source, target, origin=origin)
        for name, origin, mesh, shape, source, target in _RESHARDS
    )
    rows = [*_products(), *_halos(drawn), *_transforms(), *_updates(drawn), *_gathers(), *_orders(), *_points(drawn)]
    return (
        *(replace(program, family=_FAMILY) for program in moved),
        *(BenchProgram.define(name, _FAMILY, mesh, arguments, function, out, origin=origin, rounding=True)
          for name, origin, mesh, arguments, function, out in rows),
    )  # fmt: skip


def _products() -> list[Row]:
    heads = ("8x128x8x32: x - y -",) * 3
    return [
        ("product, output transposed", "openxla/xla#4062", "4x2", ("1024x2048: x -", "2048x1024: - y"), jnp.matmul,
         "y x"),
        ("weights sharded by rows", "pytorch/xla#6778", "8",
         ("2048x256: x -", "256x512: x -", "512x256: x -"), _two_layers, "x -"),
        ("partial sums, output sharded", "tenstorrent/tt-xla#3071", "4x2", ("512x1024: y x", "1024x512: x -"),
         jnp.matmul, "y x"),
        ("heads folded into the batch", "tenstorrent/tt-xla#2363", "4x2", heads, _folded_attention, "x - y -"),
        ("gradients of four parts of a batch", "openxla/xla#13306 openxla/xla#19166", "8",
         ("512x256: x -", "256x256: - -"), _accumulated, "- -"),
        ("sum of a replicated array", "openxla/xla#5963", "8", ("2048x2048: - -",), lambda u: jnp.abs(u).sum(), ""),
        ("sum over two axes", "pytorch/pytorch#171913", "4x2", (_FIELD,), jnp.sum, ""),
    ]  # fmt: skip


def _two_layers(x: Array, up: Array, down: Array) -> Array:
    return jax.nn.relu(x @ up) @ down


def _folded_attention(q: Array, k: Array, v: Array) -> Array:
    batch, length, heads, size = q.shape
    q, k, v = (a.transpose(0, 2, 1, 3).reshape(batch * heads, length, size) for a in (q, k, v))
    mixed = jax.nn.softmax(q @ k.swapaxes(1, 2) / size**0.5) @ v
    return mixed.reshape(batch, heads, length, size).transpose(0, 2, 1, 3)


def _accumulated(x: Array, w: Array) -> Array:
    def step(total: Array, part: Array) -> tuple[Array, None]:
        return total + jax.grad(lambda weights: jnp.mean(jnp.tanh(part @ weights) ** 2))(w), None

    return lax.scan(step, jnp.zeros_like(w), x.reshape(4, -1, x.shape[1]))[0]


def _halos(drawn: random.Random) -> list[Row]:
    shift, low = drawn.randint(60, 200), drawn.randint(2, 9)
    inner = slice(low, low - 20)
    return [
        ("differences of a periodic field", "jax-ml/jax#15773", "4x2", (_FIELD,), _laplacian, "x y"),
        ("gradient of a transposed roll", "jax-ml/jax#39301", "8", ("8: x",), jax.grad(_rolled_norm), "x"),
        ("rotation by many rows", "EnzymeAD/Reactant.jl#1166", "4x2", (_FIELD,), lambda u: jnp.roll(u, -shift, 0),
         "x y"),
        ("pad by unequal widths", "EnzymeAD/Reactant.jl#1166", "4x2", ("1004x1024: x y",),
         lambda u: jnp.pad(u, ((low, 20 - low), (0, 0))), "x y"),
        ("interior set", "EnzymeAD/Reactant.jl#1166", "4x2", (_FIELD, "1004x1024: x y"),
         lambda u, v: u.at[inner].set(v), "x y"),
        ("interior added to", "EnzymeAD/Reactant.jl#1169", "4x2", ("1040x528: x y",),
         lambda u: u.at[8:-8, 8:-8].add(1.5), "x y"),
        ("steps on a field with halos", "EnzymeAD/Enzyme-JAX#596", "4x2", (_FIELD,), _steps_with_halos, "x y"),
        ("difference of a wrapped field", "EnzymeAD/Enzyme-JAX#1775 EnzymeAD/Enzyme-JAX#2122", "4x2", (_FIELD,),
         _wrapped_difference, "x y"),
        ("mean of shifted fields, edges repeated", "EnzymeAD/Enzyme-JAX#695", "4x2", (_FIELD,), _shifted_mean, "x y"),
        ("slice padded back", "EnzymeAD/Reactant.jl#1122", "8", (_ROWS,),
         lambda u: (u + 1, jnp.pad(u[: -low - 1], ((0, low + 1), (0, 0)))), ("x -", "x -")),
        ("rows that no axis divides", "EnzymeAD/Reactant.jl#1109", "8", (_ROWS,), _uneven_rows, "x -"),
        ("coefficients of a padded line", "EnzymeAD/Enzyme-JAX#822", "4x2", (_FIELD, "1000: y"),
         lambda u, w: u * jnp.pad(w, (8, 16))[:, None] + jnp.pad(w, (8, 16)), "x y"),
        ("grouped convolution of a batch", "openxla/xla#47945 openxla/xla#48086", "8",
         ("16x32x32x64: x - - -", "3x3x16x64: - - - -"), _grouped_convolution, "x - - -"),
    ]  # fmt: skip


def _laplacian(u: Array) -> Array:
    return 4 * u - jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0) - jnp.roll(u, 1, 1) - jnp.roll(u, -1, 1)


def _rolled_norm(u: Array) -> Array:
    (moved,) = jax.linear_transpose(lambda v: jnp.roll(v, 1) + jnp.roll(v, -1), u)(u)
    return jnp.sum(moved**2)


def _steps_with_halos(u: Array) -> Array:
    for _ in range(3):
        step = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u = u.at[1:-1, 1:-1].set(0.25 * step)
        u = u.at[0].set(u[-2]).at[-1].set(u[1])
        u = u.at[:, 0].set(u[:, -2]).at[:, -1].set(u[:, 1])
    return u


def _wrapped_difference(u: Array) -> Array:
    wide = jnp.pad(u, ((8, 8), (0, 0)), mode="wrap")
    return wide[16:] - wide[:-16]


def _shifted_mean(u: Array) -> Array:
    return 0.5 * (jnp.concatenate([u[:1], u[:-1]]) + jnp.concatenate([u[1:], u[-1:]]))


def _uneven_rows(u: Array) -> Array:
    v = u[:1003]
    v = v.at[1:-1].add(0.1 * (v[2:] - 2 * v[1:-1] + v[:-2]))
    return jnp.pad(v, ((0, 21), (0, 0)))


def _grouped_convolution(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
    )


def _transforms() -> list[Row]:
    return [
        ("transform along a whole dimension", "jax-ml/jax#15680 jax-ml/jax#13081 openxla/xla#24", "8",
         ("512x1000: x -",), lambda u: jnp.fft.fft(u, n=2048, axis=1), "x -"),
        ("transforms by vmap", "jax-ml/jax#20683", "8", ("complex64 512x1024: x -",), jax.vmap(jnp.fft.fft), "x -"),
        ("factorizations by vmap", "jax-ml/jax#20683", "8", ("64x32x32: x - -",), jax.vmap(_factor), "x - -"),
        ("transform of two dimensions", "jax-ml/jax#17404", "8", ("complex64 512x512: x -",), jnp.fft.fft2, "x -"),
    ]  # fmt: skip


def _factor(a: Array) -> Array:
    return jnp.linalg.cholesky(a @ a.T + jnp.eye(a.shape[0], dtype=a.dtype))


def _updates(drawn: random.Random) -> list[Row]:
    rows, past = drawn.randint(2, 9), drawn.randint(64, 90)
    return [
        ("concatenation of rows", "openxla/xla#34710", "8", (_ROWS, _ROWS), lambda u, v: jnp.concatenate([u, v]),
         "x -"),
        ("concatenation of unequal parts", "jax-ml/jax#24576", "4x2", ("4096: x", "12288: x"),
         lambda u, v: jnp.concatenate([u, v]), "x"),
        ("first rows set", "jax-ml/jax#23052", "8", (_ROWS, f"{rows}x1024: - -"), lambda u, v: u.at[:rows].set(v),
         "x -"),
        ("even rows set", "jax-ml/jax#22827", "8", (_ROWS,), lambda u: u.at[::2].set(0), "x -"),
        ("update past the end", "openxla/xla#49118", "8", ("64x64: - x", "64x1: - -", "int32 :"),
         lambda u, v, i: lax.dynamic_update_slice(u, v, (jnp.zeros_like(i), past + jnp.abs(i))), "- x"),
        ("slice past the end", "openxla/xla#49122", "8", ("64x64: - x", "int32 :"),
         lambda u, i: lax.dynamic_slice(u, (jnp.zeros_like(i), past + jnp.abs(i)), (64, 32)), "- x"),
        ("layers sharded, and scanned", "openxla/xla#44796", "8", ("64x256: - -", "8x256x256: x - -"), _scanned,
         "- -"),
        ("gradients of sharded layers", "openxla/xla#44798", "8", ("64x256: - -", "8x256x256: x - -"),
         jax.grad(lambda x, w: jnp.mean(_scanned(x, w) ** 2), argnums=1), "x - -"),
    ]  # fmt: skip


def _scanned(x: Array, weights: Array) -> Array:
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]


def _gathers() -> list[Row]:
    return [
        ("every row shuffled", "jax-ml/jax#20381", "8", ("uint32 2: -", "32x1024x16: x - -"), _shuffled, "x - -"),
        ("rows of a sharded table", "openxla/xla#13304", "4x2", ("4096x128: x -", "int32 1024: y"),
         lambda table, ids: table[ids * 199], "y -"),
        ("gradient of an embedding", "openxla/xla#42481", "4x2",
         ("4096x128: x -", "int32 16x64: y -", "16x64x128: y - -"), _embedding_gradient, "x -"),
        ("stages of a pipeline", "openxla/xla#15048", "8", ("6x128x256: - - -", "8x256x256: x - -"), _staged,
         "x - -"),
        ("probabilities and entropy of tokens", "pytorch/torchtitan#4683", "4x2", ("512x8192: x y", "int32 512: x"),
         _probabilities, ("x", "x")),
    ]  # fmt: skip


def _shuffled(key: Array, u: Array) -> Array:
    return jax.vmap(jax.random.permutation)(jax.random.split(key, u.shape[0]), u)


def _embedding_gradient(table: Array, ids: Array, weights: Array) -> Array:
    return jax.grad(lambda t: jnp.sum(t[ids * 199] * weights))(table)


def _staged(x: Array, weights: Array) -> Array:
    state = jnp.zeros((weights.shape[0], *x.shape[1:]), x.dtype)
    for one in x:
        state = jnp.concatenate([one[None], state[:-1]])
        state = jnp.tanh(jnp.einsum("sbi,sij->sbj", state, weights))
    return state


def _probabilities(logits: Array, labels: Array) -> tuple[Array, Array]:
    logarithms = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logarithms, labels[:, None] * 199, axis=1)[:, 0]
    return chosen, -jnp.sum(jnp.exp(logarithms) * logarithms, axis=1)


def _orders() -> list[Row]:
    return [
        ("sums along a sharded dimension", "jax-ml/jax#21403 pytorch/pytorch#151071", "4x2", ("1024x1024: x y",),
         lambda u: jnp.cumsum(u, axis=1), "x y"),
        ("largest of a sharded dimension", "jax-ml/jax#19271", "8", ("16x65536: - x",),
         lambda u: tuple(lax.top_k(u, 8)), ("- -", "- -")),
        ("order of a sharded dimension", "jax-ml/jax#35650", "8", ("65536: x",), jnp.argsort, "x"),
        ("positions of nonzeros", "jax-ml/jax#23675", "8", ("int32 2048x64: x -",),
         lambda u: jnp.nonzero(u == 3, size=4096), ("x", "x")),
    ]  # fmt: skip


def _points(drawn: random.Random) -> list[Row]:
    i, j, other = (drawn.randrange(1024) for _ in range(3))
    pair = (_FIELD, _FIELD)
    rows: list[tuple[str, Sequence[str], Callable[..., Any], Any]] = [
        ("point set", (_FIELD,), lambda u: u.at[i, j].set(2.5), "x y"),
        ("point added to at runtime", (_FIELD, "int32 :", "int32 :"), lambda u, a, b: u.at[a, b].add(2.5), "x y"),
        ("boundary rows and columns set", (_FIELD,), _walled, "x y"),
        ("row copied", (_FIELD,), lambda u: u.at[0].set(u[i]), "x y"),
        ("gauge", (_FIELD,), lambda u: u[i, j], ""),
        ("gauges", (_FIELD,), lambda u: (u * u)[jnp.array([i, j, other]), jnp.array([j, other, i])], "-"),
        ("gauge at runtime", (_FIELD, "int32 :", "int32 :"), lambda u, a, b: u[a, b], ""),
        ("inner product", pair, jnp.vdot, ""),
        ("inner product of flattened fields", pair, lambda u, v: u.ravel() @ v.ravel(), ""),
        ("contraction of all dimensions", pair, lambda u, v: jnp.tensordot(u, v, 2), ""),
        ("norms", (_FIELD,), lambda u: (jnp.linalg.norm(u), jnp.abs(u).max(), jnp.abs(u).sum()), ("", "", "")),
        ("conjugate gradients by rolls", (_SOLVED,), partial(_conjugate_gradients, _shifted_laplacian), "x y"),
        ("conjugate gradients by pads", (_SOLVED,), partial(_conjugate_gradients, _padded_laplacian), "x y"),
        ("conjugate gradients, unrolled", (_SOLVED,), partial(_conjugate_gradients, _padded_laplacian, unrolled=True),
         "x y"),
    ]  # fmt: skip
    return [(name, "", "4x2", arguments, function, out) for name, arguments, function, out in rows]


def _walled(u: Array) -> Array:
    return u.at[0].set(0).at[-1].set(1).at[:, 0].set(0).at[:, -1].set(1)


def _shifted_laplacian(u: Array) -> Array:
    return _laplacian(u) + 0.1 * u


def _padded_laplacian(u: Array) -> Array:
    wide = jnp.pad(u, 1)
    return 4 * u - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]


def _conjugate_gradients(product: Callable[[Array], Array], b: Array, unrolled: bool = False) -> Array:
    def step(_: int, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, r, p, squared = state
        moved = product(p)
        alpha = squared / jnp.vdot(p, moved)
        x, r = x + alpha * p, r - alpha * moved
        new = jnp.vdot(r, r)
        return x, r, r + new / squared * p, new

    return lax.fori_loop(0, 10, step, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)), unroll=unrolled)[0]
