"""Small programs for two to four devices that every engine can run: a stencil, a chain of reshards, an MLP.

``PROGRAMS`` is the fixed table, ``variants`` draws others like them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array
from jax.lax import with_sharding_constraint

from bench.lower_bound import shardings, short
from bench.programs import Argument, BenchProgram, axes_of, spec
from bench.programs.matmul import mlp
from bench.programs.spellings import FIVE_POINT, MODES, Edge, by_pad, repeated, star

_FAMILY = "engines"


def reshard_chain(placements: Sequence[str]) -> Callable[[Array], tuple[Array, ...]]:
    """The array at one sharding after the other, each an output, and other values each, so that no two are one."""

    def chain(u: Array) -> tuple[Array, ...]:
        out = []
        for i, text in enumerate(placements):
            u = with_sharding_constraint(jnp.flip(u, i % u.ndim) + 1, spec(text))
            out.append(u)
        return tuple(out)

    return chain


def pencils(placements: Sequence[str]) -> Callable[[Array], Array]:
    """Fourier transforms along one dimension after the other, each where it is whole: its place between the shardings
    is ``-``, of which the last counts."""

    def transform(u: Array) -> Array:
        for text in placements:
            whole = max(d for d, axes in enumerate(text.split()) if axes == "-")
            u = jnp.fft.fft(with_sharding_constraint(u, spec(text)), axis=whole)
        return u

    return transform


def _stencil(mesh: str, shape: str, sharding: str, count: int, form: str) -> BenchProgram:
    times = f"x{count}{'' if form == 'unrolled' else ' ' + form}"
    return BenchProgram.define(
        f"stencil {times} on {mesh}", _FAMILY, mesh, (f"{shape}: {sharding}",),
        repeated(by_pad(FIVE_POINT), count, form), sharding,
    )  # fmt: skip


def _pencils(mesh: str, shape: str, *placements: str) -> BenchProgram:
    return BenchProgram.define(
        f"reshards of pencils on {mesh}", _FAMILY, mesh, (f"complex64 {shape}: {placements[0]}",),
        pencils(placements), placements[-1], rounding=True,
    )  # fmt: skip


def _mlp(mesh: str, batch: int, width: int, inner: int, x: str, up: str, down: str) -> BenchProgram:
    arguments = (f"{batch}x{width}: {x}", f"{width}x{inner}: {up}", f"{inner}x{width}: {down}")
    return BenchProgram.define(f"MLP on {mesh}", _FAMILY, mesh, arguments, mlp, x, rounding=True)


PROGRAMS: tuple[BenchProgram, ...] = (
    _stencil("2", "1024x1024", "x -", 8, "unrolled"),
    _stencil("3", "1026x1024", "x -", 8, "unrolled"),
    _stencil("4", "1024x1024", "x -", 8, "unrolled"),
    _stencil("2x2", "1024x1024", "x y", 8, "unrolled"),
    _stencil("2x2", "1024x1024", "x y", 32, "fori"),
    _pencils("2", "512x512", "x -", "- x"),
    _pencils("3", "510x510", "x -", "- x", "x -", "- x"),
    _pencils("4", "64x64x64", "- x -", "x - -", "- - x"),
    _pencils("2x2", "64x64x64", "x y -", "x - y", "- x y", "y - x"),
    _mlp("2", 512, 512, 1024, "- -", "- x", "x -"),
    _mlp("3", 513, 510, 1026, "x -", "- x", "x -"),
    _mlp("4", 512, 512, 1024, "x -", "x -", "- x"),
    _mlp("2x2", 512, 512, 1024, "x -", "- y", "y -"),
)

_MESHES = ("2", "3", "4", "2x2")
_DTYPES = ("float32", "float32", "bfloat16", "float16")


def variants(seed: int, count: int) -> list[BenchProgram]:
    """``count`` other programs of the three kinds in turn, the same for the same seed."""
    random_ = random.Random(seed)
    drawn = _drawn_stencil, _drawn_chain, _drawn_mlp
    return [drawn[i % 3](random_, f"variant {seed}.{i}") for i in range(count)]


def _drawn_stencil(random_: random.Random, name: str) -> BenchProgram:
    mesh = random_.choice(_MESHES)
    sharding = random_.choice(("x y", "y x", "x,y -", "- y,x") if mesh == "2x2" else ("x -", "- x"))
    shape = tuple(12 * random_.choice((3, 5, 8, 20)) for _ in range(2))
    edge: Edge = random_.choice(tuple(MODES))
    radius, steps, form = random_.randint(1, 3), random_.choice((1, 2, 5)), random_.choice(("unrolled", "fori", "scan"))
    return BenchProgram(
        f"{name}: stencil {edge} radius {radius} x{steps} {form}, {_text(shape)} ({sharding}) on {mesh}", _FAMILY,
        axes_of(mesh), (Argument(shape, sharding, random_.choice(_DTYPES)),),
        function=repeated(by_pad(star(2, radius), edge), steps, form), out_shardings=sharding, rounding=True,
    )  # fmt: skip


def _drawn_chain(random_: random.Random, name: str) -> BenchProgram:
    mesh = random_.choice(_MESHES)
    shape = tuple(12 * random_.choice((1, 2, 3, 5)) for _ in range(random_.choice((1, 2, 2, 3))))
    states = [short(state) for state in shardings(dict(axes_of(mesh)), shape)]
    first, *rest = (random_.choice(states) for _ in range(4))
    return BenchProgram(
        f"{name}: reshards {first} to {', '.join(rest)}, {_text(shape)} on {mesh}", _FAMILY, axes_of(mesh),
        (Argument(shape, first, random_.choice((*_DTYPES[1:4], "int8", "int32", "complex64"))),),
        function=reshard_chain(rest), out_shardings=tuple(rest),
    )  # fmt: skip


def _drawn_mlp(random_: random.Random, name: str) -> BenchProgram:
    mesh = random_.choice(_MESHES)
    batch, width, inner = (12 * random_.choice((2, 3, 8, 16)) for _ in range(3))
    x, up, down = (random_.choice(_specs(mesh)) for _ in range(3))
    arguments = (Argument((batch, width), x), Argument((width, inner), up), Argument((inner, width), down))
    return BenchProgram(
        f"{name}: MLP {batch}, {width}, {inner} ({x}; {up}; {down}) on {mesh}", _FAMILY, axes_of(mesh), arguments,
        function=mlp, out_shardings=random_.choice(_specs(mesh)), rounding=True,
    )  # fmt: skip


def _specs(mesh: str) -> tuple[str, ...]:
    return ("x y", "y x", "x,y -", "- y,x", "x -", "- y", "- -") if mesh == "2x2" else ("x -", "- x", "- -")


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
