"""Tables over positions, for other numbers of positions: the middle grows, the ends stay, the rest is refused."""

import numpy as np
import pytest

from eggshard.errors import LoweringError
from eggshard.placement.slabs import Slab
from eggshard.plan.stretching import anchored, constant, stretched, stretched_numbers, stretched_pairs, stretched_slab
from eggshard.program.placement import Dim


def test_the_middle_grows_and_the_ends_stay():
    assert stretched("abbbc", 8) == list("abbbbbbc")
    assert stretched("abbbc", 2) == list("ac")
    assert stretched("bb", 5) == list("bbbbb")


@pytest.mark.parametrize("table,why", [("ab", "no two"), ("aabb", "no two"), ("a", "no two"), ("abbc", None)])
def test_tables_that_tell_nothing_of_others(table, why):
    if why is None:
        with pytest.raises(LoweringError, match="at least 2"):
            stretched(table, 1)
    else:
        with pytest.raises(LoweringError, match=why):
            stretched(table, 7)
    with pytest.raises(LoweringError, match="0, 1, 2"):
        constant((0, 1, 2), 5)


def test_indices_keep_their_distance_from_their_end():
    tiles, halo = Dim(("x",), 8), Dim(("x",), 8, -2, 2)
    for window in (tiles, halo):
        assert [anchored(i, window, 4, 6) for i in (0, 1, 8, 25, 31, 32, 33)] == [0, 1, 8, 41, 47, 48, 49]
        assert anchored(15, window, 4, 4) == 15
        assert [anchored(i, window, 2, 3) for i in (1, 15)] == [1, 23]
        for index in (12, 16):
            with pytest.raises(LoweringError):
                anchored(index, window, 4, 6)
    with pytest.raises(LoweringError, match="index 8"):
        anchored(8, tiles, 2, 6)
    # The last rows of a tensor, numbered from 0 where they are a tensor of their own.
    last = Dim(("x",), 4, -32, -30)
    assert [anchored(i, last, 8, 4) for i in (0, 2)] == [-16, -14]
    wide = Dim(("x",), 2, -5, 5)
    assert [anchored(i, wide, 8, 10) for i in (0, 16)] == [0, 20]


def test_pairs():
    up = tuple((p, p + 1) for p in range(3))
    assert stretched_pairs(up, 4, 6) == tuple((p, p + 1) for p in range(5))
    assert stretched_pairs(up, 4, 1) == ()
    assert stretched_pairs((*up, (3, 0)), 4, 3) == ((0, 1), (1, 2), (2, 0))
    assert stretched_pairs((*up, (3, 0)), 4, 1) == ((0, 0),)
    assert stretched_pairs(tuple((p, 3 - p) for p in range(4)), 4, 3) == ((0, 2), (1, 1), (2, 0))
    assert stretched_pairs(((3, 0),), 4, 6) == ((5, 0),)
    far = tuple((p, p + 2) for p in range(4))
    assert stretched_pairs(far, 6, 8) == tuple((p, p + 2) for p in range(6))


@pytest.mark.parametrize("pairs,old", [
    (tuple((p, p + 9) for p in range(7)), 16),
    (((0, 1),), 2), (((0, 1), (1, 0)), 2), (((0, 2), (1, 3)), 4), (((0, 2), (2, 0)), 3), (((1, 0), (0, 2), (2, 1)), 5),
])
def test_pairs_that_tell_nothing_of_others(pairs, old):
    with pytest.raises(LoweringError):
        stretched_pairs(pairs, old, 7)


def test_slabs():
    slab = Slab(((0, 1), (1, 2), (2, 3)), 2, (6, 6, 6, 0), (0, 0, 0, 1))
    assert stretched_slab(slab, 4, 5) == Slab(((0, 1), (1, 2), (2, 3), (3, 4)), 2, (6, 6, 6, 6, 0), (0, 0, 0, 0, 1))
    around = Slab(((0, 3),), 1, (2, 0, 0, 0), (0, 0, 0, 5))
    assert stretched_slab(around, 4, 3) == Slab(((0, 2),), 1, (2, 0, 0), (0, 0, 5))
    with pytest.raises(LoweringError, match="send over"):  # it may be the farthest part of a wide halo
        stretched_slab(around, 4, 3, ends=False)


def test_numbers():
    def grown(table, count):
        return stretched_numbers(np.array(table), ["x"], [count]).tolist()

    assert grown([0, 8, 16], 5) == [0, 8, 16, 24, 32]
    assert grown([23, 7, 15], 4) == [31, 7, 15, 23]  # from one before the start, modulo the size
    assert grown([1, 9, 17, 0], 3) == [1, 9, 0]
    plane = np.arange(6).reshape(2, 3) * 4
    assert (stretched_numbers(plane, "xy", [2, 5]) == np.arange(10).reshape(2, 5) * 4).all()
    assert (stretched_numbers(plane.T, "xy", [5, 2]) == np.arange(10).reshape(2, 5).T * 4).all()
    for table in ([8, 0], [0, 1, 4], [3, 2, 1]):
        with pytest.raises(LoweringError, match="multiples of a tile"):
            grown(table, 4)
