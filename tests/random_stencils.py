"""Random programs on fields: neighbours in every spelling, all kinds of domain edges, masks, reductions, loops.

A program is its source text, so that what a failing test prints can be run as it stands.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Shape = tuple[int, ...]
Spec = tuple[tuple[str, ...], ...]

MESHES: tuple[dict[str, int], ...] = (
    {"x": 8}, {"x": 4}, {"x": 2}, {"x": 4, "y": 2}, {"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 3, "y": 2},
)  # fmt: skip
DTYPES = ("int32", "int32", "float32", "float32", "bfloat16")
EDGES = ("constant", "constant", "edge", "reflect", "symmetric", "wrap")
#: Sizes of values stay below this.
ELEMENTS = 3000


@dataclass(frozen=True)
class Argument:
    """An input: its shape, dtype name, and axes per dimension, which divide it."""

    shape: Shape
    dtype: str
    spec: Spec

    def draw(self, rng: np.random.Generator, special: bool) -> np.ndarray:
        """Small integers, so that sums are exact in every order; with NaN and infinities where ``special``."""
        dtype = jnp.dtype(self.dtype)
        if dtype == np.bool_:
            return rng.integers(0, 2, self.shape).astype(bool)
        array: np.ndarray = rng.integers(0 if dtype.kind == "u" else -4, 5, self.shape).astype(dtype)
        if special and dtype.kind not in "iu":
            odd = rng.random(self.shape) < 0.08
            array = np.where(odd, rng.choice([np.nan, np.inf, -np.inf], self.shape), array).astype(dtype)
        return array


@dataclass(frozen=True)
class FieldProgram:
    """A function's source, its arguments, and where its results lie (None: anywhere)."""

    mesh: dict[str, int]
    arguments: tuple[Argument, ...]
    lines: tuple[str, ...]
    results: tuple[tuple[str, Spec | None], ...]

    @property
    def source(self) -> str:
        names = ", ".join(f"a{i}" for i in range(len(self.arguments)))
        body = [*self.lines, f"return ({''.join(f'{name}, ' for name, _ in self.results)})"]
        return "\n".join([f"def f({names}):", *("    " + line for line in body)])

    def __str__(self) -> str:
        return f"mesh {self.mesh}\n{self.arguments}\n{self.source}\nresults {self.results}"

    def lower(self) -> jax.stages.Lowered:
        scope: dict[str, Any] = {"jnp": jnp, "lax": lax, "np": np, "jax": jax}
        exec(self.source, scope)
        results = tuple(None if spec is None else placed(self.mesh, spec) for _, spec in self.results)
        return lowered(scope["f"], self.mesh, self.arguments, results)

    def inputs(self, rng: np.random.Generator, special: bool = False) -> list[np.ndarray]:
        """Small integers, so that sums are exact in every order; with NaN and infinities where ``special``."""
        return [a.draw(rng, special) for a in self.arguments]


def placed(mesh: dict[str, int], spec: Spec) -> NamedSharding:
    devices = np.array(jax.devices()[: math.prod(mesh.values())]).reshape(tuple(mesh.values()))
    return NamedSharding(Mesh(devices, tuple(mesh)), PartitionSpec(*(axes or None for axes in spec)))


def lowered(function: Callable[..., Any], mesh: dict[str, int], arguments: Sequence[Argument], results: Any
            ) -> jax.stages.Lowered:
    """The function for these arguments; ``results`` are shardings as `jax.jit` takes them."""
    places = tuple(placed(mesh, a.spec) for a in arguments)
    jitted = jax.jit(function, in_shardings=places, out_shardings=results, keep_unused=True)
    return jitted.lower(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments))


@dataclass
class Drawing:
    """A program being drawn: its lines, and the values that later lines may use."""

    rng: random.Random
    mesh: dict[str, int]
    arguments: list[Argument]
    values: dict[str, tuple[Shape, str]]
    lines: list[str] = field(default_factory=list)
    count: int = 0
    most: int = ELEMENTS

    def emit(self, expression: str, like: Any = None) -> str | None:
        """A line that makes a value; None, and no line, where JAX refuses it or it is too large."""
        try:
            made = jax.eval_shape(
                lambda **values: eval(expression, {"jnp": jnp, "lax": lax, "np": np, "jax": jax}, values),
                **{name: jax.ShapeDtypeStruct(*value) for name, value in self.values.items()},
            )
        except (TypeError, ValueError, IndexError):
            return None
        if math.prod(made.shape) > self.most or 0 in made.shape:
            return None
        name = f"v{self.count}"
        self.count += 1
        self.values[name] = made.shape, str(made.dtype)
        self.lines.append(f"{name} = {expression}")
        return name


def at(rank: int, axis: int, inside: str) -> str:
    """An index: ``inside`` along an axis."""
    return "[" + ", ".join(inside if a == axis else ":" for a in range(rank)) + "]"


def widths(rank: int, axis: int, low: int, high: int) -> str:
    return "[" + ", ".join(f"({low}, {high})" if a == axis else "(0, 0)" for a in range(rank)) + "]"


def constant(d: Drawing, dtype: str, special: bool) -> str:
    if dtype == "bool":
        return d.rng.choice(["True", "False"])
    if special and "float" in dtype:
        return d.rng.choice(["0", "3", "jnp.nan", "jnp.inf", "-jnp.inf"])
    return d.rng.choice(["0", "0", "3", "-2"])


def summed(terms: Sequence[str], dtype: str) -> str:
    return f" {'^' if dtype == 'bool' else '+'} ".join(terms)


class Step:
    """Draws one expression of one field along one of its axes, for a radius."""

    def __init__(self, d: Drawing, special: bool):
        self.d, self.special = d, special
        self.rng = d.rng
        self.v = d.rng.choice(list(d.values)[-4:])
        self.shape, self.dtype = d.values[self.v]
        self.rank = len(self.shape)
        self.axis = d.rng.randrange(self.rank) if self.rank else 0
        self.n = self.shape[self.axis] if self.rank else 0
        self.r = d.rng.choice((1, 1, 2, 3))

    def sl(self, inside: str, v: str | None = None, axis: int | None = None) -> str:
        return (v or self.v) + at(self.rank, self.axis if axis is None else axis, inside)

    def pad(self) -> str:
        mode = self.rng.choice(EDGES)
        low, high = self.rng.choice([(self.r, self.r), (self.r, 0), (0, self.r), (self.r, self.r - 1)])
        value = f", constant_values={constant(self.d, self.dtype, self.special)}" if mode == "constant" else ""
        return f"jnp.pad({self.v}, {widths(self.rank, self.axis, low, high)}, mode={mode!r}{value})"

    def pad_stencil(self) -> str | None:
        """Pad, and add slices."""
        mode = self.rng.choice(EDGES)
        value = f", constant_values={constant(self.d, self.dtype, self.special)}" if mode == "constant" else ""
        p = self.d.emit(f"jnp.pad({self.v}, {widths(self.rank, self.axis, self.r, self.r)}, mode={mode!r}{value})")
        if p is None:
            return None
        offsets = self.rng.sample(range(2 * self.r + 1), self.rng.randint(1, min(3, 2 * self.r + 1)))
        return summed([self.sl(f"{o}:{o + self.n}", p) for o in offsets], self.dtype)

    def pad_all(self) -> str | None:
        """Pad every axis, and add slices on a star or a box."""
        mode = self.rng.choice(EDGES)
        p = self.d.emit(f"jnp.pad({self.v}, {self.r}, mode={mode!r})")
        if p is None:
            return None
        terms = []
        for _ in range(self.rng.randint(2, 4)):
            moved = [self.rng.choice((0, self.r, 2 * self.r)) for _ in self.shape]
            terms.append(p + "[" + ", ".join(f"{o}:{o + n}" for o, n in zip(moved, self.shape, strict=True)) + "]")
        return summed(terms, self.dtype)

    def roll(self) -> str:
        amounts = self.rng.sample(range(-self.r, self.r + 1), self.rng.randint(1, 2))
        return summed([f"jnp.roll({self.v}, {k}, {self.axis})" for k in amounts], self.dtype)

    def roll_all(self) -> str:
        axes = tuple(range(self.rank))
        return summed([
            f"jnp.roll({self.v}, {tuple(self.rng.choice((-self.r, 0, self.r)) for _ in axes)}, {axes})"
            for _ in range(2)
        ], self.dtype)

    def concat_roll(self) -> str:
        return f"jnp.concatenate([{self.sl(f'{self.r}:')}, {self.sl(f':{self.r}')}], {self.axis})"

    def concat_wrap(self) -> str:
        parts = [self.sl(f"{self.n - self.r}:"), self.v, self.sl(f":{self.r}")]
        return f"jnp.concatenate([{', '.join(parts[self.rng.randrange(2):])}], {self.axis})"

    def concat_edges(self) -> str:
        low = self.rng.choice([self.sl(":1"), f"jnp.zeros_like({self.sl(':1')})", self.sl("1:2")])
        return f"jnp.concatenate([{low}, {self.v}, {self.sl(f'{self.n - 1}:')}], {self.axis})"

    def concat_any(self) -> str:
        others = [w for w, (s, t) in self.d.values.items() if t == self.dtype and len(s) == self.rank
                  and all(m == n or a == self.axis for a, (m, n) in enumerate(zip(s, self.shape, strict=True)))]
        return f"jnp.concatenate([{self.v}, {self.rng.choice(others)}], {self.axis})"

    def at_set(self) -> str:
        low, high = self.rng.choice([(self.r, self.r), (self.r, 0), (0, self.r)])
        shift = self.rng.choice([-low, high])
        inside = self.sl(f"{low + shift}:{self.n - high + shift}")
        how = self.rng.choice(["set", "set", "add"]) if self.dtype != "bool" else "set"
        value = self.rng.choice([inside, f"{inside} + {self.sl(f'{low}:{self.n - high}')}", "1"])
        return f"{self.v}.at{at(self.rank, self.axis, f'{low}:{self.n - high}')}.{how}({value})"

    def at_set_all(self) -> str:
        """The interior along every axis."""
        inside = ", ".join(f"{self.r}:{n - self.r}" for n in self.shape)
        moved = ", ".join(f"{self.r + k}:{n - self.r + k}" for n in self.shape
                          for k in [self.rng.choice((-self.r, 0, self.r))])
        return f"{self.v}.at[{inside}].set({self.v}[{moved}])"

    def diff(self) -> str:
        return f"jnp.diff({self.v}, axis={self.axis})"

    def shrink(self) -> str:
        low, high = self.rng.choice([(self.r, self.r), (1, 1), (0, self.r), (self.r, 0)])
        return self.sl(f"{low}:{self.n - high}")

    def difference(self) -> str:
        return f"{self.sl(f'{self.r}:')} - {self.sl(f':{self.n - self.r}')}"

    def lax_pad(self) -> str:
        config = [(0, 0, 0)] * self.rank
        config[self.axis] = self.rng.choice([
            (-self.r, self.r, 0), (self.r, -self.r, 0), (-1, -1, 0), (1, 1, 1), (0, 0, 1), (-1, 2, 1), (self.r, 0, 0),
        ])
        value = constant(self.d, self.dtype, self.special)
        return f"lax.pad({self.v}, jnp.asarray({value}, {self.v}.dtype), {config})"

    def strided(self) -> str:
        start = self.rng.randrange(2)
        return self.sl(f"{start}:{self.rng.choice([self.n, self.n - 1])}:{self.rng.choice((2, 2, 3))}")

    def halves(self) -> str:
        return summed([self.sl(f":{self.n // 2}"), self.sl(f"{self.n // 2}:{self.n // 2 * 2}")], self.dtype)

    def flip(self) -> str:
        return f"jnp.flip({self.v}, {self.axis})"

    def fold(self) -> str:
        """A halo that is the mirror image of the domain."""
        return f"jnp.concatenate([{self.v}, jnp.flip({self.sl(f'{self.n - self.r}:')}, {self.axis})], {self.axis})"

    def window(self) -> str:
        size = [1] * self.rank
        size[self.axis] = 2 * self.r + self.rng.randrange(2)
        padding = [(0, 0)] * self.rank
        padding[self.axis] = self.rng.choice([(self.r, self.r), (0, 0), (1, 0), (2 * self.r, 0)])
        strides = [1] * self.rank
        strides[self.axis] = self.rng.choice((1, 1, 1, 2))
        if self.dtype == "bool":
            how, init = self.rng.choice([("bitwise_or", "False"), ("bitwise_and", "True")])
        else:
            how, init = self.rng.choice([("max", f"{self.v}.dtype.type(-99)"), ("add", f"{self.v}.dtype.type(0)"),
                                         ("min", f"{self.v}.dtype.type(99)")])
        return f"lax.reduce_window({self.v}, {init}, lax.{how}, {tuple(size)}, {tuple(strides)}, {padding})"

    def convolution(self) -> str | None:
        if "float" not in self.dtype or not self.rank:
            return None
        kernel = [1] * self.rank
        kernel[self.axis] = 2 * self.r + 1
        padding = self.rng.choice(["'SAME'", "'VALID'"])
        weights = f"jnp.arange(1, {math.prod(kernel) + 1}).reshape({(1, 1, *kernel)}).astype({self.v}.dtype)"
        return (f"lax.conv_general_dilated({self.v}[None, None], {weights}, {(1,) * self.rank}, {padding}, "
                f"precision='highest')[0, 0]")

    def take(self) -> str:
        index = self.rng.choice([f"np.arange({self.n}) - {self.r}", f"np.arange({self.n})[::-1] - {self.r}"])
        return f"jnp.take({self.v}, ({index}) % {self.n}, {self.axis})"

    def cumulative(self) -> str | None:
        return None if self.dtype == "bool" else f"jnp.cumsum({self.v}, {self.axis}).astype({self.v}.dtype)"

    def dynamic(self) -> str:
        size = self.rng.choice([1, max(1, self.n - self.r)])
        start = self.rng.randrange(self.n - size + 1)
        return f"lax.dynamic_slice_in_dim({self.v}, {start}, {size}, {self.axis})"

    def dynamic_update(self) -> str:
        size = max(1, self.n - self.r)
        start = self.rng.randrange(self.n - size + 1)
        return f"lax.dynamic_update_slice_in_dim({self.v}, {self.sl(f'{self.n - size}:')}, {start}, {self.axis})"

    def mask(self) -> str:
        index = f"lax.broadcasted_iota('int32', {self.shape}, {self.axis})"
        test = self.rng.choice([f"{index} < {self.n - self.r}", f"{index} >= {self.r}", f"{index} % 2 == 0"])
        other = self.rng.choice([constant(self.d, self.dtype, self.special), f"jnp.roll({self.v}, 1, {self.axis})"])
        return f"jnp.where({test}, {self.v}, {other})"

    def combine(self) -> str:
        others = [w for w, (s, t) in self.d.values.items()
                  if len(s) <= self.rank and s == self.shape[self.rank - len(s):] and t in (self.dtype, "bool")]
        w = self.rng.choice(others)
        if self.d.values[w][1] == "bool" and self.dtype != "bool":
            return self.rng.choice([f"jnp.where({w}, {self.v}, 0)", f"{self.v} * {w}"])
        op = "&|^" if self.dtype == "bool" else "+-"
        return f"{self.v} {self.rng.choice(op)} {w}"

    def maximum(self) -> str:
        return f"jnp.maximum({self.v}, jnp.roll({self.v}, {self.r}, {self.axis}))"

    def arithmetic(self) -> str | None:
        if self.dtype == "bool":
            return f"~{self.v}"
        return self.rng.choice([f"2 * {self.v}", f"-{self.v}", f"{self.v} + 1", f"abs({self.v})", f"{self.v} > 0"])

    def transpose(self) -> str:
        return f"jnp.transpose({self.v}, {tuple(self.rng.sample(range(self.rank), self.rank))})"

    def unit(self) -> str:
        return f"jnp.expand_dims({self.v}, {self.rng.randint(0, self.rank)})" if 1 not in self.shape else (
            f"jnp.squeeze({self.v}, {self.shape.index(1)})")

    def reduction(self) -> str | None:
        if self.dtype == "bool":
            return f"{self.v} & jnp.any({self.v})"
        scalar = self.rng.choice(
            [f"jnp.sum({self.v})", f"jnp.max({self.v})", f"jnp.min({self.v})", f"jnp.argmax({self.v})"])
        return f"{self.v} + ({scalar}).astype({self.v}.dtype)"

    def rows(self) -> str | None:
        if self.dtype == "bool":
            return f"{self.v} ^ jnp.all({self.v}, {self.axis}, keepdims=True)"
        how = self.rng.choice(("sum", "max", "min"))
        row = f"jnp.{how}({self.v}, axis={self.axis}, keepdims=True)"
        return self.rng.choice([f"{self.v} - {row}.astype({self.v}.dtype)", row])

    def owned(self) -> str:
        """A reduction over the interior alone."""
        return f"jnp.max({self.sl(f'{self.r}:{self.n - self.r}')})"

    def convert(self) -> str:
        return f"{self.v}.astype('{self.rng.choice(('int32', 'float32', 'bool'))}')" if not self.special else (
            f"{self.v}.astype('float32')")

    def tile(self) -> str:
        v, axis = self.v, self.axis
        return self.rng.choice([f"jnp.repeat({v}, 2, {axis})", f"jnp.stack([{v}, {v}], {axis})"])


NEIGHBOURS: tuple[Callable[[Step], str | None], ...] = (
    Step.pad_stencil, Step.pad_stencil, Step.pad_stencil, Step.pad_all, Step.pad_all, Step.roll, Step.roll_all,
    Step.concat_roll, Step.concat_wrap, Step.concat_edges, Step.at_set, Step.at_set, Step.at_set_all, Step.diff,
    Step.shrink, Step.shrink, Step.pad, Step.pad, Step.difference, Step.lax_pad, Step.strided, Step.halves,
    Step.flip, Step.fold, Step.window, Step.convolution, Step.take, Step.dynamic, Step.dynamic_update, Step.maximum,
    Step.concat_any,
)  # fmt: skip
OTHERS: tuple[Callable[[Step], str | None], ...] = (
    Step.mask, Step.combine, Step.combine, Step.combine, Step.arithmetic, Step.transpose, Step.unit, Step.reduction,
    Step.rows, Step.owned, Step.convert, Step.cumulative, Step.tile,
)  # fmt: skip


def draw_spec(rng: random.Random, mesh: dict[str, int], rank: int) -> Spec:
    """Axes on dimensions, in any order."""
    spec: list[tuple[str, ...]] = [()] * rank
    axes = list(mesh)
    rng.shuffle(axes)
    for axis in axes:
        if rank and rng.random() < 0.85:
            d = rng.choice((0, rng.randrange(rank)))
            spec[d] = (*spec[d], axis)
    return tuple(spec)


def random_stencil(rng: random.Random, steps: int = 6, special: bool = False, scale: int = 1) -> FieldProgram:
    """A program of some steps on one to three fields of related shapes, each ``scale`` times as long along all
    dimensions as without."""
    mesh = dict(rng.choice(MESHES))
    rank = rng.choice((1, 2, 2, 2, 3))
    spec = draw_spec(rng, mesh, rank)
    tile = [rng.choice((1, 2, 2, 3, 4, 5)) for _ in range(rank)]
    if rank == 3:
        tile = [min(t, 2) for t in tile]
    count = [math.prod(mesh[a] for a in axes) for axes in spec]
    shape = tuple(scale * (t * c if c > 1 else rng.choice((4, 5, 6))) for t, c in zip(tile, count, strict=True))
    dtype = "float32" if special else rng.choice(DTYPES)
    arguments = [Argument(shape, dtype, spec)]
    if rng.random() < 0.6:
        arguments.append(rng.choice([
            Argument(shape, dtype, spec), Argument(shape, "bool", spec), Argument(shape[1:], "bool", spec[1:]),
            Argument(shape[-1:], dtype, spec[-1:]), Argument(shape, dtype, ((),) * rank),
        ]))
    values = {f"a{i}": (a.shape, a.dtype) for i, a in enumerate(arguments)}
    d = Drawing(rng, mesh, arguments, values, most=ELEMENTS * scale**rank)
    for _ in range(rng.randint(1, steps)):
        step = Step(d, special)
        if not step.rank:
            continue
        kind = rng.choice(NEIGHBOURS if rng.random() < 0.7 else OTHERS)
        expression = kind(step)
        if expression is not None:
            d.emit(expression)
    made = [v for v in d.values if v.startswith("v")] or ["a0"]
    chosen = list(dict.fromkeys([made[-1], *rng.sample(made, min(len(made), rng.randrange(2)))]))
    results: list[tuple[str, Spec | None]] = []
    for v in chosen:
        stated: Spec | None = None
        if rng.random() < 0.7:
            stated = spec if len(d.values[v][0]) == rank else draw_spec(rng, mesh, len(d.values[v][0]))
            stated = tuple(
                axes if n % math.prod(mesh[a] for a in axes) == 0 else ()
                for n, axes in zip(d.values[v][0], stated, strict=True)
            )
        results.append((v, stated))
    return FieldProgram(mesh, tuple(arguments), tuple(d.lines), tuple(results))
