"""Pads, slices, concatenations, rolls and updates along sharded dimensions, and what users reported of them.

``PROGRAMS`` is the fixed table, ``variants`` draws chains of such operations. ``known`` is what the busiest device
lacks of its result where nothing else is noted, sent by as many collective-permutes as that takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.lax import with_sharding_constraint

from bench.programs import Argument, BenchProgram, axes_of, spec, transports
from bench.programs.spellings import FIVE_POINT, by_pad

_FAMILY = "padslice"
_LINE = "8192: x"
_ROWS = "1024x1024: x -"
_N = 8192


def _uneven_pad(u: Array) -> Array:
    wide = with_sharding_constraint(jnp.pad(u, ((3, 3), (0, 0))), spec("x -"))
    return (wide * 2.0)[3:-3]


def _sum_of_rolls(u: Array) -> Array:
    return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)


# name, mesh, arguments, function, output sharding, known bytes
_LINES: tuple[tuple[str, str, Sequence[str], Callable[..., Any], Any, float | None], ...] = (
    ("roll 1", "8", (_LINE,), lambda u: jnp.roll(u, 1), "x", 4),
    ("roll n/2", "8", (_LINE,), lambda u: jnp.roll(u, _N // 2), "x", 4096),
    ("roll by one shard", "8", (_LINE,), lambda u: jnp.roll(u, _N // 8), "x", 4096),
    ("roll 1500", "8", (_LINE,), lambda u: jnp.roll(u, 1500), "x", 4096),
    ("roll 3000", "8", (_LINE,), lambda u: jnp.roll(u, 3000), "x", 4096),
    ("roll (3,5) on 4x2", "4x2", ("1024x1024: x y",), lambda u: jnp.roll(u, (3, 5), (0, 1)), "x y", 4 * (1536 + 1280)),
    ("flip", "8", (_LINE,), jnp.flip, "x", 4096),
    ("flip rows", "8", (_ROWS,), lambda u: jnp.flip(u, 0), "x -", 524288),
    ("pad (8,0) then crop", "8", (_LINE,), lambda u: jnp.pad(u, (8, 0))[:_N], "x", 32),
    ("pad (4,4)", "8", (_LINE,), lambda u: jnp.pad(u, 4), "x", 24),
    ("pad (0,n)", "8", (_LINE,), lambda u: jnp.pad(u, (0, _N)), "x", 8192),
    ("slice [:n/2]", "8", (_LINE,), lambda u: u[: _N // 2], "x", 4096),
    ("slice [n/4:3n/4]", "8", (_LINE,), lambda u: u[_N // 4 : 3 * _N // 4], "x", 4096),
    ("slice [8:] then pad", "8", (_LINE,), lambda u: jnp.pad(u[8:], (0, 8)), "x", 32),
    ("strided slice", "8", (_LINE,), lambda u: u[::2], "x", 0),
    ("concatenate", "8", (_LINE, _LINE), lambda u, v: jnp.concatenate([u, v]), "x", 16384),
    (
        "concatenate on an unsharded dim", "8", (_ROWS, _ROWS), lambda u, v: jnp.concatenate([u, v], axis=1), "x -", 0,
    ),
    ("concatenate, then slice back", "8", (_LINE, _LINE), lambda u, v: jnp.concatenate([u, v])[:_N], "x", 0),
    ("stack and reshape", "8", (_LINE, _LINE), lambda u, v: jnp.stack([u, v], 1).reshape(-1), "x", 0),
    ("cumsum", "8", (_LINE,), jnp.cumsum, "x", 28),
    ("cummax", "8", (_LINE,), lambda u: lax.cummax(u), "x", 28),
    ("sort", "8", (_LINE,), jnp.sort, "x", None),
    (
        "dynamic_slice of a row", "8", (_ROWS, "int32 : "),
        lambda u, i: lax.dynamic_slice(u, (i, jnp.zeros_like(i)), (1, 1024)), "- -", 7168,
    ),
    (
        "dynamic_update_slice of a row", "8", (_ROWS, "1x1024: - -", "int32 : "),
        lambda u, row, i: lax.dynamic_update_slice(u, row, (i, jnp.zeros_like(i))), "x -", 0,
    ),
    (
        "embedding rows, vocabulary sharded", "8", ("1024x64: x -", "int32 128: -"),
        lambda table, ids: jnp.take(table, ids, axis=0, mode="clip"), "- -", 57344,
    ),
    ("diff, zero padded", "8", (_LINE,), lambda u: u - jnp.pad(u, (1, 0))[:-1], "x", 4),
    ("diff, zero prepended", "8", (_LINE,), lambda u: jnp.diff(u, prepend=0.0), "x", 4),
    ("reshape (8192) to (64,128)", "8", (_LINE,), lambda u: u.reshape(64, 128), "x -", 0),
    ("reshape (64,128) to (8192)", "8", ("64x128: - x",), lambda u: u.reshape(-1), "x", 3584),
    ("transpose", "8", (_ROWS,), jnp.transpose, "x -", 458752),
    ("fft2, rows sharded", "8", ("complex64 1024x1024: x -",), jnp.fft.fft2, "x -", 1835008),
    ("pad by 3 unevenly, scale, slice back", "8", (_ROWS,), _uneven_pad, "x -", 0),
    ("interior pad, then stride", "8", (_LINE,), lambda u: lax.pad(u, 0.0, [(0, 1, 1)])[::2], "x", 0),
)  # fmt: skip


def _concatenated_roll(u: Array) -> Array:
    return jnp.concatenate([u[1:], u[:1]])


def _staggered(u: Array) -> Array:
    periodic = jnp.concatenate([u, u[..., :1]], axis=-1)
    return periodic[..., 1:] - periodic[..., :-1]


def _interior(u: Array) -> Array:
    inner = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u.at[1:-1, 1:-1].set(inner)


def _convolution(**attributes: Any) -> Callable[[Array, Array], Array]:
    return lambda x, k: lax.conv_general_dilated(
        x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **attributes
    )


def _permutation_per_row(u: Array) -> Array:
    return jax.vmap(lambda row: row[np.arange(1023, -1, -1)])(u)


# name, origin, mesh, arguments, function, output sharding, known bytes
_ISSUES: tuple[tuple[str, str, str, Sequence[str], Callable[..., Any], Any, float | None], ...] = (
    ("roll 1 by rows", "jax-ml/jax#15773", "8", (_ROWS,), lambda u: jnp.roll(u, 1, 0), "x -", 4096),
    ("roll as concat", "jax-ml/jax#15773", "8", (_ROWS,), _concatenated_roll, "x -", 4096),
    ("roll 1 + roll -1", "jax-ml/jax#39301", "8", (_ROWS,), _sum_of_rolls, "x -", 8192),
    (
        "5-point, pad wrap", "Enzyme GB-25", "4x2", ("2048x2048: x y",), by_pad(FIVE_POINT, "periodic"), "x y", 12288,
    ),
    (
        "5-point, pad edge", "EnzymeAD/Enzyme-JAX#758", "4x2", ("2048x2048: x y",), by_pad(FIVE_POINT, "edge"), "x y",
        10240,
    ),
    ("5-point, interior update", "EnzymeAD/Reactant.jl#1166", "4x2", ("2048x2048: x y",), _interior, "x y", 10240),
    (
        "conv 3x3, spatial", "", "8", ("1x512x512x32: - x - -", "3x3x32x32: - - - -"), _convolution(), "- x - -",
        131072,
    ),
    (
        "rotate 100 of 1024", "EnzymeAD/Reactant.jl#1166", "8", ("1024x6144: x -",),
        lambda u: jnp.roll(u, -100, 0), "x -", 2457600,
    ),
    (
        "pad of slice, same shape", "EnzymeAD/Reactant.jl#1122", "8", ("1024x4096: x -",),
        lambda u: jnp.pad(u[15:-15], ((15, 15), (0, 0))), "x -", 0,
    ),
    (
        "cat(x, x[...,:1]), replicated", "EnzymeAD/Reactant.jl#1176", "8", ("1024x4096: - x",),
        lambda u: jnp.concatenate([u, u[..., :1]], -1), "- -", 14680064,
    ),
    (
        "cat(x, x[...,:1]), by rows", "EnzymeAD/Reactant.jl#1176", "8", ("1024x4096: - x",),
        lambda u: jnp.concatenate([u, u[..., :1]], -1), "x -", 1835008,
    ),
    ("cat(x, x[...,:1]), differences", "EnzymeAD/Reactant.jl#1176", "8", ("1024x4096: - x",), _staggered, "- x", 4096),
    (
        "fft along an unsharded axis", "jax-ml/jax#15680", "8", ("complex64 2048x2048: x -",),
        lambda u: jnp.fft.fft(u, axis=1), "x -", 0,
    ),
    ("vmap of fft", "jax-ml/jax#20683", "8", ("complex64 2048x2048: x -",), jax.vmap(jnp.fft.fft), "x -", 0),
    (
        "reshape (8,2048) to (2,4,2048)", "openxla/xla#13306", "4", ("8x2048x64: x - -",),
        lambda u: u.reshape(2, 4, 2048, 64), "- x - -", 1 << 20,
    ),
    (
        "concatenate rows", "openxla/xla#34710", "8", (_ROWS, _ROWS), lambda u, v: jnp.concatenate([u, v]), "x -",
        1 << 20,
    ),
    (
        "cumsum along rows", "jax-ml/jax#21403", "8", ("8192x1024: x -",), lambda u: jnp.cumsum(u, 0), "x -", 28672,
    ),
    (
        "grouped convolution, groups=4", "openxla/xla#47945", "4x2", ("8x32x32x128: y - - x", "3x3x32x128: - - - x"),
        _convolution(feature_group_count=4), "y - - x", 0,
    ),
    (
        "x.at[0:3].set", "jax-ml/jax#23052", "8", ("512x512: x -", "3x512: - -"), lambda u, v: u.at[0:3].set(v), "x -",
        0,
    ),
    (
        "crop of an uneven dim, replicated", "", "8", ("1024x4096: x -",), lambda u: u[1:1022], "- -", 14680064,
    ),
    (
        "x[:n/2] + x[n/2:]", "", "8", ("4096x1024: x -",), lambda u: u[:2048] + u[2048:], "x -", 2097152,
    ),
    (
        "reflect pad, then crop", "", "8", (_ROWS,),
        lambda u: (jnp.pad(u, ((4, 4), (0, 0)), mode="reflect") * 2.0)[4:-4], "x -", 0,
    ),
    (
        "chunk of a fused projection", "tenstorrent/tt-forge#775", "8", ("2048x6144: - x",),
        lambda u: tuple(jnp.split(u, 3, 1)), ("- x",) * 3, 6291456,
    ),
    (
        "chunk of a fused product", "tenstorrent/tt-forge#775", "8", ("2048x256: - -", "256x6144: - x"),
        lambda x, w: tuple(jnp.split(x @ w, 3, 1)), ("- x",) * 3, 786432,
    ),
    # Communication-free already: guards.
    ("nested slices", "", "8", (_ROWS,), lambda u: u[:, 4:][:, 8:1000], "x -", 0),
    ("x.at[:,0:3].set", "jax-ml/jax#23052", "8", (_ROWS,), lambda u: u.at[:, 0:3].set(0.0), "x -", 0),
    ("x[::2] + x[1::2]", "", "8", (_LINE,), lambda u: u[::2] + u[1::2], "x", 0),
    ("permutation of every row", "jax-ml/jax#20381", "8", (_ROWS,), _permutation_per_row, "x -", 0),
    (
        "depthwise convolution, batch sharded", "", "8", ("8x32x32x16: x - - -", "3x3x1x16: - - - -"),
        _convolution(feature_group_count=16), "x - - -", 0,
    ),
)  # fmt: skip


def _fixed() -> Iterable[BenchProgram]:
    for name, mesh, arguments, function, out, known in _LINES:
        rounding = name in ("cumsum", "fft2, rows sharded")
        yield BenchProgram.define(
            name, _FAMILY, mesh, arguments, function, out, known=known, rounding=rounding, control=known == 0
        )
    for name, origin, mesh, arguments, function, out, known in _ISSUES:
        # Padding both dimensions asks for corners, which the 5-point stencil does not read: four elements at most.
        target = known + 16 if known is not None and name.startswith("5-point") else None
        yield BenchProgram.define(
            f"issue: {name}", _FAMILY, mesh, arguments, function, out, known=known, target=target, origin=origin,
            rounding=True,
        )  # fmt: skip


PROGRAMS: tuple[BenchProgram, ...] = (*_fixed(), *transports.PROGRAMS)

_MESHES = ("8", "8", "4x2", "2x4", "2x2", "6", "3x2")
_DTYPES = ("float32", "float32", "bfloat16", "float16", "int32")
_KINDS = ("roll", "pad", "crop", "wrap", "edge", "flip", "repeat", "stride", "double", "shift and add")
Move = Callable[[Array], Array]


def variants(seed: int, count: int) -> list[BenchProgram]:
    """``count`` chains of moves along sharded dimensions, the same for the same seed.

    Moves change sizes by any amount, so that values inside a program lie unevenly; the last one gives the size of the
    input again. Between moves there may be a product or a sum with what was before.
    """
    random_ = random.Random(seed)
    return [_variant(random_, f"variant {seed}.{i}") for i in range(count)]


def _variant(random_: random.Random, name: str) -> BenchProgram:
    mesh = random_.choice(_MESHES)
    axes = axes_of(mesh)
    names = [axis for axis, _ in axes]
    random_.shuffle(names)
    dims: list[list[str]] = [[], []]
    for axis in names:
        dims[random_.randrange(2)].append(axis)
    sizes = dict(axes)
    shape = tuple(math.prod(sizes[a] for a in dim) * random_.choice((2, 3, 7, 16, 40)) for dim in dims)
    axis = random_.choice([a for a, dim in enumerate(dims) if dim])
    sharding = " ".join(",".join(dim) or "-" for dim in dims)
    moves, words, n = [], [], shape[axis]
    for _ in range(random_.randint(1, 4)):
        word, move, n = _move(random_, n, axis)
        moves.append(move)
        words.append(word)
    fit = random_.choice((_fit_by_slice, _fit_by_update))

    def chain(u: Array) -> Array:
        v = u
        for move in moves:
            v = move(v)
        return fit(v, u, axis)

    return BenchProgram(
        f"{name}: {', '.join(words)}, {'x'.join(map(str, shape))} ({sharding}) on {mesh}",
        _FAMILY,
        axes,
        (Argument(shape, sharding, random_.choice(_DTYPES)),),
        function=chain,
        out_shardings=sharding,
    )


def _move(random_: random.Random, n: int, axis: int) -> tuple[str, Move, int]:
    """A move along ``axis`` of size ``n``: its name, the function, the size after it."""
    at = random_.randint(1, max(1, min(n - 1, 9)))
    low, high = random_.randint(0, 5), random_.randint(0, 5)
    kind = random_.choice(_KINDS)
    if n < 2:
        kind = "pad"
    if kind == "roll":
        return f"roll {at}", lambda u: jnp.roll(u, at, axis), n
    if kind == "crop":
        stop = max(at + 1, n - high)
        return f"crop {at}:{stop}", lambda u: lax.slice_in_dim(u, at, stop, axis=axis), stop - at
    if kind == "flip":
        return "flip", lambda u: jnp.flip(u, axis), n
    if kind == "repeat":
        return f"cat first {at}", lambda u: jnp.concatenate([u, lax.slice_in_dim(u, 0, at, axis=axis)], axis), n + at
    if kind == "stride":
        return "stride 2", lambda u: lax.slice_in_dim(u, 0, n, 2, axis), (n + 1) // 2
    if kind == "double":
        return "cat twice", lambda u: jnp.concatenate([u, u * 2], axis), 2 * n
    if kind == "shift and add":
        return f"add roll {at}", lambda u: u + jnp.roll(u, at, axis), n
    mode = {"pad": "constant", "wrap": "wrap", "edge": "edge"}[kind]
    widths = [(low, high) if a == axis else (0, 0) for a in range(2)]
    return f"{kind} {low},{high}", lambda u: jnp.pad(u, widths, mode=mode), n + low + high


def _fit_by_slice(v: Array, u: Array, axis: int) -> Array:
    """Cut from the start, or zeros behind."""
    n, size = u.shape[axis], v.shape[axis]
    if size >= n:
        return lax.slice_in_dim(v, 0, n, axis=axis)
    return jnp.pad(v, [(0, n - size) if a == axis else (0, 0) for a in range(u.ndim)])


def _fit_by_update(v: Array, u: Array, axis: int) -> Array:
    """What fits, in the middle of the input."""
    size = min(u.shape[axis], v.shape[axis])
    start = (u.shape[axis] - size) // 2
    at = tuple(slice(start, start + size) if a == axis else slice(None) for a in range(u.ndim))
    return u.at[at].set(lax.slice_in_dim(v, 0, size, axis=axis))
