"""Layouts: disjoint at all sizes, few bytes, one place for sizes and addresses, the same in every process."""

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.engines.workspace.random_requests import random_requests, random_symbols

from eggshard.engines.workspace.layout import Layout, density, lay_out
from eggshard.engines.workspace.obligations import prove
from eggshard.engines.workspace.packing import Buffer, extent, max_live, pack
from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.sizes import Size, parse, symbol
from eggshard.errors import WorkspaceError


def assert_disjoint(layout, symbols):
    """Of every two that live together one ends where the other begins, or before; all within a slice."""
    places = [layout.place(r.name, symbols) for r in layout.requests]
    end = max((r.lifetime.last for r in layout.requests if r.lifetime), default=0)
    lives = np.array([r.lifetime or (0, end) for r in layout.requests])
    low, high = np.array([p.offset for p in places]), np.array([p.end for p in places])
    first, last = lives.T
    together = np.triu((first[:, None] <= last) & (first <= last[:, None]), 1)
    assert not (together & (low[:, None] < high) & (low < high[:, None])).any()
    assert high.max() <= layout.guard_range(symbols)[0] <= layout.stride(symbols)
    for r, p in zip(layout.requests, places, strict=True):
        assert p.offset % r.alignment == p.slot_stride % r.alignment == 0
        assert p.slot_stride >= r.bytes.value(symbols)


def assert_same_addresses(layout, symbols, devices):
    """Allocator and users, who read the layout from text in another process, or its expressions: equal addresses."""
    again = Layout.from_json(layout.to_json())
    assert again.version == layout.version and again.total(devices, symbols) == layout.total(devices, symbols)
    assert layout.total(devices, symbols) == devices * layout.stride_size.value(symbols)
    for r in layout.requests:
        at = r.slots.value(symbols) - 1, r.rings.value(symbols) - 1
        by_hand = (devices - 1) * layout.stride_size.value(symbols) + layout.offset_sizes[r.name].value(symbols)
        by_hand += (at[1] * r.slots.value(symbols) + at[0]) * r.slot_stride().value(symbols)
        assert by_hand == layout.address(r.name, devices - 1, devices, at[1], at[0], symbols=symbols)
        assert by_hand == again.address(r.name, devices - 1, devices, at[1], at[0], symbols=symbols)


def test_ten_thousand_random_sets_take_little_more_than_is_live():
    rng, densities = random.Random(2026), []
    for i in range(10_000):
        symbols = random_symbols(rng)
        layout = lay_out(random_requests(rng, most=12), symbols, guard=64)
        densities.append(density(layout, symbols))
        if i % 8 == 0:
            assert_disjoint(layout, symbols)
        if i % 40 == 0:
            assert_same_addresses(layout, symbols, 3)
    print(f"bytes laid out over bytes live at once: mean {np.mean(densities):.5f}, largest {max(densities):.3f}")
    assert np.mean(densities) <= 1.02


@pytest.mark.slow
def test_large_random_sets_take_little_more_than_is_live():
    rng, at_sample, elsewhere, unsampled = random.Random(7), [], [], []
    for _ in range(500):
        symbols, others = random_symbols(rng), random_symbols(rng)
        requests = random_requests(rng, most=60)
        layout = lay_out(requests, symbols)
        for where in (symbols, others):
            assert_disjoint(layout, where)
            assert_same_addresses(layout, where, 2)
        at_sample.append(density(layout, symbols))
        elsewhere.append(density(layout, others))
        unsampled.append(density(lay_out(requests), others))
    print(f"at the sample {np.mean(at_sample):.5f}, at other sizes {np.mean(elsewhere):.5f}, without a sample "
          f"{np.mean(unsampled):.5f}")
    assert np.mean(at_sample) <= 1.02 and np.mean(elsewhere) <= 1.1 and np.mean(unsampled) <= 1.1


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5))
def test_slices_are_disjoint_whatever_the_symbols_are(seed, n, m, k, devices):
    """Also at sizes that the packing never saw; and allocator and users compute equal addresses there."""
    rng = random.Random(seed)
    layout = lay_out(random_requests(rng, symbolic=0.8), random_symbols(rng) if seed % 2 else None, guard=seed % 100)
    symbols = {"n": n, "m": m, "k": k}
    assert_disjoint(layout, symbols)
    assert_same_addresses(layout, symbols, devices)
    prove(layout).check(symbols)


def test_the_order_of_requests_does_not_matter_and_new_requests_make_a_new_version():
    rng = random.Random(3)
    requests = random_requests(rng)
    layout = lay_out(requests)
    shuffled = rng.sample(requests, len(requests))
    assert lay_out(shuffled) == layout and lay_out(shuffled).version == layout.version
    more = lay_out([*requests, Request.make("new", 64)])
    assert more.version != layout.version
    assert lay_out(requests, guard=64).version != layout.version != lay_out(requests, granule=128).version


def test_many_buffers_are_packed_as_few_are():
    rng = random.Random(5)
    buffers = []
    for _ in range(400):
        first = rng.randrange(300)
        buffers.append(Buffer(rng.randint(0, 50) * 64, first, first + rng.randrange(20), rng.choice((64, 128))))
    addresses = pack(buffers)
    for i, (a, at) in enumerate(zip(buffers, addresses, strict=True)):
        assert at % a.alignment == 0
        for b, other in zip(buffers[:i], addresses[:i], strict=True):
            together = a.first <= b.last and b.first <= a.last and a.bytes and b.bytes
            assert not together or at + a.bytes <= other or other + b.bytes <= at
    assert extent(buffers, addresses) <= 1.1 * max_live(buffers)


def test_symbolic_offsets_are_maxima_over_what_lies_below():
    layout = lay_out([
        Request.make("a", "4*n", (0, 1)), Request.make("b", "8*n*m", (1, 2)), Request.make("c", 100, (2, 3)),
    ], {"n": 100, "m": 2}, guard=1)
    assert layout.order[0] == "b"
    assert str(layout.offset_sizes["a"]) == "64*ceil(8*m*n / 64)" == str(layout.offset_sizes["c"])
    assert str(layout.stride_size) == (
        "64 + max(128 + 64*ceil(8*m*n / 64), 64*ceil(4*n / 64) + 64*ceil(8*m*n / 64))"
    )
    assert layout.total("D", {"n": 3, "m": 4, "D": 8}) == 8 * layout.stride({"n": 3, "m": 4})


def test_expressions_of_many_requests_stay_small():
    """A tower of requests on requests: what is shared is kept, evaluated and printed once."""
    requests = []
    for i in range(60):
        for side in "ab":
            requests.append(Request.make(f"{side}{i}", f"{i % 7 + 1}*n + {i}*{side}", (i, i + 1 + (side == "a"))))
    layout = lay_out(requests)
    symbols = {"n": 99, "a": 5, "b": 7}
    text = str(layout.stride_size)
    assert " where _1 = " in text and len(text) < 40_000
    assert parse(text) == layout.stride_size and parse(text).value(symbols) == layout.stride(symbols)
    doubled = layout.stride_size.substituted({"n": "2*k", "a": 5, "b": "k"})
    assert doubled.symbols == {"k"} and doubled.value({"k": 7}) == layout.stride({"n": 14, "a": 5, "b": 7})
    prove(layout).check(symbols)


def test_missing_symbols_names_and_devices_are_errors():
    layout = lay_out([Request.make("a", "n")])
    for wrong, what in (
        (lambda: layout.stride(), "no value yet"), (lambda: layout.offset("b", symbols={"n": 1}), "nobody requested"),
        (lambda: layout.address("a", 0, 0, symbols={"n": 1}), "launch at least one"),
        (lambda: layout.address("a", 2, 2, symbols={"n": 1}), "device 2 has no slice"),
        (lambda: layout.address("a", 0, "D", symbols={"n": 1}), "no value yet"),
        (lambda: layout.offset("a", ring=1, symbols={"n": 1}), "ring 1"),
        (lambda: layout.offset("a", lane=-1, symbols={"n": 1}), "lane -1"),
        (lambda: layout.stride({"n": -1}), "non-negative"), (lambda: layout.stride({"n": True}), "non-negative"),
        (lambda: lay_out([Request.make("a", 1), Request.make("a", 2)]), "two requests"),
        (lambda: Layout.from_json("{}"), "not a layout"), (lambda: Layout.from_json("]"), "not JSON"),
        (lambda: Layout.from_json(layout.to_json().replace('["a"]', "[]")), "names each"),
    ):
        with pytest.raises(WorkspaceError, match=what):
            wrong()


def test_an_empty_workspace():
    layout = lay_out([])
    assert layout.stride() == layout.total(4) == 0
    assert lay_out([], guard=1).guard_range() == (0, 64)


sizes = st.deferred(lambda: st.one_of(
    st.integers(0, 50).map(Size.of), st.sampled_from("abc").map(symbol),
    st.tuples(sizes, sizes).map(lambda p: p[0] + p[1]), st.tuples(sizes, sizes).map(lambda p: p[0] * p[1]),
    st.tuples(sizes, st.integers(1, 64)).map(lambda p: p[0].divided(p[1])),
    st.tuples(sizes, st.sampled_from((4, 64))).map(lambda p: p[0].aligned(p[1])),
))


@settings(max_examples=100)
@given(sizes, sizes, st.integers(1, 9), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_sizes_keep_their_meaning(left, right, divisor, a, b, c):
    symbols = {"a": a, "b": b, "c": c}
    try:
        x, y = left.value(symbols), right.value(symbols)
        assert (left + right).value(symbols) == x + y
        assert (left * right).value(symbols) == x * y
    except WorkspaceError as error:
        assert "beyond 64 bits" in str(error)
        return
    assert left.divided(divisor).value(symbols) == -(-x // divisor)
    assert left.aligned(64).value(symbols) == -(-x // 64) * 64
    from eggshard.engines.workspace.sizes import maximum

    assert maximum(left, right, 3).value(symbols) == max(x, y, 3)
    for size in (left, right, left + right, maximum(left, right)):
        assert parse(str(size)) == size == Size.of(size.to_json())
        assert left + right == right + left and left * right == right * left
    assert left.factor == 0 or x % left.factor == 0
    assert left.substituted({"a": 2 * symbol("b")}).value(symbols) == left.value({**symbols, "a": 2 * b})


@pytest.mark.parametrize("text", ["n - 1", "n / 2", "n // 2", "f(n)", "", "1.5", "n[0]", "max", "__import__('os')",
                                  "ceil(n / m)", "lambda: 1", "None", "-3", "n.m", "ceil(3 / 0)"])
def test_texts_that_are_no_sizes(text):
    with pytest.raises(WorkspaceError):
        parse(text)
