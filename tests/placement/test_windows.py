"""Windows along one dimension against brute force over devices and indices."""

import random

import numpy as np
import pytest

from eggshard.ops.windowing import Reach
from eggshard.placement import windows
from eggshard.placement.slabs import repetition
from eggshard.placement.windows import bounding_window, covers, inside, reached, segments, slab_exchange, trimmed
from eggshard.program.placement import Dim


def content(n, dim, device):
    """The global index at each place of a device's shard, one by one; -1 outside the tensor."""
    start, stop = dim.specified(n)
    index = [device * dim.tile + dim.low + i for i in range(dim.size)]
    return np.array([i % n if start <= i < stop else -1 for i in index], int)


def random_range(rng, n):
    """Indices that a wrapped window specifies: usually more than there are, sometimes fewer."""
    start = rng.randint(-6, 3)
    return start, rng.randint(start + 1, n + 6) if n + 6 > start else start


def random_dim(rng, n, count, *, tile=None):
    tile = -(-n // count) + rng.choice([0, 0, 0, 1]) if tile is None else tile
    if rng.random() < 0.3:
        return Dim(("x",), tile, 0, 0, random_range(rng, n) if rng.random() < 0.2 else None)
    low = rng.randint(-5, 4)
    high = rng.randint(max(low - tile + 1, -5), 5)
    if rng.random() < 0.4:
        low, high = min(low, 0), max(high, 0)
    return Dim(("x",), tile, low, high, random_range(rng, n) if rng.random() < 0.25 else None)


def after(n, count, source, target, exchange):
    """What each place of the new shards holds then: a global index, or something negative for unspecified data."""
    old = [content(n, source, d) for d in range(count)]
    new = [np.full(target.size, -2) for _ in range(count)]
    for d in range(count):
        for i, index in enumerate(old[d]):
            if 0 <= i + exchange.offsets[d] < target.size:
                new[d][i + exchange.offsets[d]] = index
    for slab in exchange.rounds:
        assert len({s for s, _ in slab.pairs}) == len({r for _, r in slab.pairs}) == len(slab.pairs)
        for s, r in slab.pairs:
            begin, end = slab.source_starts[s], slab.target_starts[r]
            assert 0 <= begin and begin + slab.width <= source.size
            assert 0 <= end and end + slab.width <= target.size
            new[r][end : end + slab.width] = old[s][begin : begin + slab.width]
    return new


def check_exchange(n, count, source, target):
    exchange = slab_exchange(n, count, source, target)
    wanted = [content(n, target, d) for d in range(count)]
    held = {int(i) for d in range(count) for i in content(n, source, d)}
    if exchange is None:
        return None
    assert all(int(i) in held for want in wanted for i in want if i >= 0)
    for want, got in zip(wanted, after(n, count, source, target, exchange), strict=True):
        assert ((want < 0) | (want == got)).all(), (n, count, source, target, exchange)
    return exchange


@pytest.mark.parametrize("seed", range(6))
def test_exchanges_deliver(seed):
    rng = random.Random(seed)
    found = 0
    for _ in range(300):
        count, n = rng.choice([1, 2, 3, 4, 5, 8]), rng.randint(1, 18)
        source = random_dim(rng, n, count)
        target = random_dim(rng, n, count, tile=source.tile if rng.random() < 0.6 else None)
        found += check_exchange(n, count, source, target) is not None
    assert found > 120


def test_nothing_is_missing_without_a_reason():
    """An exchange is found wherever somebody holds what is needed, but for slabs that would not fit."""
    rng = random.Random(0)
    for _ in range(1000):
        count, n = rng.choice([2, 3, 4, 8]), rng.randint(2, 18)
        tile = -(-n // count)
        source, wide = Dim(("x",), tile), random_dim(rng, n, count, tile=tile)
        assert check_exchange(n, count, source, wide) is not None, (n, count, wide)


@pytest.mark.parametrize("seed", range(4))
def test_exchange_moves_no_more_than_it_must(seed):
    """Without unequal runs the widths add up to what the busiest device lacks; and never to less."""
    rng = random.Random(seed)
    for _ in range(300):
        count, tile = rng.choice([2, 3, 4, 8]), rng.randint(1, 5)
        n = count * tile
        low, high = -rng.randint(0, tile), rng.randint(0, tile)
        wrapped = (low, n + high) if rng.random() < 0.5 else None
        exchange = slab_exchange(n, count, Dim(("x",), tile), Dim(("x",), tile, low, high, wrapped))
        assert exchange is not None
        assert exchange.width == high - low or (count == 2 and exchange.width == max(high, -low) and not wrapped)
        wide = Dim((), tile, low, high, wrapped)
        lacking = max(sum(i >= 0 and i // tile != d for i in content(n, wide, d)) for d in range(count))
        assert exchange.width >= lacking


@pytest.mark.parametrize("seed", range(4))
def test_what_devices_repeat_is_what_they_do_one_by_one(seed, monkeypatch):
    rng = random.Random(seed)
    cases, short = [], 0
    for _ in range(250):
        count, tile = rng.choice([7, 12, 16, 31]), rng.randint(1, 6)
        n = max(1, count * tile - rng.choice([0, 0, 1, tile, rng.randint(0, 3 * tile)]))
        source, target = (random_dim(rng, n, count, tile=tile) for _ in range(2))
        short += repetition(n, count, source, target) is not None
        cases.append((n, count, source, target))
    found = [slab_exchange.__wrapped__(*case) for case in cases]
    monkeypatch.setattr(windows, "repetition", lambda *_: None)
    assert found == [slab_exchange.__wrapped__(*case) for case in cases]
    assert short > 100
    assert sum(exchange is not None for exchange in found) > 100


def test_few_devices_stand_for_many():
    """A halo of as many devices as one likes is worked out for a few."""
    source, target = Dim(("x",), 8), Dim(("x",), 8, -1, 1, (-1, 8 * 4096 + 1))
    found = repetition(8 * 4096, 4096, source, target)
    assert found is not None
    assert 4096 - found.extra <= 9
    exchange = slab_exchange(8 * 4096, 4096, source, target)
    assert exchange is not None
    assert [slab.width for slab in exchange.rounds] == [1, 1]
    assert {slab.pairs for slab in exchange.rounds} == {
        tuple(sorted((d, (d + shift) % 4096) for d in range(4096))) for shift in (1, -1)
    }


@pytest.mark.parametrize("seed", range(3))
def test_segments_and_covers(seed):
    rng = random.Random(seed)
    for _ in range(500):
        count, n = rng.choice([1, 2, 3, 4, 5]), rng.randint(1, 14)
        dim = random_dim(rng, n, count)
        held = set()
        for d in range(count):
            want = content(n, dim, d)
            got = np.full(dim.size, -1)
            for s in segments(n, dim, d):
                assert s.length > 0
                got[s.position : s.position + s.length] = np.arange(s.first, s.first + s.length)
            np.testing.assert_array_equal(got, want)
            held.update(int(i) for i in want if i >= 0)
        assert covers(n, count, dim) == (len(held) == n)


@pytest.mark.parametrize("seed", range(3))
def test_inside(seed):
    """What is inside is had without messages; and what lies within on every device is inside."""
    rng = random.Random(seed)
    for _ in range(500):
        count, n = rng.choice([2, 3, 4]), rng.randint(2, 14)
        wide = random_dim(rng, n, count)
        narrow = random_dim(rng, n, count, tile=wide.tile)
        shift, own = narrow.low - wide.low, True
        for d in range(count):
            held = dict(enumerate(content(n, wide, d)))
            own &= all(i < 0 or held.get(p + shift) == i for p, i in enumerate(content(n, narrow, d)))
        assert inside(n, count, narrow, wide) == own


@pytest.mark.parametrize("seed", range(3))
def test_bounding_window(seed):
    rng = random.Random(seed)
    for _ in range(300):
        count, n = rng.choice([2, 3, 4]), rng.randint(2, 14)
        tile = -(-n // count)
        windows = [random_dim(rng, n, count, tile=tile) for _ in range(rng.randint(1, 3))]
        whole = bounding_window(windows, n)
        assert (whole.low, whole.high) == (min(w.low for w in windows), max(w.high for w in windows))
        ranges = [w.specified(n) for w in windows]
        assert whole.specified(n) == (min(a for a, _ in ranges), max(b for _, b in ranges))
        assert whole.wrapped != (0, n), "what is just the tensor is not named"
        assert all(inside(n, count, w, whole) for w in windows)
    with pytest.raises(AssertionError, match="different grids"):
        bounding_window([Dim(("x",), 2), Dim(("x",), 3)], 5)


@pytest.mark.parametrize("seed", range(3))
def test_trimmed(seed):
    """No wider, of the same grid, and every device still holds what it held of the tensor."""
    rng, narrower = random.Random(seed), 0
    for _ in range(300):
        count, n = rng.choice([2, 3, 4]), rng.randint(1, 14)
        dim = random_dim(rng, n, count, tile=rng.choice([-(-n // count), n, n + 3]))
        cut = trimmed(n, count, dim)
        assert (cut.axes, cut.tile, cut.wrapped) == (dim.axes, dim.tile, dim.wrapped) and cut.size >= 1
        assert cut.low >= dim.low and cut.high <= dim.high
        assert inside(n, count, dim, cut) or not any(segments(n, dim, d) for d in range(count))
        narrower += cut != dim
    assert narrower


@pytest.mark.parametrize("seed", range(3))
def test_reached(seed):
    """Exactly the operand indices that the indices of a shard reach; of a mirrored one those at the other end."""
    rng = random.Random(seed)
    for _ in range(300):
        first, mirrored = rng.randint(-4, 4), rng.random() < 0.3
        reach = Reach(0, first, first + rng.randint(0, 3), rng.choice([1, 1, 2, 3]), mirrored=mirrored)
        dim = random_dim(rng, 40, 4)
        operand = reached(dim, reach, 4, 40, 40)
        for d in range(4):
            results = range(d * dim.tile + dim.low, d * dim.tile + dim.low + dim.size)
            at = [reach.scale * (-j if mirrored else j) for j in results]
            needed = [i for a in at for i in range(a + reach.first, a + reach.last + 1)]
            begin = (3 - d if mirrored else d) * operand.tile + operand.low
            assert (min(needed), max(needed) + 1) == (begin, begin + operand.size)


@pytest.mark.parametrize("seed", range(3))
def test_reached_between_holes(seed):
    """The elements among the places that a shard reaches, and the holes around them."""
    rng = random.Random(seed)
    for _ in range(300):
        first, q, scale = rng.randint(-6, 6), rng.choice([2, 3, 4]), rng.choice([1, 1, 2])
        reach = Reach(0, first, first + rng.randint(0, 5), scale, divisor=q)
        dim = random_dim(rng, 40, 4, tile=q * rng.randint(1, 5))
        operand, (before, after) = reached(dim, reach, 4, 40, 40), reach.edges(dim)
        for d in range(4):
            results = range(d * dim.tile + dim.low, d * dim.tile + dim.low + dim.size)
            places = [p for j in results for p in range(scale * j + first, scale * j + reach.last + 1)]
            begin = d * operand.tile + operand.low
            assert {p // q for p in places if p % q == 0} <= set(range(begin, begin + operand.size))
            assert q * begin - before == min(places)
            assert q * (begin + operand.size - 1) + after == max(places)
            assert operand.size == 1 or (before >= 0 and after >= 0), "no element more than needed"


def test_two_devices_whose_sides_differ():
    """One row below and three above, on two devices: each lacks another number of rows."""
    exchange = check_exchange(16, 2, Dim(("x",), 8), Dim(("x",), 8, -1, 3))
    assert exchange is not None
    for low, high in ((-1, 3), (-3, 1), (-4, 0), (0, -4 + 8), (-2, 2)):
        for wrapped in (False, True):
            target = Dim(("x",), 8, low, high, (low, 16 + high) if wrapped else None)
            assert check_exchange(16, 2, Dim(("x",), 8), target) is not None


@pytest.mark.parametrize("halo", [2, 3, 5, 8])
def test_halo_wider_than_a_tile(halo):
    """Rows from several neighbours: at most a round a hop and direction."""
    exchange = check_exchange(16, 8, Dim(("x",), 2), Dim(("x",), 2, -halo, halo))
    assert exchange is not None
    assert len(exchange.rounds) <= 2 * -(-halo // 2) and exchange.width <= 2 * halo


def test_uneven_tiles_that_wrap():
    """The last tile is short: around the end the window is split."""
    for n in (13, 14, 15):
        for low, high in ((-1, 1), (-2, 2), (-3, 3), (0, 3), (2, 2)):
            for target in (Dim(("x",), 4, low, high, (low, n + high)), Dim(("x",), 4, low, high, (low, 16 + high))):
                assert check_exchange(n, 4, Dim(("x",), 4), target) is not None


@pytest.mark.parametrize("n", [13, 14, 15])
def test_padding_of_uneven_tiles_is_not_fetched(n):
    """Around a domain that four tiles of 4 do not fill, a halo is as wide as around any other."""
    for low, high in ((-1, 1), (-1, 0), (0, 1), (1, 1), (-1, -1)):
        exchange = check_exchange(n, 4, Dim(("x",), 4), Dim(("x",), 4, low, high, (low, n + high)))
        assert exchange is not None and exchange.width == max(high, 0) - min(low, 0)


@pytest.mark.parametrize("seed", range(3))
def test_what_wrapped_windows_need(seed):
    """Along a chain of rotations exactly the indices are specified that those specified of the result stand for."""
    rng = random.Random(seed)
    for _ in range(200):
        count, n = rng.choice([2, 3, 4]), rng.randint(3, 14)
        dim = first = Dim(("x",), -(-n // count))
        amount = 0
        for _ in range(rng.randint(1, 4)):
            step = rng.randint(-(n // 2), n // 2)
            amount += step
            dim = reached(dim, Reach(0, step, step, wrapped=True), count, n, n)
            for d in range(count):
                wanted = content(n, first, d)
                np.testing.assert_array_equal(content(n, dim, d), np.where(wanted < 0, -1, (wanted + amount) % n))
        back = reached(dim, Reach(0, -amount, -amount, wrapped=True), count, n, n)
        assert back == first, "what is rotated back lies on the tiles again"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_specified_of_operands(seed):
    """Around a tensor that is made longer, of mirrored windows, and of those that are wrapped already."""
    rng = random.Random(seed)
    for _ in range(300):
        count, n = rng.choice([1, 2, 3, 4]), rng.randint(2, 14)
        mirrored, wraps, lhs, rhs = rng.random() < 0.4, rng.random() < 0.6, rng.randint(0, 2), rng.randint(0, 2)
        dim = random_dim(rng, n, count)
        if mirrored or dim.wrapped:
            lhs = rhs = 0
        if mirrored:
            reach = Reach(0, n - 1, n - 1, mirrored=True)
        else:
            reach, dim = Reach(0, -lhs, -lhs, wrapped=wraps), dim._replace(tile=-(-(n + lhs + rhs) // count))
        operand = reached(dim, reach, count, n + lhs + rhs, n)
        if not dim.wrapped and not reach.wrapped:
            assert operand.wrapped is None
            continue
        start, stop = dim.specified(n + lhs + rhs)
        places = [n - 1 - j if mirrored else j - lhs for j in range(start, stop)]
        assert operand.specified(n) == (min(places), max(places) + 1)


@pytest.mark.parametrize(("wrapped", "text"), [(None, "x[-1:+1]"), ((-1, 17), "x[-1:+1 wrapped -1:17]")])
def test_printed(wrapped, text):
    assert str(Dim(("x",), 4, -1, 1, wrapped)) == text
