"""Layouts: disjoint, few bytes, one place for sizes and addresses, the same in every process."""

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.engines.workspace.random_requests import random_requests

from eggshard.engines.workspace.layout import Layout, buffers_of, lay_out
from eggshard.engines.workspace.obligations import prove
from eggshard.engines.workspace.packing import Buffer, extent, max_live, pack
from eggshard.engines.workspace.requests import LINE, Lifetime, Request
from eggshard.errors import WorkspaceError

ONCE = Lifetime(0, 0)


def assert_disjoint(layout):
    """Of every two that live together one ends where the other begins, or before; all within a slice, on lines."""
    low = np.array(layout.offsets)
    high = np.array([layout.end(r.name) for r in layout.requests])
    first, last = np.array([r.lifetime for r in layout.requests]).T
    together = np.triu((first[:, None] <= last) & (first <= last[:, None]), 1)
    assert not (together & (low[:, None] < high) & (low < high[:, None])).any()
    assert high.max() <= layout.guard_range[0] <= layout.stride
    for r in layout.requests:
        slots = [layout.offset(r.name, slot) for slot in range(r.slots)]
        assert not any(at % LINE for at in slots) and layout.stride % LINE == 0
        assert all(b - a >= r.bytes for a, b in zip(slots, [*slots[1:], layout.end(r.name)], strict=True))


def assert_same_addresses(layout, devices):
    """Allocator and users, who read the layout from text in another process: equal addresses."""
    again = Layout.from_json(layout.to_json())
    assert again == layout and again.version == layout.version
    assert again.total(devices) == layout.total(devices) == devices * layout.stride
    for r in layout.requests:
        slot = r.slots - 1
        by_hand = (devices - 1) * layout.stride + layout.offset(r.name) + slot * r.slot_stride
        assert by_hand == layout.address(r.name, devices - 1, devices, slot)
        assert by_hand == again.address(r.name, devices - 1, devices, slot)


def density(layout):
    """Bytes that requests take over the most that are live at once, in lines; 1 where nothing is live."""
    live = max_live(buffers_of(layout.requests))
    return layout.extent / live if live else 1.0


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow, id="ten_thousand")])
def test_random_sets_take_little_more_than_is_live(count):
    rng, densities = random.Random(2026), []
    for i in range(count):
        layout = lay_out(random_requests(rng, most=12), guard=64)
        densities.append(density(layout))
        if i % 8 == 0:
            assert_disjoint(layout)
        if i % 40 == 0:
            assert_same_addresses(layout, 3)
    print(f"bytes laid out over bytes live at once: mean {np.mean(densities):.5f}, largest {max(densities):.3f}")
    assert np.mean(densities) <= 1.02


@pytest.mark.slow
def test_large_random_sets_take_little_more_than_is_live():
    rng, densities = random.Random(7), []
    for _ in range(500):
        layout = lay_out(random_requests(rng, most=60))
        assert_disjoint(layout)
        assert_same_addresses(layout, 2)
        densities.append(density(layout))
    print(f"bytes laid out over bytes live at once: mean {np.mean(densities):.5f}, largest {max(densities):.3f}")
    assert np.mean(densities) <= 1.02


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_slices_are_disjoint(seed, devices):
    layout = lay_out(random_requests(random.Random(seed)), guard=seed % 100)
    assert_disjoint(layout)
    assert_same_addresses(layout, devices)
    prove(layout).check()


def test_the_order_of_requests_does_not_matter_and_new_requests_make_a_new_version():
    rng = random.Random(3)
    requests = random_requests(rng)
    layout = lay_out(requests)
    shuffled = rng.sample(requests, len(requests))
    assert lay_out(shuffled) == layout and lay_out(shuffled).version == layout.version
    assert lay_out([*requests, Request("new", 64, ONCE)]).version != layout.version
    assert lay_out(requests, guard=64).version != layout.version


def test_many_buffers_are_packed_as_few_are():
    rng = random.Random(5)
    buffers = []
    for _ in range(400):
        first = rng.randrange(300)
        buffers.append(Buffer(rng.randint(0, 50) * 64, first, first + rng.randrange(20)))
    addresses = pack(buffers)
    for i, (a, at) in enumerate(zip(buffers, addresses, strict=True)):
        assert at % 64 == 0
        for b, other in zip(buffers[:i], addresses[:i], strict=True):
            together = a.first <= b.last and b.first <= a.last and a.bytes and b.bytes
            assert not together or at + a.bytes <= other or other + b.bytes <= at
    assert extent(buffers, addresses) <= 1.1 * max_live(buffers)


def test_names_slots_and_devices_that_do_not_exist_are_errors():
    layout = lay_out([Request("a", 1, ONCE)])
    for wrong, what in (
        (lambda: layout.offset("b"), "nobody requested"), (lambda: layout.offset("a", -1), "slot -1"),
        (lambda: layout.offset("a", slot=1), "slot 1"), (lambda: layout.total(0), "0 slices"),
        (lambda: layout.address("a", 0, 0), "device 0 has no slice"),
        (lambda: layout.address("a", 2, 2), "device 2 has no slice"),
        (lambda: lay_out([Request("a", 1, ONCE), Request("a", 2, ONCE)]), "two requests"),
        (lambda: Layout.from_json("{}"), "not a layout"), (lambda: Layout.from_json("]"), "not JSON"),
        (lambda: Layout.from_json(layout.to_json().replace('"slots"', '"rings"')), "damaged"),
        (lambda: Layout.from_json(layout.to_json().replace('"offsets": [0]', '"offsets": []')), "0 offsets of 1"),
    ):
        with pytest.raises(WorkspaceError, match=what):
            wrong()


@pytest.mark.parametrize("wrong", [
    {"name": ""}, {"bytes": -1}, {"slots": 0}, {"lifetime": Lifetime(3, 2)}, {"lifetime": Lifetime(-1, 2)},
    {"sharing": "shared-write"},
])
def test_requests_that_contradict_themselves(wrong):
    with pytest.raises(WorkspaceError):
        Request(**{"name": "r", "bytes": 1, "lifetime": ONCE, **wrong})


def test_requests_of_nothing():
    layout = lay_out([Request("none", 0, ONCE), Request("some", 10, ONCE)])
    assert layout.offset("none") % 64 == 0 and layout.stride == 64
    assert lay_out([Request("none", 0, ONCE)]).stride == 0
    assert lay_out([]).stride == lay_out([]).total(4) == 0
    assert lay_out([], guard=1).guard_range == (0, 64)


def test_sizes_beyond_what_64_bits_address():
    large = Request("a", 2**62, ONCE)
    assert lay_out([large]).stride == 2**62
    for wrong in (lambda: lay_out([large]).total(2), lambda: lay_out([large, Request("b", 2**62, ONCE)])):
        with pytest.raises(WorkspaceError):
            wrong()
