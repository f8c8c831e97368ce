"""The independent judges of reshards: index sets against brute force, sequences against known totals."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

pytest.importorskip("jax")

from bench.lower_bound import best_sequence_bytes, boxes, lower_bound, shardings, short  # noqa: E402
from bench.programs import Reshard, axes_of, dimensions  # noqa: E402


def by_elements(axes, shape, source, target):
    """Elements that each device needs and does not hold, element by element."""
    missing = []
    for held, needed in zip(boxes(axes, shape, source), boxes(axes, shape, target), strict=True):
        elements = [set(itertools.product(*(range(a, b) for a, b in box))) for box in (held, needed)]
        missing.append(len(elements[1] - elements[0]))
    return np.mean(missing), max(missing)


SHARDINGS = ("- -", "x -", "- x", "x y", "y x", "x,y -", "y,x -", "- y,x", "x:(1)2 y", "x:(2)2 x:(1)2", "y,x:(2)2 -")


@given(st.sampled_from(SHARDINGS), st.sampled_from(SHARDINGS), st.integers(1, 11), st.integers(1, 9))
def test_lower_bound_is_needed_minus_held(source: str, target: str, rows: int, columns: int) -> None:
    axes = axes_of("4x2")
    bound = lower_bound(Reshard(axes, (rows, columns), "float16", source, target))
    average, most = by_elements(axes, (rows, columns), source, target)
    assert bound.average == pytest.approx(2 * average)
    assert bound.maximum == 2 * most


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_shards_cover_the_tensor_equally_often(sharding: str) -> None:
    shape, times = (11, 9), np.zeros((11, 9), int)
    for (top, bottom), (left, right) in boxes(axes_of("4x2"), shape, sharding):
        times[top:bottom, left:right] += 1
    assert times.min() == times.max() > 0


def test_known_bounds() -> None:
    def kib(mesh, shape, source, target):
        bound = lower_bound(Reshard(axes_of(mesh), dimensions(shape), "float32", source, target))
        return bound.average / 1024, bound.maximum / 1024

    assert kib("4x2", "1024x1024", "x y", "y x") == (384, 512)
    assert kib("4x2", "256x64x64", "y - x", "- x,y -") == (448, 448)
    assert kib("8", "1024x1024", "x -", "- -") == (3584, 3584)
    assert kib("8", "1024x1024", "x:(1)2 -", "- x:(2)4") == (512, 512)


def test_all_shardings_of_a_matrix() -> None:
    states = list(shardings({"x": 2, "y": 3, "z": 2}, (72, 72)))
    assert len(states) == len(set(states)) == 49
    assert (("x",), ()) in set(shardings({"x": 2, "y": 3}, (4, 4)))
    assert (("y",), ()) not in set(shardings({"x": 2, "y": 3}, (4, 4)))


@pytest.mark.parametrize(
    ("source", "target", "elements"),
    [
        ((("x",), ()), (("x",), ()), 0),
        (((), ()), (("x", "y"), ("z",)), 0),
        (((), ("x",)), ((), ("y", "z")), 32),  # permute x to y, then slice
        ((("x",), ()), ((), ("x",)), 64),
        ((("x", "y", "z"), ()), ((), ()), 224),
    ],
)
def test_known_sequences(source, target, elements) -> None:
    mesh = {"x": 2, "y": 2, "z": 2}
    assert best_sequence_bytes(mesh, (16, 16), source, "average", 1)[target] == elements


def test_sequences_never_beat_the_bound_and_obey_the_triangle() -> None:
    mesh, shape = {"x": 2, "y": 2, "z": 2}, (16, 16)
    states = list(shardings(mesh, shape))
    cost = {source: best_sequence_bytes(mesh, shape, source, "average", 1) for source in states}
    total = bound = 0.0
    for source, target in itertools.permutations(states, 2):
        least = lower_bound(Reshard(tuple(mesh.items()), shape, "int8", short(source), short(target))).average
        assert cost[source][target] >= least
        total, bound = total + cost[source][target], bound + least
    assert (total, bound) == (108_096, 97_824)
    for a, b, c in itertools.product(states[::5], states[::4], states[::3]):
        assert cost[a][c] <= cost[a][b] + cost[b][c]
