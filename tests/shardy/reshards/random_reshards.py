"""Random shardings, reshards and chains of collectives, as text."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from eggshard.program.mesh import AxisRef
from eggshard.shardy.attributes import Axes, TensorSharding
from eggshard.shardy.sub_axes import between, merged

MESHES = (
    {"x": 2, "y": 2, "z": 2}, {"x": 4, "y": 2}, {"x": 2, "y": 3, "z": 2}, {"x": 4, "y": 6}, {"x": 8, "y": 4},
    {"x": 2, "y": 3, "z": 5}, {"x": 4, "y": 2, "z": 4}, {"b": 2, "a": 4, "c": 3},
)
#: The sub-axes of an axis begin where one of these ends.
Cuts = dict[str, list[int]]


def random_cuts(draw: random.Random, sizes: dict[str, int]) -> Cuts:
    """Every axis cut at random."""
    out: Cuts = {}
    for name, size in sizes.items():
        points = [1]
        while points[-1] < size:
            left = size // points[-1]
            points.append(points[-1] * draw.choice([d for d in range(2, left + 1) if left % d == 0]))
        out[name] = points
    return out


def random_dims(draw: random.Random, sizes: dict[str, int], rank: int, cuts: Cuts | None) -> tuple[Axes, ...]:
    """Most axes or their parts, anywhere."""
    axes: list[AxisRef] = []
    for name, size in sizes.items():
        points = cuts[name] if cuts else [1, size]
        axes += [between(name, a, b, sizes) for a, b in zip(points, points[1:], strict=False)]
    draw.shuffle(axes)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for axis in axes:
        if draw.random() < 0.75:
            dims[draw.randrange(rank)].append(axis)
    return tuple(merged(d, sizes) for d in dims)


def random_shape(draw: random.Random, sizes: dict[str, int], rank: int, even: bool = False) -> tuple[int, ...]:
    n = math.prod(sizes.values())
    uneven = [] if even else [7, 12, n - 1]
    return tuple(draw.choice([n, n, 2 * n, 4 * n, *uneven]) for _ in range(rank))


def meshes_text(sizes: dict[str, int], draw: random.Random) -> str:
    """``@mesh``, and ``@shuffled`` with its devices in another order."""
    ids = list(range(math.prod(sizes.values())))
    draw.shuffle(ids)
    axes = ", ".join(f'"{name}"={size}' for name, size in sizes.items())
    return f"sdy.mesh @mesh = <[{axes}]>\nsdy.mesh @shuffled = <[{axes}], device_ids={ids}>\n"


def function(
    name: str, shape: Sequence[int], source: TensorSharding, lines: Sequence[str], target: TensorSharding | None = None
) -> str:
    """A function of one argument ``%0``; each line is the op of the next value, without its type.

    target: the sharding stated for the result, which is the last value.
    """
    type_ = "x".join(map(str, (*shape, "f32")))
    body = "\n".join(f"  %{i + 1} = {line} : tensor<{type_}>" for i, line in enumerate(lines))
    argument = f"%0: tensor<{type_}> {{sdy.sharding = {source}}}"
    result = f"tensor<{type_}>" + ("" if target is None else f" {{sdy.sharding = {target}}}")
    return f"func.func @{name}({argument}) -> ({result}) {{\n{body}\n  return %{len(lines)} : tensor<{type_}>\n}}\n"


def reshard_module(seed: int, functions: int = 6) -> str:
    """Functions of one reshard each."""
    draw = random.Random(seed)
    sizes = draw.choice(MESHES)
    text = meshes_text(sizes, draw)
    for i in range(functions):
        rank = draw.choice([1, 2, 2, 3, 3, 4])
        shape = random_shape(draw, sizes, rank)
        cuts = random_cuts(draw, sizes) if draw.random() < 0.6 else None
        source = TensorSharding.closed("mesh", random_dims(draw, sizes, rank, cuts))
        mesh = "shuffled" if draw.random() < 0.15 else "mesh"
        target = TensorSharding.closed(mesh, random_dims(draw, sizes, rank, cuts))
        text += function(f"f{i}", shape, source, [f"sdy.reshard %0 {target.body()}"])
    return text


