"""Programs of `seconds` by hand: what one device does, as a good programmer writes it in `jax.shard_map`.

Weights and gradients move in one bucket each, halos are several iterations wide, and nothing is gathered that need not
be. Field codes are in `by_hand_fields`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram, spec
from bench.programs.by_hand_fields import FIELDS
from bench.programs.seconds import (
    classified,
    decode,
    embedding_gradient,
    mlp_layer,
    residual_network,
    vision_transformer,
)
from bench.programs.training import (
    STYLES,
    Weights,
    adam_step,
    grouped_attention,
    momentum_step,
    root_mean_square,
    scanned,
    stacked,
)


def by_hand(program: BenchProgram) -> Callable[..., Any] | None:
    """The program by hand, a function of its global arrays; None where there is none."""
    local = _DENSE.get(program.name) or FIELDS.get(program.name)
    if local is None:
        return None
    return jax.shard_map(
        local,
        mesh=program.mesh,
        in_specs=tuple(spec(argument.sharding or "") for argument in program.arguments),
        out_specs=jax.tree.map(spec, program.out_shardings),
        check_vma=False,
    )


def names() -> tuple[str, ...]:
    """The programs that there are by hand."""
    return (*_DENSE, *FIELDS)


# Buckets: many arrays, one collective.

#: Of each weight the dimension that is cut over x, if any.
Cut = Sequence[int | None]


def bucket_mean(arrays: Weights) -> Weights:
    """The mean over x of each array, by one all-reduce."""
    flat = lax.pmean(jnp.concatenate([a.reshape(-1) for a in arrays]), "x")
    return _split(flat, [a.shape for a in arrays])


def gathered(cut: Cut) -> Callable[[Weights], Weights]:
    """Whole weights from those cut over x, by one all-gather."""

    def apply(arrays: Weights) -> Weights:
        rows = tuple(jnp.moveaxis(a, dim, 0) for a, dim in zip(arrays, cut, strict=True) if dim is not None)
        flat = lax.all_gather(jnp.concatenate([a.reshape(-1) for a in rows]), "x")
        parts = _split(flat, [a.shape for a in rows])
        whole = iter([p.reshape(-1, *a.shape[1:]) for p, a in zip(parts, rows, strict=True)])
        return tuple(a if dim is None else jnp.moveaxis(next(whole), 0, dim)
                     for a, dim in zip(arrays, cut, strict=True))  # fmt: skip

    return apply


def scattered(cut: Cut) -> Callable[[Weights], Weights]:
    """This device's part of the mean over x of gradients: one reduce-scatter, and an all-reduce of those not cut."""

    def apply(arrays: Weights) -> Weights:
        count = lax.axis_size("x")
        rows = tuple(jnp.moveaxis(a, dim, 0) for a, dim in zip(arrays, cut, strict=True) if dim is not None)
        flat = jnp.concatenate([a.reshape(count, -1) for a in rows], 1)
        own = lax.psum_scatter(flat, "x") / count
        parts = iter(_split(own, [(a.shape[0] // count, *a.shape[1:]) for a in rows]))
        others = tuple(a for a, dim in zip(arrays, cut, strict=True) if dim is None)
        means = iter(bucket_mean(others) if others else ())
        return tuple(next(means) if dim is None else jnp.moveaxis(next(parts), 0, dim) for dim in cut)

    return apply


def _split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> Weights:
    """Arrays of these shapes from the last dimension of one."""
    out, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        out.append(flat[..., at : at + size].reshape(*flat.shape[:-1], *shape))
        at += size
    return tuple(out)


def sharded(specs: Sequence[str]) -> dict[str, Callable[[Weights], Weights]]:
    """How a training step comes by weights of these specs, and sums gradients, of examples cut over x."""
    cut = tuple(dims.index("x") if "x" in (dims := text.split()) else None for text in specs)
    return {"whole": gathered(cut), "summed": scattered(cut)}


# Tensor parallelism over y, as in Megatron.


@jax.custom_vjp
def entering(x: Array) -> Array:
    """Activations that all devices hold, where each goes on with weights of its own: gradients add up."""
    return x


entering.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(g, "y"),))


@jax.custom_vjp
def leaving(x: Array) -> Array:
    """The sum of what the devices computed with weights of their own: gradients are all of theirs."""
    return lax.psum(x, "y")


leaving.defvjp(lambda x: (lax.psum(x, "y"), None), lambda _, g: (g,))


def _layer(enter: Callable[[Array], Array], leave: Callable[[Array], Array]) -> Callable[..., Array]:
    """`gated_layer(8, 2)` with the heads and features of one device of two."""
    attend = grouped_attention(4, 1)

    def apply(x: Array, *w: Array) -> Array:
        x = x + leave(attend(enter(root_mean_square(x, w[0])), *w[1:5]))
        h = enter(root_mean_square(x, w[5]))
        return x + leave((jax.nn.silu(h @ w[6]) * (h @ w[7])) @ w[8])

    return apply


_megatron = _layer(entering, leaving)
_sequence_parallel = _layer(
    partial(lax.all_gather, axis_name="y", axis=1, tiled=True),
    partial(lax.psum_scatter, axis_name="y", scatter_dimension=1, tiled=True),
)


def _column_row(x: Array, columns: Array, rows: Array) -> Array:
    """Two layers of a perceptron: weights cut by columns, then by rows."""
    return jnp.tanh(leaving(mlp_layer(entering(x), columns) @ rows))


# Others.


def _gradient_of_rows(table: Array, tokens: Array, cotangent: Array) -> Array:
    """What is looked up is less than the table's gradients of all devices would be."""
    return embedding_gradient(
        table, lax.all_gather(tokens, "x", tiled=True), lax.all_gather(cotangent, "x", tiled=True)
    )


def _mixture(x: Array, gate: Array, up: Array, down: Array, capacity: int = 256) -> Array:
    """Every device computes its expert on the tokens that it takes of all, and hands them back."""
    tokens = lax.all_gather(x.reshape(-1, x.shape[-1]), "x", tiled=True)
    scores = jax.nn.softmax(tokens @ gate, -1)
    expert = lax.axis_index("x")
    mine = (jnp.argmax(scores, -1) == expert).astype(x.dtype)
    slots = jax.nn.one_hot(jnp.cumsum(mine) * mine - 1, capacity, dtype=x.dtype) * mine[:, None]
    outputs = jax.nn.gelu((slots.T @ tokens) @ up[0]) @ down[0]
    weighted = slots * lax.dynamic_index_in_dim(scores, expert, 1)
    return lax.psum_scatter(weighted @ outputs, "x", tiled=True).reshape(x.shape)


def _tiles_to_rows(a: Array) -> Array:
    """Whole rows within a pair of devices, which then go to where they belong."""
    rows = lax.all_to_all(a + 1, "y", 0, 1, tiled=True)
    # Device (x, y) of 4 x 2 holds block 2 x + y of the rows, which belongs to device (block % 4, block // 4).
    return lax.ppermute(rows, ("x", "y"), [(block, block % 4 * 2 + block // 4) for block in range(8)])


_mlp = stacked(mlp_layer, 1)
_rows = sharded(("x -",) * 4)

# Transformers with one example per device are not here: XLA:CPU computes the gradient of their attention wrongly.
_DENSE: Mapping[str, Callable[..., Any]] = {
    "MLP of 8, data parallel": momentum_step(_mlp, summed=bucket_mean),
    "MLP of 24, data parallel": momentum_step(_mlp, summed=bucket_mean),
    "MLP of 4, FSDP": momentum_step(_mlp, **_rows),
    "MLP of 4, tensor parallel": momentum_step(stacked(_column_row, 2), summed=bucket_mean),
    "MLP of 4, Adam, FSDP": adam_step(_mlp, **_rows),
    "transformer of 2, 2-D": momentum_step(stacked(_megatron, 9), **sharded(STYLES["2-D"] * 2)),
    "transformer, Megatron": momentum_step(stacked(_megatron, 9), summed=bucket_mean),
    "transformer, sequence parallel": _sequence_parallel,
    "transformer of 6, scanned": scanned(_megatron),
    "residual network": classified(residual_network, bucket_mean),
    "vision transformer": classified(vision_transformer, bucket_mean),
    "mixture of experts": _mixture,
    "embedding's gradient": _gradient_of_rows,
    "decoding": decode,
    "product, 2-D": lambda a, b: a @ b,
    "reshard, rows to columns": lambda a: lax.all_to_all(a + 1, "x", 1, 0, tiled=True),
    "reshard, tiles to rows": _tiles_to_rows,
}
