import random

import pytest

from eggshard.shardy.local.redistribution import Held, Wanted, mirrored, redistribution


def fetched(pieces, held, wanted):
    """What everyone has afterwards, each coordinate in its place; what is not fetched is None."""
    count = len(held.starts)
    buffers = [[held.starts[d] + r for r in range(held.size)] for d in range(count)]
    out = [[None] * wanted.size for _ in range(count)]
    for piece in pieces:
        sender = {r: s for s, r in piece.pairs} or {d: d for d in range(count)}
        assert not piece.pairs or len(set(sender.values())) == len(sender) == len(piece.pairs)
        for d in piece.takers:
            first = piece.sends[sender[d]]
            slab = buffers[sender[d]][first : first + piece.width]
            assert len(slab) == piece.width
            for row in range(piece.lows[d], piece.highs[d]):
                assert out[d][row] is None
                out[d][row] = slab[row - piece.places[d]]
    return out


def tiles(count, size, tile, offset=0):
    starts = tuple(d * tile + offset for d in range(count))
    highs = tuple(max(offset, min(s + tile, size + offset)) for s in starts)
    return Held(starts, tile, tuple(min(s, h) for s, h in zip(starts, highs, strict=True)), highs)


def check(held, wanted, pieces):
    there = {c for low, high in zip(held.lows, held.highs, strict=True) for c in range(low, high)}
    for d, row in enumerate(fetched(pieces, held, wanted)):
        expected = [c if c in there else None for c in range(wanted.starts[d], wanted.starts[d] + wanted.size)]
        assert row == expected


@pytest.mark.parametrize("seed", range(60))
def test_everyone_gets_what_it_wants(seed):
    rng = random.Random(seed)
    count, size = rng.randint(1, 9), rng.randint(1, 40)
    held = tiles(count, size, -(-size // count), rng.choice([0, 0, 3, -4]))
    width = rng.randint(1, 12)
    wanted = Wanted(tuple(rng.choice([d * width - 2, rng.randint(-5, size)]) for d in range(count)), width)
    check(held, wanted, redistribution([held], wanted))


@pytest.mark.parametrize("size, count", [(16, 4), (13, 4), (15, 3), (7, 5), (5, 8), (9, 1)])
def test_mirrored_rounds_carry_a_tile_in_all(size, count):
    tile = -(-size // count)
    starts = tuple(size - (d + 1) * tile for d in range(count))
    highs = tuple(max(0, s + tile) for s in starts)
    held = Held(starts, tile, tuple(min(max(0, s), h) for s, h in zip(starts, highs, strict=True)), highs)
    wanted = Wanted(tuple(d * tile for d in range(count)), tile)
    pieces = mirrored(held, wanted)
    check(held, wanted, pieces)
    assert sum(piece.width for piece in pieces) == tile


def test_a_halo_is_two_rounds_of_its_rows_at_one_place():
    wanted = Wanted(tuple(4 * d - 1 for d in range(4)), 6)
    own, *rounds = redistribution([tiles(4, 16, 4)], wanted)
    assert [piece.width for piece in rounds] == [1, 1]
    assert [piece.place for piece in (own, *rounds)] == [1, 0, 5]
    assert {p.sends for p in rounds} == {(3,) * 4, (0,) * 4}


def test_half_of_a_tensor_goes_in_as_many_rounds_as_a_device_has_receivers():
    """By distance it would be seven rounds."""
    rounds = redistribution([tiles(8, 64, 8)], Wanted(tuple(4 * d for d in range(8)), 4))[1:]
    assert [piece.width for piece in rounds] == [4, 4]
