"""What any plan for a reshard must move, and what the best sequence of simple collectives moves.

Both are written from index sets alone and share no code with the planner, so that they can judge it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.programs import Axes, Reshard

_SUB_AXIS = re.compile(r"(\w+)(?::\((\d+)\)(\d+))?")


@dataclass(frozen=True)
class Bound:
    """Bytes that a device needs and does not hold, in bytes received."""

    average: float
    maximum: int


def lower_bound(reshard: Reshard) -> Bound:
    """Bytes each device needs of the target shard and does not hold of the source shard: average and maximum.

    Sizes may be uneven: a tile is ``ceil(size / shards)`` and elements past the end do not exist.
    """
    held = boxes(reshard.axes, reshard.shape, reshard.source)
    needed = boxes(reshard.axes, reshard.shape, reshard.target)
    common = np.minimum(held[..., 1], needed[..., 1]) - np.maximum(held[..., 0], needed[..., 0])
    missing = (_volume(needed[..., 1] - needed[..., 0]) - _volume(common)) * reshard.itemsize
    return Bound(float(missing.mean()), int(missing.max()))


def boxes(axes: Axes, shape: tuple[int, ...], sharding: str) -> np.ndarray:
    """Per device and dimension the half-open interval of indices held, as an array ``[devices, rank, 2]``."""
    sizes = dict(axes)
    coordinate = dict(zip(sizes, np.indices(tuple(sizes.values())).reshape(len(sizes), -1), strict=True))
    devices = math.prod(sizes.values())
    out = np.empty((devices, len(shape), 2), np.int64)
    for dim, (extent, text) in enumerate(zip(shape, sharding.split(), strict=True)):
        position, shards = np.zeros(devices, np.int64), 1
        for name, pre_text, size_text in _SUB_AXIS.findall("" if text == "-" else text):
            pre, size = int(pre_text or 1), int(size_text or sizes[name])
            position = position * size + coordinate[name] // (sizes[name] // (pre * size)) % size
            shards *= size
        tile = -(-extent // shards)
        out[:, dim, 0] = np.minimum(position * tile, extent)
        out[:, dim, 1] = np.minimum(position * tile + tile, extent)
    return out


def _volume(lengths: np.ndarray) -> np.ndarray:
    volume: np.ndarray = np.maximum(lengths, 0).prod(axis=-1)
    return volume


State = tuple[tuple[str, ...], ...]
"""A sharding by whole axes: per dimension its axes, major to minor."""

Convention = Literal["busiest", "average"]
"""How a permute is priced: by the device that receives most, or averaged over devices."""


def best_sequence_bytes(
    mesh: Mapping[str, int],
    shape: tuple[int, ...],
    source: State,
    convention: Convention = "busiest",
    itemsize: int = 4,
) -> dict[State, float]:
    """The cheapest sequence of single collectives from one sharding to every other one, in bytes per device.

    States are all shardings by whole axes that divide the shape. One step is one of: slice along an unused axis
    (free), all-gather of the minor axes of a dimension, all-to-all of the minor axes of one dimension to another, or
    a permute between two shardings with equal shards. The cost of a sequence is the sum over its steps.
    """
    states = {state: _Shards(mesh, shape, state) for state in shardings(mesh, shape)}
    best: dict[State, float] = {}
    queue: list[tuple[float, int, State]] = [(0.0, 0, source)]
    order = itertools.count(1)  # heap entries of equal cost are taken in the order found
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in best:
            continue
        best[state] = cost
        for target, step in _steps(mesh, states, state, convention):
            if target not in best:
                heapq.heappush(queue, (cost + step * itemsize, next(order), target))
    return best


def shardings(mesh: Mapping[str, int], shape: tuple[int, ...]) -> Iterator[State]:
    """Every sharding of ``shape`` by whole axes of ``mesh`` that divides it evenly."""
    rank = len(shape)
    for count in range(len(mesh) + 1):
        for axes in itertools.permutations(mesh, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                edges = (0, *cuts, count)
                state = tuple(axes[a:b] for a, b in itertools.pairwise(edges))
                shards = (math.prod(mesh[axis] for axis in dim) for dim in state)
                if all(extent % n == 0 for extent, n in zip(shape, shards, strict=True)):
                    yield state


def short(state: State) -> str:
    """A state as text, dimensions apart by spaces: ``(("x", "y"), ())`` is ``x,y -``."""
    return " ".join(",".join(dim) or "-" for dim in state)


class _Shards:
    """What a state means: the local shape, and the box of each device."""

    def __init__(self, mesh: Mapping[str, int], shape: tuple[int, ...], state: State) -> None:
        counts = [math.prod(mesh[axis] for axis in dim) for dim in state]
        self.local = tuple(extent // n for extent, n in zip(shape, counts, strict=True))
        self.elements = math.prod(self.local)
        self.boxes = boxes(tuple(mesh.items()), shape, short(state))


def _steps(
    mesh: Mapping[str, int], states: Mapping[State, _Shards], state: State, convention: Convention
) -> Iterable[tuple[State, float]]:
    """(next state, elements received per device) of every single collective that applies."""
    here = states[state]
    used = {axis for dim in state for axis in dim}
    for i, dim in enumerate(state):
        for axis in mesh.keys() - used:
            yield from _known(states, _with(state, {i: (*dim, axis)}), 0.0)
        for count in range(1, len(dim) + 1):
            kept, moved = dim[:-count], dim[-count:]
            group = math.prod(mesh[axis] for axis in moved)
            yield from _known(states, _with(state, {i: kept}), here.elements * (group - 1))
            for j, other in enumerate(state):
                if j != i:
                    arrived = _with(state, {i: kept, j: (*other, *moved)})
                    yield from _known(states, arrived, here.elements * (group - 1) / group)
    for target, there in states.items():
        if target != state and there.local == here.local:
            moves = (there.boxes != here.boxes).any(axis=(1, 2))
            share = float(moves.any()) if convention == "busiest" else float(moves.mean())
            yield target, here.elements * share


def _with(state: State, changes: Mapping[int, tuple[str, ...]]) -> State:
    return tuple(changes.get(i, dim) for i, dim in enumerate(state))


def _known(states: Mapping[State, _Shards], state: State, cost: float) -> Iterable[tuple[State, float]]:
    if state in states:
        yield state, cost
