"""Networks on images: convolutions, residual networks, vision transformers and U-Nets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, Ways, carried, f32, i32
from bench.programs.choices.sequences import block
from bench.programs.seconds import classified, convolved

_DATA, _ROWS, _TILES = P(ALL), P(None, ALL), P(None, "x", "y")


def residual_network(x: Array, stem: Array, *weights: Array) -> Array:
    """A stem, stages of blocks normalized over the batch, each of half the points and twice the channels, a mean."""
    x = jax.nn.relu(_over_batch(convolved(x, stem)))
    for i in range(0, len(weights) - 1, 3):
        first, second, across = weights[i : i + 3]
        h = jax.nn.relu(_over_batch(convolved(x, first, 2)))
        x = jax.nn.relu(_over_batch(convolved(h, second)) + convolved(x, across, 2))
    return jnp.mean(x, (1, 2)) @ weights[-1]


def _over_batch(x: Array) -> Array:
    mean = x.mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5)


def vision_transformer(heads: int) -> Callable[..., Array]:
    """Patches of 8 x 8 points with their positions through a layer, their mean classified."""

    def apply(x: Array, embed: Array, positions: Array, *rest: Array) -> Array:
        b, h, w, c = x.shape
        patches = x.reshape(b, h // 8, 8, w // 8, 8, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, 64 * c)
        return block(heads, patches @ embed + positions, *rest[:-1]).mean(1) @ rest[-1]

    return apply


def u_net(x: Array, first: Array, down: Array, bottom: Array, up: Array, last: Array) -> Array:
    """Two levels of a U-Net: strided convolutions down, points repeated up, and what was there beside them."""
    a = jax.nn.silu(convolved(x, first))
    b = jax.nn.silu(convolved(a, down, 2))
    b = b + jax.nn.silu(convolved(b, bottom))
    c = jnp.repeat(jnp.repeat(b, 2, 1), 2, 2)
    return convolved(jax.nn.silu(convolved(jnp.concatenate([a, c], -1), up)), last)


def denoising_step(x: Array, noise: Array, level: Array, *weights: Array) -> Any:
    """A step of training a U-Net to tell the noise in images, of which each has a level of it (DDPM)."""
    mixed = jnp.sqrt(1 - level)[:, None, None, None] * x + jnp.sqrt(level)[:, None, None, None] * noise
    g = jax.grad(lambda w: jnp.mean((u_net(mixed, *w) - noise) ** 2))(weights)
    return tuple(w - 0.1 * g for w, g in zip(weights, g, strict=True))


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    b, points, d = sizes.batch // 32, sizes.side // 16, sizes.width
    channels = d // 8
    images = f32(b, points, points, channels)
    unet = (f32(3, 3, channels, channels), f32(3, 3, channels, 2 * channels), f32(3, 3, 2 * channels, 2 * channels),
            f32(3, 3, 3 * channels, channels), f32(3, 3, channels, channels))
    filters = f32(3, 3, channels, 2 * channels)
    return [
        Open("convolution", convolved, (images, filters),
             {"DP": (_DATA, P()), "rows": (_ROWS, P()), "tiles": (_TILES, P()),
              "channels": (P(), P(None, None, None, ALL)), "DP + channels": (P("x"), P(None, None, None, "y"))}),
        _residual(b, points, channels),
        _vision(b, d),
        Open("U-Net", u_net, (images, *unet), {k: (at, *(P(),) * 5) for k, at in
                                               (("DP", _DATA), ("rows", _ROWS), ("tiles", _TILES))}, small=False),
        Open("denoising step", denoising_step, (images, images, f32(b), *unet),
             {"DP": (_DATA, _DATA, P(ALL), *(P(),) * 5),
              "FSDP": (_DATA, _DATA, P(ALL), *(P(None, None, ALL),) * 5),
              "rows": (_ROWS, _ROWS, P(), *(P(),) * 5)}, carried(5, first=3), False),
    ]


def _residual(b: int, points: int, channels: int) -> Open:
    c = channels
    blocks = [w for k in (1, 2) for w in (
        f32(3, 3, k * c, 2 * k * c), f32(3, 3, 2 * k * c, 2 * k * c), f32(1, 1, k * c, 2 * k * c))]
    weights = (f32(7, 7, 8, c), *blocks, f32(4 * c, 128))
    out = P(None, None, None, "y")
    ways: Ways = {
        "DP": (_DATA, P(ALL), *(P(),) * 8),
        "FSDP": (_DATA, P(ALL), P(None, None, None, ALL), *(P(None, None, ALL),) * 6, P(ALL)),
        "DP + channels": (P("x"), P("x"), *(out,) * 7, P("y")),
    }
    return Open("step of a residual network", classified(residual_network),
                (f32(b, 2 * points, 2 * points, 8), i32(b), *weights), ways, carried(8, first=2), False)


def _vision(b: int, d: int) -> Open:
    weights = (f32(192, d), f32(64, d), f32(d, 3 * d), f32(d, d), f32(d, 4 * d), f32(4 * d, d), f32(d, 128))
    tensor = (P(), P(), P(None, "y"), P("y"), P(None, "y"), P("y"), P())
    return Open("step of a vision transformer", classified(vision_transformer(d // 64)),
                (f32(b, 64, 64, 3), i32(b), *weights),
                {"DP": (P(ALL), P(ALL), *(P(),) * 7), "FSDP": (P(ALL), P(ALL), *(P(ALL),) * 7),
                 "DP+TP": (P("x"), P("x"), *tensor)}, carried(7, first=2), False)
