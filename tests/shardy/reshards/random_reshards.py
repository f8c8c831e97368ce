"""Random shardings, reshards and chains of collectives, as text."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

from eggshard.program.axes import Axes, AxisRef, any_overlap, in_mesh_order, merged
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import axes_text
from eggshard.shardy.reshards.collectives.kinds import PER_DIMENSION, PER_TENSOR, Collective
from eggshard.shardy.reshards.collectives.parts import Edge, Parts, State

MESHES = (
    {"x": 2, "y": 2, "z": 2}, {"x": 4, "y": 2}, {"x": 2, "y": 3, "z": 2}, {"x": 4, "y": 6}, {"x": 8, "y": 4},
    {"x": 2, "y": 3, "z": 5}, {"x": 4, "y": 2, "z": 4}, {"b": 2, "a": 4, "c": 3},
)
#: Kinds of collectives that often simplify what they follow.
FOLLOWERS = {
    "all_to_all": "all_to_all", "all_gather": "all_slice", "replicated_to_unreduced": "all_reduce",
    "sharded_to_unreduced": "all_reduce", "all_reduce": "all_slice",
}
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
        axes += [AxisRef.between(name, a, b, sizes) for a, b in pairwise(points)]
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




def random_partial_sums(draw: random.Random, sizes: dict[str, int], dims: Sequence[Axes], cuts: Cuts | None) -> Axes:
    """Some of the axes, or their parts, that the dimensions leave."""
    used = [axis for axes in dims for axis in axes]
    points = cuts or {name: [1, size] for name, size in sizes.items()}
    parts = [AxisRef.between(name, a, b, sizes) for name in sizes for a, b in pairwise(points[name])]
    free = [part for part in parts if not any_overlap((part,), used)]
    return in_mesh_order([part for part in free if draw.random() < 0.5], sizes)


def chain_module(seed: int, functions: int = 3, length: int = 6) -> str:
    """Functions of chains of collectives on random shardings."""
    draw = random.Random(seed)
    sizes = draw.choice(MESHES)
    text = meshes_text(sizes, draw)
    for i in range(functions):
        rank = draw.choice([2, 3, 4])
        shape, cuts = random_shape(draw, sizes, rank, even=True), random_cuts(draw, sizes)
        parts = tuple(AxisRef.between(name, a, b, sizes) for name in sizes for a, b in pairwise(cuts[name]))
        space = Parts(sizes, parts, ((),) * rank, ((),) * rank, fixed=False)
        start = random_dims(draw, sizes, rank, cuts)
        state = State(0, space.of(start), space.set_of(random_partial_sums(draw, sizes, start, cuts)))
        source = TensorSharding.closed("mesh", start, space.in_mesh_order(state.partial_sums))
        lines: list[str] = []
        last = ""
        while len(lines) < length:
            goal = State(0, state.dims, tuple(part for part in range(len(parts)) if draw.random() < 0.3))
            by_kind: dict[str, list[Edge]] = {}
            for edge in space.edges(state, goal, shape):
                by_kind.setdefault(edge.kind, []).append(edge)
            if not by_kind:
                break
            follower = FOLLOWERS.get(last)
            kind = follower if follower in by_kind and draw.random() < 0.7 else draw.choice(sorted(by_kind))
            edge = draw.choice(by_kind[kind])
            lines.append(collective_text(space.move(edge).on("mesh"), f"%{len(lines)}"))
            state, last = edge.state, kind
        if lines:
            text += function(f"f{i}", shape, source, lines)
    return text


def program_module(seed: int, length: int = 10) -> str:
    """A program of reshards of a few values, one of another, with reductions and other ops between them."""
    draw = random.Random(seed)
    sizes = draw.choice([sizes for sizes in MESHES if math.prod(sizes.values()) <= 32])
    rank = draw.choice([2, 2, 3])
    type_ = "x".join(map(str, (*[math.prod(sizes.values())] * rank, "f32")))
    cuts = random_cuts(draw, sizes) if draw.random() < 0.3 else None
    pool = [random_dims(draw, sizes, rank, cuts) for _ in range(4)]
    values, lines, used = [("%a", pool[0])], list[str](), set[str]()
    for i in range(length):
        (value, dims), choice = draw.choice(values[-4:]), draw.random()
        sharding = TensorSharding.closed("mesh", dims).body()
        negated = f"stablehlo.negate {value} {{sdy.sharding = #sdy.sharding_per_value<[{sharding}]>}}"
        used.add(value)
        if choice < 0.55:
            dims = draw.choice(pool)
            lines.append(f"%v{i} = sdy.reshard {value} {TensorSharding.closed('mesh', dims).body()}")
        elif choice < 0.8 or not (partial_sums := random_partial_sums(draw, sizes, dims, cuts)):
            lines.append(f"%v{i} = {negated}")
        else:
            reduced = f"sdy.all_reduce {axes_text(partial_sums)} %n{i} out_sharding={sharding}"
            lines += [f"%n{i} = {negated}", f"%v{i} = {reduced}"]
        values.append((f"%v{i}", dims))
    returned = [value for value, _ in values if value not in used]
    types = ", ".join([f"tensor<{type_}>"] * len(returned))
    body = "".join(f"  {line} : tensor<{type_}>\n" for line in lines)
    argument = f"%a: tensor<{type_}> {{sdy.sharding = {TensorSharding.closed('mesh', pool[0])}}}"
    return meshes_text(sizes, draw) + (
        f"func.func @main({argument}) -> ({types}) {{\n{body}  return {', '.join(returned)} : {types}\n}}\n")


def collective_text(collective: Collective, operand: str) -> str:
    """The op as Shardy writes it, without its type."""
    moved = {
        "all_to_all": f"[{', '.join(map(str, collective.exchanges))}] ", "collective_permute": "",
        **dict.fromkeys(PER_DIMENSION, f"[{', '.join(map(axes_text, collective.dims))}] "),
        **dict.fromkeys(PER_TENSOR, f"{axes_text(collective.axes)} "),
    }[collective.kind]
    return f"sdy.{collective.kind} {moved}{operand} out_sharding={collective.to.body()}"
