"""Dense programs: matrix products, attention, training, and products that algebra can rewrite.

``PROGRAMS`` is the fixed table, ``variants`` draws others like them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.lower_bound import shardings, short
from bench.programs import Argument, Axes, BenchProgram, algebra, axes_of, indexing, matmul, models, spec

PROGRAMS: tuple[BenchProgram, ...] = (
    *matmul.PROGRAMS, *models.PROGRAMS, *indexing.PROGRAMS, *algebra.PROGRAMS,
)  # fmt: skip

Times = Callable[[Array, Array], Array]

_SPELLINGS: tuple[Times, ...] = (
    lambda a, b: a @ b,
    jnp.dot,
    lambda a, b: jnp.einsum("ij,jk->ik", a, b),
    lambda a, b: jnp.tensordot(a, b, axes=1),
    lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ()))),
    lambda a, b: jnp.einsum("jk,ij->ik", b, a),
)
_MESHES = ("8", "8", "4x2", "4x2", "2x4", "2x2x2", "2x2", "3x2", "6")
_DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class _Draw:
    """What the templates draw from: a seeded generator, a mesh, an element type, and a spelling of the product."""

    random: random.Random
    axes: Axes
    dtype: str
    times: Times

    def size(self, most: int = 64) -> int:
        """A size that every sharding of the mesh divides."""
        return math.prod(size for _, size in self.axes) * self.random.choice([k for k in _FACTORS if k <= most])

    def sharding(self, *shape: int) -> str:
        """Any sharding that divides a shape evenly."""
        return short(self.random.choice(list(shardings(dict(self.axes), shape))))

    def argument(self, *shape: int) -> Argument:
        return Argument(shape, self.sharding(*shape), self.dtype)


_FACTORS = (1, 2, 3, 8, 16, 64)

Template = Callable[[_Draw], tuple[str, Callable[..., Any], Sequence[Argument], Any]]
"""Draws (what it is, function, arguments, output shardings)."""


def _product(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, k, n = draw.size(), draw.size(), draw.size()
    return "product", draw.times, (draw.argument(m, k), draw.argument(k, n)), draw.sharding(m, n)


def _batched_product(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    b, m, k, n = draw.size(3), draw.size(8), draw.size(8), draw.size(8)
    spelled = draw.random.choice((jnp.matmul, lambda x, y: jnp.einsum("bij,bjk->bik", x, y), jax.vmap(draw.times)))
    return "batched product", spelled, (draw.argument(b, m, k), draw.argument(b, k, n)), draw.sharding(b, m, n)


def _sum_of_products(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, n, terms = draw.size(), draw.size(), draw.random.randint(2, 4)
    arguments: list[Argument] = []
    for k in (draw.size() for _ in range(terms)):
        left, right = draw.sharding(m, k), draw.sharding(k, n)
        if draw.random.random() < 0.7:  # the contraction on the same axes on both sides
            over = left.split()[1]
            right = f"{over} -"
        arguments += [Argument((m, k), left, draw.dtype), Argument((k, n), right, draw.dtype)]

    def add(*values: Array) -> Array:
        parts = [draw.times(a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
        return sum(parts[1:], parts[0])

    return f"sum of {terms} products", add, arguments, draw.sharding(m, n)


def _mlp(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, features, hidden = draw.size(), draw.size(), draw.size()
    act = draw.random.choice((jax.nn.relu, jnp.tanh, jax.nn.gelu))

    def apply(x: Array, up: Array, down: Array) -> Array:
        return draw.times(act(draw.times(x, up)), down)

    arguments = (draw.argument(batch, features), draw.argument(features, hidden), draw.argument(hidden, features))
    return "MLP", apply, arguments, draw.sharding(batch, features)


def _chain(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, features, depth = draw.size(), draw.size(), draw.random.randint(2, 4)
    weight = draw.sharding(features, features)

    def apply(x: Array, *weights: Array) -> Array:
        for held in weights:
            x = draw.times(x, held)
        return x

    weights = (Argument((features, features), weight, draw.dtype),) * depth
    return f"chain of {depth}", apply, (draw.argument(batch, features), *weights), draw.sharding(batch, features)


def _gradient(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, features, hidden = draw.size(), draw.size(), draw.size()
    over = draw.sharding(batch)
    arguments = tuple(Argument((batch, n), f"{over} -", draw.dtype) for n in (features, hidden))
    return "gradient", lambda x, dy: draw.times(x.T, dy), arguments, draw.sharding(features, hidden)


def _attention(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, sequence, heads, features = draw.size(1), draw.size(8), draw.size(1), 16
    shape = (batch, sequence, heads, features)
    qkv = Argument(shape, draw.sharding(*shape[:3]) + " -", draw.dtype)
    return "attention", models.attention_core, (qkv,) * 3, draw.sharding(*shape[:3]) + " -"


def _projected_attention(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, sequence, heads = draw.size(1), draw.size(8), draw.size(1)
    features = heads * 16
    x = draw.argument(batch, sequence, features)
    inward, outward = draw.argument(features, features), draw.argument(features, features)
    return "projected attention", models.attention(heads), (x, *(inward,) * 3, outward), x.sharding


def _training(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    batch, features, hidden = draw.size(), draw.size(), draw.size()
    up, down = draw.argument(features, hidden), draw.argument(hidden, features)
    x = Argument((batch, features), f"{draw.sharding(batch)} -", draw.dtype)
    return "MLP training", models.gradients(matmul.mlp, 2), (up, down, x, x), (up.sharding, down.sharding)


def _one_factor(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, k, n = draw.size(), draw.size(), draw.size()
    right = draw.argument(k, n)
    arguments = (draw.argument(m, k), right, right)
    return "one factor", lambda a, b, c: draw.times(a, b) + draw.times(a, c), arguments, draw.sharding(m, n)


def _low_rank(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, k, n, rank = draw.size(), draw.size(), draw.size(), draw.size(1)
    arguments = (draw.argument(m, k), draw.argument(k, n), draw.argument(n, rank))
    return "low rank", lambda x, a, b: draw.times(draw.times(x, a), b), arguments, draw.sharding(m, rank)


def _reduced_product(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, k, n, axis = draw.size(), draw.size(), draw.size(), draw.random.randint(0, 1)
    reduce = draw.random.choice((jnp.sum, jnp.mean))
    arguments = (draw.argument(m, k), draw.argument(k, n))
    out = draw.sharding((m, n)[1 - axis])
    return f"product reduced over {axis}", lambda x, a: reduce(draw.times(x, a), axis=axis), arguments, out


def _sliced_product(draw: _Draw) -> tuple[str, Callable[..., Any], Sequence[Argument], Any]:
    m, k, n, parts = draw.size(), draw.size(), draw.size(16), draw.random.randint(2, 4)
    arguments = (draw.argument(m, k), draw.argument(k, n * parts))
    first = draw.random.randrange(parts) * n
    out = draw.sharding(m, n)
    return f"1 of {parts} slices of a product", lambda x, w: draw.times(x, w)[:, first : first + n], arguments, out


_TEMPLATES: tuple[Template, ...] = (
    _product, _batched_product, _sum_of_products, _mlp, _chain, _gradient, _attention, _projected_attention,
    _training, _one_factor, _low_rank, _reduced_product, _sliced_product,
)  # fmt: skip


def variants(seed: int, count: int) -> list[BenchProgram]:
    """``count`` other dense programs, the same for the same seed.

    Kinds, sizes, mesh shapes, axis orders, dtypes, the spelling of products and the place where the output sharding
    is written (``out_shardings`` or a constraint in the function) are drawn at random.
    """
    random_ = random.Random(seed)
    return [_variant(random_, f"variant {seed}.{i}") for i in range(count)]


def _variant(random_: random.Random, name: str) -> BenchProgram:
    axes = axes_of(random_.choice(_MESHES))
    draw = _Draw(random_, axes, random_.choice(_DTYPES), random_.choice(_SPELLINGS))
    what, function, arguments, out = random_.choice(_TEMPLATES)(draw)
    constrained = random_.random() < 0.3
    mesh = "x".join(str(size) for _, size in axes)
    return BenchProgram(
        f"{name}: {what} on {mesh}",
        "dense",
        axes,
        tuple(arguments),
        function=_constrain(function, out) if constrained else function,
        out_shardings=None if constrained else out,
        rounding=True,
    )


def _constrain(function: Callable[..., Any], out: Any) -> Callable[..., Any]:
    """The function with its outputs constrained instead of sharded at the boundary."""
    specs = jax.tree.map(spec, out)

    def constrained(*arguments: Array) -> Any:
        return jax.tree.map(lax.with_sharding_constraint, function(*arguments), specs)

    return constrained
