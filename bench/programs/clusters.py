"""Programs of one size for meshes of any number of devices: what is asked of a planner for 8 and for 4,096 of them.

Shardings name the axes x, y and z; axes that a mesh does not have are left out. All sizes that are sharded are
multiples of 4,096, but for heads, sequences, experts, and what is said to be uneven.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from bench.programs import BenchProgram, axes_of
from bench.programs.fields import heat_dirichlet, shallow_water
from bench.programs.matmul import mlp
from bench.programs.models import gradients
from bench.programs.spellings import FIVE_POINT, by_pad, by_shift, repeated, roll
from bench.programs.training import (
    adam_step,
    gated_layer,
    mixture,
    momentum_step,
    scanned,
    stacked,
)

_FAMILY = "clusters"
#: Weights of `gated_layer` and how they lie: batches over x and z, rows of weights over z, heads over y.
_WEIGHTS = (
    "8192: -", "8192x8192: z y", "8192x4096: z y", "8192x4096: z y", "8192x8192: y z",
    "8192: -", "8192x16384: z y", "8192x16384: z y", "16384x8192: y z",
)  # fmt: skip
_TOKENS = "4096x256x8192: x,z - -"
_PLANE, _SPACE = "16384x16384: x,z y", "4096x4096x4096: x y z"
_MATRIX = "65536x65536"


def seven_point(u: Array) -> Array:
    """A step of heat in space, periodic."""
    return u + 0.1 * (sum(jnp.roll(u, s, d) for d in range(3) for s in (-1, 1)) - 6.0 * u)


def _identity(*arrays: Array) -> tuple[Array, ...]:
    return arrays


def _both(count: int, weights: Sequence[str]) -> tuple[str, ...]:
    """Stacked weights: one more dimension in front, held whole."""
    return tuple(f"{count}x{w.replace(': ', ': - ')}" for w in weights)


def _specs(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(argument.partition(": ")[2] for argument in arguments)


#: Programs that a usual run leaves out: they take half of the time of all of them.
_LONG = frozenset({
    "GQA training, 1 layer", "GQA training, Adam, 4 layers", "GQA training, scan of 8 layers", "heat, loop of 100",
})  # fmt: skip
#: Name, arguments, function, where results lie.
_Row = tuple[str, Sequence[str], Callable[..., Any], Any]


def _reshard(name: str, shape: str, source: str, target: str) -> _Row:
    return name, (f"{shape}: {source}",), lambda value: value, target


def _rows() -> list[_Row]:
    layer = gated_layer(64, 32)
    fsdp = ("8192x32768: x,y,z -", "32768x8192: x,y,z -")
    data = ("65536x8192: x,y,z -",) * 2
    experts = ("8192x64: - -", "64x8192x16384: x y z", "64x16384x8192: x z y")
    return [
        ("GQA block", (_TOKENS, *_WEIGHTS), layer, "x,z - -"),
        ("GQA training, 1 layer", (_TOKENS, _TOKENS, *_WEIGHTS * 2), momentum_step(layer), (_specs(_WEIGHTS),) * 2),
        ("GQA training, Adam, 4 layers", (_TOKENS, _TOKENS, *_WEIGHTS * 12), adam_step(stacked(layer, 9)),
         (_specs(_WEIGHTS * 4),) * 3),
        ("GQA training, scan of 8 layers", (_TOKENS, _TOKENS, *_both(8, _WEIGHTS) * 2), momentum_step(scanned(layer)),
         (_specs(_both(8, _WEIGHTS)),) * 2),
        ("mixture of experts", ("256x256x8192: x - -", *experts), mixture(64, 4096), "x - -"),
        ("MLP training, FSDP", (*fsdp, *data), gradients(mlp, 2), _specs(fsdp)),
        ("MLP, 2-D weights", ("65536x8192: x -", "8192x32768: z y", "32768x8192: y z"), mlp, "x -"),
        _reshard("reshard: pair moves", _SPACE[:14], "x,y z -", "z x,y -"),
        _reshard("reshard: rotation", _SPACE[:14], "x y z", "y z x"),
        _reshard("reshard: merge", _SPACE[:14], "x y z", "x,y,z - -"),
        _reshard("reshard: unmerge, permuted", _SPACE[:14], "x,y,z - -", "z y x"),
        _reshard("reshard: order", _MATRIX, "x,y,z -", "z,y,x -"),
        _reshard("reshard: pair shift", _MATRIX, "x,y -", "y,z -"),
        _reshard("reshard: all to columns", _MATRIX, "x,y,z -", "- x,y,z"),
        ("transposes and reshapes", ("4096x4096x4096: x y z",),
         lambda u: (u.transpose(1, 0, 2).reshape(4096, -1), u.reshape(-1, 4096).T), ("x,y z", "- x,y,z")),
        ("heat, uneven rows", ("16380x16384: - y",), lambda u: repeated(heat_dirichlet, 4)(u), "- y"),
        ("5-point, 8 steps, zeros", (_PLANE,), repeated(by_pad(FIVE_POINT), 8), "x,z y"),
        ("5-point, 8 steps, periodic", (_PLANE,), repeated(by_shift(FIVE_POINT, roll, "periodic"), 8), "x,z y"),
        ("heat, loop of 100", (_PLANE,), repeated(heat_dirichlet, 100, "fori"), "x,z y"),
        ("heat in space, 4 steps", (_SPACE,), repeated(seven_point, 4), "x y z"),
        ("shallow water, 4 steps", (_PLANE,) * 3,
         lambda *state: repeated(shallow_water, 4)(state), ("x,z y",) * 3),
    ]  # fmt: skip


def _on(axes: frozenset[str], text: str) -> str:
    """A spec in short, without the axes that a mesh does not have."""
    dims = (",".join(a for a in dim.split(",") if a in axes) for dim in text.split())
    return " ".join(dim or "-" for dim in dims)


def names(everything: bool = True) -> list[str]:
    """The kinds of programs; but for the longest, unless asked for everything."""
    return [name for name, *_ in _rows() if everything or name not in _LONG]


def variants(seed: int, count: int) -> list[str]:
    """The names of ``count`` other programs, the same for the same seed."""
    return [name for name, *_ in _drawn(seed, count)]


def _drawn(seed: int, count: int) -> list[_Row]:
    """Reshards, products, steps of stencils and layers by turns, of random sizes and shardings."""
    rng = random.Random(seed)
    makers = (_drawn_reshard, _drawn_mlp, _drawn_stencil, _drawn_layer)
    return [makers[i % len(makers)](f"variant {seed}.{i}: ", rng) for i in range(count)]


def _drawn_spec(rng: random.Random, rank: int) -> str:
    """A sharding that uses each axis at most once."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in rng.sample("xyz", 3):
        if (d := rng.randrange(rank + 1)) < rank:
            dims[d].append(axis)
    return " ".join(",".join(dim) or "-" for dim in dims)


def _drawn_reshard(prefix: str, rng: random.Random) -> _Row:
    rank = rng.choice((2, 3))
    shape = "x".join(str(4096 * rng.choice((1, 2, 3, 5))) for _ in range(rank))
    source, target = _drawn_spec(rng, rank), _drawn_spec(rng, rank)
    return _reshard(f"{prefix}reshard {shape}: {source} to {target}", shape, source, target)


def _drawn_mlp(prefix: str, rng: random.Random) -> _Row:
    rows, width, hidden = (4096 * rng.choice((1, 2, 3, 4, 6, 8)) for _ in range(3))
    specs = [_drawn_spec(rng, 2) for _ in range(4)]
    arguments = (f"{rows}x{width}: {specs[0]}", f"{width}x{hidden}: {specs[1]}", f"{hidden}x{width}: {specs[2]}")
    return f"{prefix}MLP {rows}x{width}x{hidden}: {' | '.join(specs)}", arguments, mlp, specs[3]


def _drawn_stencil(prefix: str, rng: random.Random) -> _Row:
    rows, columns = (4096 * rng.choice((1, 2, 3, 4)) for _ in range(2))
    spec, steps, periodic = _drawn_spec(rng, 2), rng.randint(1, 4), rng.random() < 0.5
    step = by_shift(FIVE_POINT, roll, "periodic") if periodic else by_pad(FIVE_POINT)
    name = f"{prefix}5-point, {steps} steps, {'periodic' if periodic else 'zeros'}, {rows}x{columns}: {spec}"
    return name, (f"{rows}x{columns}: {spec}",), repeated(step, steps), spec


def _drawn_layer(prefix: str, rng: random.Random) -> _Row:
    tokens, batch = rng.choice(("x,z - -", "x - -", "x,z y -")), 4096 * rng.choice((1, 2))
    argument = f"{batch}x128x8192: {tokens}"
    return f"{prefix}GQA block, {argument}", (argument, *_WEIGHTS), gated_layer(64, 32), tokens


def program(name: str, mesh: str) -> BenchProgram:
    """The program of this name on a mesh such as ``16x16x16``."""
    if name.startswith("variant "):
        seed, _, number = name.split()[1].rstrip(":").partition(".")
        rows = _drawn(int(seed), int(number) + 1)
    else:
        rows = _rows()
    arguments, function, out = next(row[1:] for row in rows if row[0] == name)
    axes = frozenset(axis for axis, _ in axes_of(mesh))

    def placed(spec: Any) -> Any:
        return _on(axes, spec) if isinstance(spec, str) else tuple(map(placed, spec))

    given = []
    for argument in arguments:
        shape, _, spec = argument.partition(": ")
        given.append(f"{shape}: {_on(axes, spec)}")
    return BenchProgram.define(name, _FAMILY, mesh, given, function, placed(out))
