"""Programs whose seconds are measured: training steps, decoding, solvers and field codes, in the sizes of one machine.

``names`` lists them; ``program`` defines one on its mesh of 8 devices. ``variants`` draws others by a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bench.programs import BenchProgram, fields as flow
from bench.programs.solvers import (
    conjugate_gradients,
    forced,
    gray_scott,
    heat,
    lattice_boltzmann,
    level_set,
    life,
    multigrid,
    navier_stokes,
    poisson_by_fft,
    seven_point,
    shallow_water,
    variable_coefficients,
)
from bench.programs.spellings import FIVE_POINT, NINE_POINT, by_pad, by_shift, repeated, roll
from bench.programs.training import (
    Weights,
    adam_step,
    gated_layer,
    gated_weights,
    mixture,
    momentum_step,
    scanned,
    stacked,
)

_FAMILY = "seconds"
#: A row: mesh, arguments, function, where the results lie.
_Row = tuple[str, Sequence[str], Callable[..., Any], Any]


def specs(arguments: Sequence[str]) -> tuple[str, ...]:
    """Where arguments lie."""
    return tuple(argument.partition(": ")[2] for argument in arguments)


# Dense programs.


def mlp_layer(x: Array, w: Array) -> Array:
    """One layer: a product and a nonlinearity."""
    return jnp.tanh(x @ w)


def _training(mesh: str, batch: str, weights: Sequence[str], function: Callable[..., Array], copies: int = 2) -> _Row:
    step = momentum_step(function) if copies == 2 else adam_step(function)
    return mesh, (batch, batch, *weights * copies), step, (specs(weights),) * copies


def convolved(x: Array, w: Array, stride: int = 1) -> Array:
    """A convolution of images ``[n, h, w, c]``."""
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual(x: Array, first: Array, second: Array) -> Array:
    """A residual block without normalization."""
    return x + convolved(jax.nn.relu(convolved(jax.nn.relu(x), first)), second)


def residual_network(x: Array, *weights: Array) -> Array:
    """A stem, blocks of two convolutions, and a mean over the image."""
    x = convolved(x, weights[0])
    for i in range(1, len(weights) - 1, 2):
        x = residual(x, weights[i], weights[i + 1])
    return jnp.mean(x, (1, 2)) @ weights[-1]


def scanned_residual_network(x: Array, stem: Array, first: Array, second: Array, last: Array) -> Array:
    """A residual network whose blocks are scanned: their weights are stacked."""
    x, _ = lax.scan(lambda x, block: (residual(x, *block), None), convolved(x, stem), (first, second))
    return jnp.mean(x, (1, 2)) @ last


def classified(
    function: Callable[..., Array], summed: Callable[[Weights], Weights] = lambda gradients: gradients
) -> Callable[..., Any]:
    """A step of gradient descent on the cross entropy: takes images, labels and weights.

    ``summed`` is as that of `momentum_step`.
    """

    def loss(weights: Weights, x: Array, labels: Array) -> Array:
        scores = jax.nn.log_softmax(function(x, *weights))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))

    def step(x: Array, labels: Array, *weights: Array) -> Any:
        gradients = summed(jax.grad(loss)(weights, x, labels))
        return tuple(w - 0.1 * g for w, g in zip(weights, gradients, strict=True))

    return step


def vision_transformer(x: Array, embed: Array, *rest: Array) -> Array:
    """Patches of 8 by 8 pixels through decoder layers, their mean classified."""
    batch, height, width, channels = x.shape
    patches = x.reshape(batch, height // 8, 8, width // 8, 8, channels).transpose(0, 1, 3, 2, 4, 5)
    tokens = patches.reshape(batch, -1, 64 * channels) @ embed
    return jnp.mean(stacked(gated_layer(8, 2), 9)(tokens, *rest[:-1]), 1) @ rest[-1]


def embedding_gradient(table: Array, tokens: Array, cotangent: Array) -> Array:
    """The gradient of an embedding's table."""
    return jax.vjp(lambda t: t[tokens], table)[1](cotangent)[0]


def decode(cache_k: Array, cache_v: Array, x: Array, wq: Array, wk: Array, wv: Array, at: Array) -> Any:
    """One token of attention over a cache ``[batch, time, heads, features]``."""
    batch, time, heads, features = cache_k.shape
    q, k, v = ((x @ w).reshape(batch, heads, features) for w in (wq, wk, wv))
    cache_k = lax.dynamic_update_slice_in_dim(cache_k, k[:, None], at, 1)
    cache_v = lax.dynamic_update_slice_in_dim(cache_v, v[:, None], at, 1)
    scores = jnp.einsum("bhf,bthf->bht", q, cache_k) / features**0.5
    weights = jax.nn.softmax(jnp.where(jnp.arange(time) <= at, scores, -1e30), -1)
    return jnp.einsum("bht,bthf->bhf", weights, cache_v).reshape(batch, -1), cache_k, cache_v


def _of(step: Callable[[Any], Any], count: int, form: str = "unrolled") -> Callable[..., Any]:
    """Several fields as several arguments."""
    return lambda *state: repeated(step, count, form)(state)


def _dense() -> dict[str, _Row]:
    square = ("256x256: - -",)
    tokens = "8x128x256: x - -"
    weights = {style: gated_weights(style, 1, 256, 256, 64, 512) for style in ("2-D", "Megatron", "FSDP")}
    whole = tuple(
        w.partition(":")[0] + ": " + " ".join("-" * (1 + w.partition(":")[0].count("x"))) for w in weights["FSDP"]
    )
    images, labels = "64x32x32x16: x - - -", "int32 64: x"
    filters = ("3x3x16x32: - - - -", *("3x3x32x32: - - - -",) * 8, "32x16: - -")
    blocks = ("3x3x16x32: - - - -", *("4x3x3x32x32: - - - - -",) * 2, "32x16: - -")
    vit = ("192x256: - -", *whole * 4, "256x16: - -")
    experts = ("256x8: - -", "8x256x512: x - -", "8x512x256: x - -")
    mlp = stacked(mlp_layer, 1)
    gated = gated_layer(8, 2)
    sequence = ("8x128x256: x y -", *weights["Megatron"])
    cache = "8x512x8x64: x - y -"
    return {
        "MLP of 8, data parallel": _training("8", "512x256: x -", square * 8, mlp),
        "MLP of 24, data parallel": _training("8", "512x256: x -", square * 24, mlp),
        "MLP of 4, FSDP": _training("8", "512x512: x -", ("512x512: x -",) * 4, mlp),
        "MLP of 4, tensor parallel": _training("4x2", "512x512: x -", ("512x512: - y", "512x512: y -") * 2, mlp),
        "MLP of 4, Adam, FSDP": _training("8", "512x512: x -", ("512x512: x -",) * 4, mlp, 3),
        "transformer, data parallel": _training("8", tokens, whole * 2, stacked(gated, 9)),
        "transformer of 4, FSDP": _training("8", tokens, weights["FSDP"] * 4, stacked(gated, 9)),
        "transformer of 2, 2-D": _training("4x2", tokens, weights["2-D"] * 2, stacked(gated, 9)),
        "transformer, Megatron": _training("4x2", tokens, weights["Megatron"] * 2, stacked(gated, 9)),
        "transformer, sequence parallel": ("4x2", sequence, gated, "x y -"),
        "transformer of 6, scanned": (
            "4x2",
            (tokens, *("6x" + w.replace(": ", ": - ") for w in weights["Megatron"])),
            scanned(gated),
            "x - -",
        ),
        "residual network": ("8", (images, labels, *filters), classified(residual_network), specs(filters)),
        "residual network, scanned": (
            "8",
            (images, labels, *blocks),
            classified(scanned_residual_network),
            specs(blocks),
        ),
        "vision transformer": (
            "8",
            ("32x64x64x3: x - - -", "int32 32: x", *vit),
            classified(vision_transformer),
            specs(vit),
        ),
        "mixture of experts": ("8", (tokens, *experts), mixture(8, 256), "x - -"),
        "embedding's gradient": ("8", ("4096x256: - -", "int32 4096: x", "4096x256: x -"), embedding_gradient, "- -"),
        "decoding": (
            "4x2",
            (cache, cache, "8x512: x -", *("512x512: - y",) * 3, "int32 :"),
            decode,
            ("x y", "x - y -", "x - y -"),
        ),
        "product, 2-D": ("4x2", ("1024x1024: x -", "1024x1024: - y"), lambda a, b: a @ b, "x y"),
        "product, an axis unused": ("2x2x2", ("1024x1024: x -", "1024x1024: - y"), lambda a, b: jnp.tanh(a @ b), "x y"),
        "reshard, rows to columns": ("8", ("2048x2048: x -",), lambda a: a + 1, "- x"),
        "reshard, tiles to rows": ("4x2", ("2048x2048: x y",), lambda a: a + 1, "y,x -"),
    }


def _fields() -> dict[str, _Row]:
    rows, tiles = "1024x1024: x -", "1024x1024: x y"
    box = "128x96x96: x y z"
    five, nine = by_pad(FIVE_POINT), by_pad(NINE_POINT)
    rolled = by_shift(FIVE_POINT, roll, "periodic")
    return {
        "five-point, 8 steps": ("8", (rows,), repeated(five, 8), "x -"),
        "nine-point, 8 steps": ("4x2", (tiles,), repeated(nine, 8), "x y"),
        "five-point, periodic, 100 steps": ("4x2", (tiles,), repeated(rolled, 100, "fori"), "x y"),
        "heat, 20 steps": ("8", (rows,), repeated(heat, 20, "fori"), "x -"),
        "heat, 100 steps": ("4x2", (tiles,), repeated(heat, 100, "fori"), "x y"),
        "Gray-Scott, 20 steps": ("8", (rows, rows), _of(gray_scott, 20, "scan"), ("x -",) * 2),
        "life, 32 steps": ("4x2", ("int32 1024x1024: x y",), repeated(life, 32, "fori"), "x y"),
        "lattice Boltzmann, 10 steps": ("4x2", ("9x512x512: - x y",), repeated(lattice_boltzmann, 10, "fori"), "- x y"),
        "level set, 10 steps": ("8", (rows,), repeated(level_set, 10, "fori"), "x -"),
        "shallow water, 10 steps": ("8", (rows,) * 3, _of(shallow_water, 10, "fori"), ("x -",) * 3),
        "shallow water, 4x2": ("4x2", (tiles,) * 3, _of(shallow_water, 2, "fori"), ("x y",) * 3),
        "Navier-Stokes": ("4x2", ("512x512: x y",) * 3, _of(navier_stokes, 2), ("x y",) * 3),
        "variable coefficients": ("8", (rows, rows), variable_coefficients, "x -"),
        "time-varying coefficients": ("8", (rows, "12x1024x1024: - x -"), forced, "x -"),
        "seven-point, 8 steps": ("2x2x2", (box,), repeated(seven_point, 8, "fori"), "x y z"),
        "conjugate gradients": ("8", (rows,), conjugate_gradients, "x -"),
        "multigrid": ("4x2", (tiles, tiles), multigrid, "x y"),
        "Poisson by FFT": ("8", ("512x512: x -",), poisson_by_fft, "x -"),
        "upwind": ("8", (rows,), repeated(flow.upwind, 4), "x -"),
    }


def names() -> dict[str, tuple[str, ...]]:
    """The programs' names, by kind: dense programs and field codes."""
    return {"dense": tuple(_dense()), "field": tuple(_fields())}


def variants(seed: int, count: int) -> list[str]:
    """The names of ``count`` other programs, the same for the same seed."""
    return list(_drawn(seed, count))


def _drawn(seed: int, count: int) -> dict[str, _Row]:
    """Training of perceptrons and field codes by turns, of random sizes, depths, meshes and shardings."""
    rng = random.Random(seed)
    out: dict[str, _Row] = {}
    for i in range(count):
        if i % 2:
            out.update([_drawn_field(f"variant {seed}.{i}: ", rng)])
        else:
            out.update([_drawn_training(f"variant {seed}.{i}: ", rng)])
    return out


def _drawn_training(prefix: str, rng: random.Random) -> tuple[str, _Row]:
    width, layers, batch = rng.choice((192, 256, 384)), rng.randint(2, 12), rng.choice((256, 512, 1024))
    weight = rng.choice(("- -", "x -", "- x"))
    weights = (f"{width}x{width}: {weight}",) * layers
    copies = rng.choice((2, 3))
    name = f"{prefix}MLP of {layers}, {batch}x{width}, weights {weight}, {copies - 1} moments"
    return name, _training("8", f"{batch}x{width}: x -", weights, stacked(mlp_layer, 1), copies)


def _drawn_field(prefix: str, rng: random.Random) -> tuple[str, _Row]:
    n, m, steps = 8 * rng.randint(48, 128), 8 * rng.randint(48, 128), rng.randint(2, 40)
    mesh, spec = rng.choice((("8", "x -"), ("4x2", "x y"), ("8", "- x")))
    form = rng.choice(("unrolled", "fori", "scan")) if steps <= 12 else rng.choice(("fori", "scan"))
    kind = rng.choice(("heat", "level set", "Gray-Scott", "shallow water", "nine-point"))
    step, fields = {
        "heat": (lambda s: (heat(*s),), 1), "level set": (lambda s: (level_set(*s),), 1),
        "Gray-Scott": (gray_scott, 2), "shallow water": (shallow_water, 3),
        "nine-point": (lambda s: (by_pad(NINE_POINT)(*s),), 1),
    }[kind]  # fmt: skip
    name = f"{prefix}{kind}, {steps} steps, {form}, {n}x{m}: {spec} on {mesh}"
    return name, (mesh, (f"{n}x{m}: {spec}",) * fields, _of(step, steps, form), (spec,) * fields)


def program(name: str) -> BenchProgram:
    """The program of this name."""
    if name.startswith("variant "):
        seed, _, number = name.split()[1].rstrip(":").partition(".")
        rows = _drawn(int(seed), int(number) + 1)
    else:
        rows = {**_dense(), **_fields()}
    mesh, arguments, function, out = rows[name]
    return BenchProgram.define(name, _FAMILY, mesh, arguments, function, out)
