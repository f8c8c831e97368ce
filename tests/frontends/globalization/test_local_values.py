"""Local tensors as indices into global ones: movement, and layouts of all devices' indices on one line."""

from __future__ import annotations

import numpy as np
import pytest

from eggshard.frontends.globalization.lines import common
from eggshard.frontends.globalization.local_values import (
    FILL,
    UNKNOWN,
    Cut,
    Dim,
    Local,
    Unreadable,
    alike,
    as_fill,
    broadcast,
    layout,
    padded,
    permuted,
    placed,
    sliced,
    tiled,
    uniform,
    whole,
    with_units,
)

X = ("x",)
#: Four devices, each with three elements of twelve.
TILES = Local((7,), (tiled(0, X, 4, 3),))


def count(axes: tuple[str, ...]) -> int:
    return 4 if axes else 1


def ring(by: int) -> dict[tuple[str, ...], np.ndarray]:
    return {X: (np.arange(4) - by) % 4}


def chain(by: int) -> dict[tuple[str, ...], np.ndarray]:
    source = np.arange(4) - by
    return {X: np.where((source < 0) | (source > 3), FILL, source)}


def line(value: Local, size: int = 12) -> list[int]:
    return layout(value.dims[0], Cut(X, 3), 4, size).tolist()


def beside(*values: Local) -> Local:
    index = [v.dims[0].index for v in values]
    return TILES.with_dim(0, Dim(0, np.concatenate(index, 1), Cut(X, 3)))


def test_a_strip_of_a_neighbour_beside_a_tile_is_a_window() -> None:
    before = permuted(sliced(TILES, [2], [3], [1]), ring(1), 9)
    after = permuted(sliced(TILES, [0], [1], [1]), ring(-1), 9)
    assert line(beside(before, TILES, after)) == [11, *range(12), 0]


def test_who_receives_nothing_has_fill() -> None:
    before = permuted(sliced(TILES, [2], [3], [1]), chain(1), 9)
    assert before.dims[0].index.tolist() == [[FILL], [2], [5], [8]] and before.fill == 9
    assert line(beside(before, TILES)) == [FILL, *range(12)]
    assert before.filled == {0} and TILES.filled == set()


def test_between_strips_a_line_goes_on_as_before() -> None:
    assert line(sliced(TILES, [0], [1], [1])) == list(range(12))
    assert line(permuted(sliced(TILES, [2], [3], [1]), ring(1), 9)) == [11, *range(11)]
    assert line(permuted(sliced(TILES, [0], [1], [1]), chain(-1), 9)) == [*range(3, 12), FILL, FILL, FILL]


def test_devices_that_hold_different_elements_at_one_place_have_no_line() -> None:
    with pytest.raises(Unreadable, match="different elements where they overlap"):
        line(beside(TILES, TILES))


def test_what_is_not_needed_may_differ() -> None:
    spoilt = beside(sliced(TILES, [2], [3], [1]), TILES)  # a device's own last element stands before its first
    with pytest.raises(Unreadable):
        line(spoilt)
    index = spoilt.dims[0].index.copy()
    index[:, 0] = UNKNOWN
    assert line(spoilt.with_dim(0, spoilt.dims[0].at(index))) == [11, *range(12)]
    assert placed(TILES, [1], [5]).dims[0].index[1].tolist() == [UNKNOWN, 3, 4, 5, UNKNOWN]


def test_strides_divide_tiles() -> None:
    even = Local((0,), (tiled(0, X, 4, 4),))
    taken = sliced(even, [1], [4], [2]).dims[0]
    assert taken.cut == Cut(X, 2) and taken.index.tolist() == [[1, 3], [5, 7], [9, 11], [13, 15]]
    with pytest.raises(Unreadable, match="strides of 2"):
        sliced(TILES, [0], [3], [2])


def test_padding_is_fill_and_negative_padding_a_slice() -> None:
    wide = padded(TILES, 9, [1], [-1])
    assert wide.fill == 9 and wide.dims[0].index[0].tolist() == [FILL, 0, 1]


def test_a_slice_of_fill_alone_is_a_number() -> None:
    assert sliced(padded(TILES, 9, [2], [0]), [0], [1], [1]).is_number


def test_a_dropped_dimension_is_hidden_until_it_is_added_again() -> None:
    row = sliced(Local((0,), (tiled(0, X, 4, 3), whole(1, 5))), [2, 0], [3, 5], [1, 1])
    dropped = with_units(row, (5,))
    assert [d.axes for d in dropped.hidden] == [X] and dropped.shape == (5,)
    for back in (with_units(dropped, (1, 5)), broadcast(dropped, (1, 5), [1])):
        assert not back.hidden and alike(back.dims[0], row.dims[0]) and alike(back.dims[1], row.dims[1])


def test_a_number_is_fill_of_what_it_is_put_beside() -> None:
    number = Local((9,), (uniform(2),))
    assert as_fill(number, TILES, 0, 2).dims[0].index.tolist() == [[FILL, FILL]] * 4
    both = Local((7,), (tiled(0, X, 4, 3), padded(Local((7,), (whole(1, 2),)), 8, [1], [0]).dims[0]), fill=8)
    with pytest.raises(Unreadable, match="another one"):
        as_fill(Local((9,), (uniform(2), uniform(3))), both, 0, 2)


def test_shifted_tensors_have_one_line_which_is_turned() -> None:
    wide = beside(permuted(sliced(TILES, [2], [3], [1]), ring(1), 9), TILES,
                  permuted(sliced(TILES, [0], [1], [1]), ring(-1), 9))
    parts = [sliced(wide, [k], [k + 3], [1]).dims[0] for k in range(3)]
    found = common(parts, [12] * 3, count)
    assert found.line.looped and found.line.size == 12 and found.turns == (11, 0, 1)
    moved = common([d.at((d.index + 1) % 12) for d in parts], [12] * 3, count)
    assert found.key == moved.key and moved.anchor == 0


def test_computing_wide_on_a_ring_is_the_same_line() -> None:
    wide = beside(permuted(sliced(TILES, [1], [3], [1]), ring(1), 9), TILES,
                  permuted(sliced(TILES, [0], [2], [1]), ring(-1), 9))
    inner = [sliced(wide, [k], [k + 5], [1]).dims[0] for k in range(3)]
    found = common(inner, [12] * 3, count)
    assert found.line.looped and found.line.size == 12
    assert found.line.dim(0, 5).index[3].tolist() == [9, 10, 11, 0, 1]


def test_different_tiles_have_no_common_line() -> None:
    with pytest.raises(Unreadable, match="cut differently"):
        common([tiled(0, X, 4, 3), tiled(0, X, 4, 6)], [12, 24], count)
