"""Reads and writes at positions that are data: embeddings, caches, histograms, rows and windows of a sharded array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram

_define = partial(BenchProgram.define, family="dense")


def _embed(table: Array, tokens: Array) -> Array:
    return table[tokens]


def _loss(table: Array, tokens: Array, targets: Array, weight: Array) -> Array:
    """The mean loss of a language model of one layer, whose last product is with the embedding transposed."""
    hidden = jax.nn.gelu(table[tokens] @ weight)
    logits = jax.nn.log_softmax(hidden @ table.T)
    return -jnp.mean(jnp.take_along_axis(logits, targets[:, None], axis=1))


_training = jax.grad(_loss, argnums=(0, 3))


def _table_gradient(table: Array, tokens: Array, cotangent: Array) -> Any:
    return jax.vjp(lambda held: held[tokens], table)[1](cotangent)[0]


def _decode(cache: Array, query: Array, new: Array, position: Array) -> tuple[Array, Array]:
    """One step of attention on ``[batch, sequence, features]``: the new entry goes to its position in the cache."""
    cache = lax.dynamic_update_slice(cache, new, (0, position, 0))
    scores = jnp.einsum("bd,bsd->bs", query, cache)
    masked = jnp.where(jnp.arange(cache.shape[1]) <= position, scores, -1e30)
    return cache, jnp.einsum("bs,bsd->bd", jax.nn.softmax(masked, -1), cache)


def _read_window(field: Array, row: Array, column: Array) -> Array:
    return lax.dynamic_slice(field, (row, column), (5, 300))


def _write_window(field: Array, new: Array, row: Array, column: Array) -> Array:
    return lax.dynamic_update_slice(field, new, (row, column))


def _tables() -> Sequence[BenchProgram]:
    model = ("8192x256: x -", "int32 512: {0}", "int32 512: {0}", "256x256: - -")
    gradient = ("8192x256: - -", "int32 2048: x", "2048x256: x -")
    field = "1024x1024: x y"
    rows: list[tuple[str, str, Sequence[str], Callable[..., Any], Any, dict[str, Any]]] = [
        ("embedding, vocabulary sharded", "8", ("4096x64: x -", "int32 128: -"), _embed, "- -", {"control": True}),
        ("embedding, vocabulary and batch on one axis", "8", ("4096x64: x -", "int32 128: x"), _embed, "x -", {}),
        ("embedding gradient, batch and vocabulary", "8", gradient, _table_gradient, "x -", {}),
        ("language model loss, vocabulary and batch", "4x2", [a.format("y") for a in model], _loss, "", {}),
        ("language model training, on one axis", "8", [a.format("x") for a in model], _training, ("x -", "- -"), {}),
        ("decoding step, cache sequence sharded", "8",
         ("4x1024x64: - x -", "4x64: - -", "4x1x64: - - -", "int32 : "), _decode, ("- x -", "- -"), {"control": True}),
        ("row at a runtime position", "8", ("1024x1024: x -", "int32 : "), lambda x, i: x[i], "-", {}),
        ("window read at a runtime position", "4x2", (field, "int32 : ", "int32 : "), _read_window, "- -", {}),
        ("window written at a runtime position", "4x2", (field, "5x300: - -", "int32 : ", "int32 : "), _write_window,
         "x y", {}),
        ("weights of a token's expert", "8", ("128x64: - -", "8x64x256: x - -", "int32 128: -"),
         lambda x, experts, chosen: jnp.einsum("td,tdf->tf", x, experts[chosen]), "- -", {}),
        ("histogram, counts sharded", "8", ("int32 65536: x",), lambda x: jnp.bincount(x, length=2048), "x", {}),
        ("sums over segments", "8", ("4096x64: x -", "int32 4096: x"),
         lambda x, segment: jax.ops.segment_sum(x, segment, num_segments=1024), "x -", {}),
    ]  # fmt: skip
    return [
        _define(name, mesh=mesh, arguments=arguments, function=function, out=out, rounding=True, **more)
        for name, mesh, arguments, function, out, more in rows
    ]


PROGRAMS: tuple[BenchProgram, ...] = tuple(_tables())
