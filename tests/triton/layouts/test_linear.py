"""Linear layouts as functions: what each of their operations does to the element that each hardware index holds."""

from __future__ import annotations

import itertools
import math

import pytest
from tests.triton.layouts.random_encodings import Draw

from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.gf2 import Span, complement, intersection, null_space, rank
from eggshard.triton.layouts.linear import LinearLayout, equal
from eggshard.triton.layouts.machine import Machine


def held(layout: LinearLayout) -> dict[int, tuple[int, ...]]:
    """The element at each hardware index, registers the lowest bits."""
    found = {}
    for index in range(1 << len(layout.columns)):
        vector = 0
        for bit, basis in enumerate(layout.columns):
            if index >> bit & 1:
                vector ^= basis
        found[index] = layout.coordinates(vector)
    return found


def drawn(seed: int, count: int) -> list[LinearLayout]:
    draw, found = Draw(seed), []
    while len(found) < count:
        machine = Machine("cuda:80", 2)
        shape = draw.shape((6, 4, 2))
        layout = linear_layout(read(draw.encoding(len(shape), machine, linear=True)), shape)
        if layout is not None and len(layout.columns) <= 13:
            found.append(layout)
    return found


@pytest.mark.parametrize("layout", drawn(1, 12))
def test_every_element_lies_in_as_many_places_as_any_other(layout: LinearLayout) -> None:
    places: dict[tuple[int, ...], int] = {}
    for element in held(layout.without_duplicates()).values():
        places[element] = places.get(element, 0) + 1
    assert len(places) == math.prod(layout.shape)
    assert len(set(places.values())) == 1


@pytest.mark.parametrize("layout", drawn(2, 12))
def test_transposing_moves_indices(layout: LinearLayout) -> None:
    for order in itertools.permutations(range(len(layout.shape))):
        moved = layout.transposed(order)
        assert moved.shape == tuple(layout.shape[i] for i in order)
        before, after = held(layout), held(moved)
        assert all(after[i] == tuple(before[i][d] for d in order) for i in before)


@pytest.mark.parametrize("layout", drawn(3, 12))
def test_reshaping_keeps_row_major_positions(layout: LinearLayout) -> None:
    size = math.prod(layout.shape)
    for shape in ((size,), (size // 2, 2), (2, size // 2)) if size > 1 else ((size,), (1, size)):
        moved = layout.reshaped(shape)
        before, after = held(layout), held(moved)
        assert all(_flat(after[i], shape) == _flat(before[i], layout.shape) for i in before)
        assert moved.reshaped(layout.shape) == layout


def _flat(indices: tuple[int, ...], shape: tuple[int, ...]) -> int:
    flat = 0
    for index, n in zip(indices, shape, strict=True):
        flat = flat * n + index
    return flat


@pytest.mark.parametrize("layout", drawn(4, 12))
def test_a_dropped_axis_leaves_the_other_indices(layout: LinearLayout) -> None:
    for axis in range(len(layout.shape)):
        left = layout.without_axis(axis)
        assert set(held(left).values()) == {
            element[:axis] + element[axis + 1:] for element in held(layout).values()}
        assert 0 not in left.register


def test_equal_layouts_differ_in_duplicates_only() -> None:
    layout = LinearLayout.of((4, 8), [(0, 1), (0, 2)], [(0, 4), (1, 0)], [(2, 0)])
    repeated = layout._replace(register=(layout.register[0], 0, layout.register[1]))
    swapped = layout._replace(register=layout.register[::-1])
    assert equal(layout, repeated)
    assert not equal(layout, swapped)
    assert repeated.unique_per_thread == 4 and repeated.elements_per_thread == 8


def test_solutions_are_sums_of_columns() -> None:
    draw = Draw(5).random
    for _ in range(50):
        columns = [draw.getrandbits(6) for _ in range(5)]
        span = Span(columns)
        for vector in range(64):
            chosen = span.solve(vector)
            sums = {_sum(columns, mask) for mask in range(32)}
            assert (chosen is not None) == (vector in sums)
            assert chosen is None or _sum(columns, chosen) == vector


def _sum(columns: list[int], chosen: int) -> int:
    total = 0
    for i, column in enumerate(columns):
        if chosen >> i & 1:
            total ^= column
    return total


def test_complements_null_spaces_and_intersections() -> None:
    draw = Draw(6).random
    for _ in range(50):
        first = [draw.getrandbits(6) for _ in range(3)]
        second = [draw.getrandbits(6) for _ in range(4)]
        assert rank(first + complement(first, 6)) == 6
        assert len(complement(first, 6)) == 6 - rank(first)
        assert all((a & b).bit_count() % 2 == 0 for a in first for b in null_space(first, 6))
        common = intersection(first, second, 6)
        assert all(v in Span(first) and v in Span(second) for v in common)
        assert len([v for v in common if v]) == rank(first) + rank(second) - rank(first + second) or all(
            v & (v - 1) == 0 for v in first + second)
