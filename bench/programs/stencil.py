"""Stencils on sharded domains: one step, several, and loops, in the spellings of user code, and field codes.

``PROGRAMS`` is the fixed table, ``variants`` draws others. A stencil of radius r along a dimension that is sharded
must move 2 r layers per step and tile at least, which is what ``known`` says where nothing else is noted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jax import Array
from jax.lax import with_sharding_constraint

from bench.programs import Argument, BenchProgram, axes_of, fields, spec
from bench.programs.spellings import (
    FIVE_POINT,
    MODES,
    NINE_POINT,
    SPELLINGS,
    Edge,
    Step,
    by_convolution,
    by_pad,
    by_shift,
    repeated,
    roll,
    spelled,
    star,
)

_FAMILY = "stencil"
_ROWS, _TILES = "1024x1024: x -", "1024x1024: x y"
_LINE = "8192: x"


def _line_pad(u: Array) -> Array:
    padded = jnp.pad(u, 1)
    return 0.5 * (padded[:-2] + padded[2:])


def _line_concat(u: Array) -> Array:
    wrapped = jnp.concatenate([u[-1:], u, u[:1]])
    return 0.5 * (wrapped[:-2] + wrapped[2:])


def _line_update(u: Array) -> Array:
    return u.at[1:-1].set(0.5 * (u[:-2] + u[2:]))


_LINES: tuple[tuple[str, Step], ...] = (
    ("roll", lambda u: 0.5 * (jnp.roll(u, 1) + jnp.roll(u, -1))),
    ("convolve", lambda u: jnp.convolve(u, jnp.array([0.5, 0.0, 0.5], u.dtype), mode="same")),
    ("pad 0 + slice", _line_pad),
    ("periodic concat + slice", _line_concat),
    (".at[1:-1].set", _line_update),
)

# name, step, bytes per step on 8 rows of tiles; on 4x2; the most allowed there. On 4x2 there are two rows and, around
# a periodic domain, two columns, with corners or not; between walls each of two devices has one neighbour.
_PLANES: tuple[tuple[str, Step, int, int, int], ...] = (
    ("5-point roll", by_shift(FIVE_POINT, roll, "periodic"), 8192, 6144, 6144),
    ("5-point pad 0", by_pad(FIVE_POINT), 8192, 5120, 6144),
    ("5-point convolution", by_convolution(FIVE_POINT), 8192, 5120, 6160),
    ("9-point roll", by_shift(NINE_POINT, roll, "periodic"), 8192, 6160, 6160),
    ("9-point pad 0", by_pad(NINE_POINT), 8192, 5128, 6160),
    ("9-point convolution", by_convolution(NINE_POINT), 8192, 5128, 6160),
)
_FORMS = (("unrolled", 1), ("unrolled", 4), ("unrolled", 8), ("fori", 8), ("fori", 100), ("scan", 8), ("scan", 100))
# What a usual run shows besides one step.
_USUAL = {
    "5-point pad 0": {("unrolled", 8), ("fori", 8), ("fori", 100)},
    "5-point roll": {("unrolled", 8), ("fori", 100)},
    "9-point pad 0": {("unrolled", 8)},
}


def _title(what: str, form: str, count: int) -> str:
    return what if (form, count) == ("unrolled", 1) else f"{what} x{count}{'' if form == 'unrolled' else ' ' + form}"


def _table() -> Iterable[BenchProgram]:
    for what, step in _LINES:
        for form, count in (*_FORMS[:3], ("fori", 8)):
            yield BenchProgram.define(
                f"1D {_title(what, form, count)}", _FAMILY, "8", (_LINE,), repeated(step, count, form), "x",
                known=8 * count, extra=count > 1 and what[:3] != ".at" and (form, count) != ("unrolled", 8),
            )  # fmt: skip
    for what, step, rows, tiles, allowed in _PLANES:
        for mesh, argument, known, most in (("8", _ROWS, rows, rows), ("4x2", _TILES, tiles, allowed)):
            for form, count in _FORMS:
                usual = count == 1 or (form, count) in _USUAL.get(what, ()) and (mesh == "8" or "5" in what)
                sharding = argument.partition(": ")[2]
                yield BenchProgram.define(
                    f"2D {_title(what, form, count)} ({sharding.replace(' ', ',')})", _FAMILY, mesh, (argument,),
                    repeated(step, count, form), sharding, known=known * count, target=most * count,
                    extra=not usual,
                )  # fmt: skip


def uneven(rows: int, step: Step, known: float, what: str) -> BenchProgram:
    """A step on rows that 8 devices do not divide: cut from an even array, and padded to one again.

    The rows lie in tiles of ``ceil(rows / 8)`` inside, which is what the even array has too.
    """
    even = -(-rows // 8) * 8

    def inside(u: Array) -> Array:
        domain = with_sharding_constraint(u[:rows], spec("x -"))
        return jnp.pad(step(domain), ((0, even - rows), (0, 0)))

    return BenchProgram.define(
        f"2D {what}, {rows} rows", _FAMILY, "8", (f"{even}x1024: x -",), inside, "x -", known=known
    )


def _shapes() -> Iterable[BenchProgram]:
    """Radii, domains that the mesh does not divide, and tiles narrower than the halo."""
    row = 4 * 1024
    for radius in (1, 2, 3):
        for edge in MODES:
            yield BenchProgram.define(
                f"2D radius {radius} pad {edge}", _FAMILY, "8", (_ROWS,), by_pad(star(2, radius), edge), "x -",
                known=2 * radius * row, extra=radius == 2 or edge == "zero",
            )  # fmt: skip
    yield uneven(1003, by_pad(FIVE_POINT), 2 * row, "5-point pad 0")
    yield uneven(1003, by_pad(FIVE_POINT, "periodic"), 2 * row, "5-point pad wrap")
    yield uneven(1003, repeated(by_pad(FIVE_POINT), 8), 16 * row, "5-point pad 0 x8")
    yield BenchProgram.define(
        "2D 5-point pad 0 on 6", _FAMILY, "6", ("1002x1024: x -",), by_pad(FIVE_POINT), "x -", known=2 * row
    )
    for size, radius, count in ((16, 3, 1), (16, 1, 8), (8, 2, 1), (32, 3, 4)):
        what, extra = f"2D radius {radius} x{count}, tiles of {size // 8}", count > 1
        # Layers, or all rows at once, or rows to columns and back in every step.
        known = row * min(2 * radius * count, size - size // 8, 2 * size // 8 * 7 / 8 * count)
        for how, step in (
            ("edge", by_pad(star(2, radius), "edge")), ("roll", by_shift(star(2, radius), roll, "periodic"))
        ):  # fmt: skip
            yield BenchProgram.define(
                f"{what}, {how}", _FAMILY, "8", (f"{size}x1024: x -",), repeated(step, count), "x -",
                known=known, extra=extra,
            )  # fmt: skip


PROGRAMS: tuple[BenchProgram, ...] = (*_table(), *_shapes(), *fields.PROGRAMS)

_MESHES = ("8", "8", "4x2", "2x4", "2x2x2", "2x2", "6", "3x2", "4")
_DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


def variants(seed: int, count: int) -> list[BenchProgram]:
    """``count`` other stencils, the same for the same seed.

    Rank, mesh, axis order, sizes (tiles of one element and up, mostly no powers of two), element type, radius, edge,
    number of steps, loop and spelling are drawn.
    """
    random_ = random.Random(seed)
    return [_variant(random_, f"variant {seed}.{i}") for i in range(count)]


def _variant(random_: random.Random, name: str) -> BenchProgram:
    mesh = random_.choice(_MESHES)
    axes = axes_of(mesh)
    rank = random_.choice((1, 2, 2, 2, 3)) if len(axes) < 3 else 2
    names = [axis for axis, _ in axes]
    random_.shuffle(names)
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in names:
        dims[random_.randrange(rank)].append(axis)
    sizes = dict(axes)
    shape = tuple(math.prod(sizes[a] for a in dim) * random_.choice((1, 2, 3, 5, 12, 25)) for dim in dims)
    shape = tuple(max(size, 4) if not dim else size * (1 + (size < 4)) for size, dim in zip(shape, dims, strict=True))
    shape = tuple(s * (4 if s < 4 else 1) for s in shape)
    most = min(3, min(shape) - 1)
    radius = random_.randint(1, most)
    edge: Edge = random_.choice(tuple(MODES))
    spelling = random_.choice(SPELLINGS)
    steps, form = random_.choice((1, 1, 2, 3, 5, 8)), random_.choice(("unrolled", "unrolled", "fori", "scan"))
    taps = NINE_POINT if rank == 2 and random_.random() < 0.3 else star(rank, radius)
    sharding = " ".join(",".join(dim) or "-" for dim in dims)
    function: Callable[..., Array] = repeated(spelled(spelling, taps, edge), steps, form)
    return BenchProgram(
        f"{name}: {spelling} {edge} radius {max(map(max, taps))} x{steps} {form}, "
        f"{'x'.join(map(str, shape))} ({sharding}) on {mesh}",
        _FAMILY,
        axes,
        (Argument(shape, sharding, random_.choice(_DTYPES)),),
        function=function,
        out_shardings=sharding,
        rounding=True,
    )
