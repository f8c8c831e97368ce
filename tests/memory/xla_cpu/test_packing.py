"""Placement of buffers whose lifetimes are known."""

from __future__ import annotations

import random

from eggshard.memory.xla_cpu.packing import Buffer, Lives, in_turn, place


def test_buffers_in_use_together_do_not_overlap() -> None:
    draw = random.Random(0)
    for _ in range(50):
        buffers = []
        for _ in range(20):
            start = draw.randrange(30)
            buffers.append(Buffer(draw.randrange(1, 100), start, start + draw.randrange(6)))
        size = place(buffers)
        live = max(sum(b.size for b in buffers if b.start <= t <= b.end) for t in range(40))
        assert live <= size <= 64 * len(buffers) + sum(b.size for b in buffers)
        place(buffers)
        for i, a in enumerate(buffers):
            for b in buffers[:i]:
                apart = a.end < b.start or b.end < a.start
                assert apart or a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def test_a_buffer_goes_where_an_output_will_be() -> None:
    assert place([Buffer(10, 0, 1)], [Buffer(10, 2, 5)]) == 0
    assert place([Buffer(10, 0, 2)], [Buffer(10, 2, 5)]) == 10


def test_of_one_size_the_longest_lived_comes_first() -> None:
    short, long, later = Buffer(64, 0, 0), Buffer(64, 0, 2), Buffer(64, 1, 1)
    assert place([short, long, later]) == 128
    assert (short.offset, long.offset, later.offset) == (64, 0, 64)


def test_the_better_of_two_orders() -> None:
    """With the largest first, what lives longest lies above all of it."""
    large, first, second, long = Buffer(128, 2, 3), Buffer(64, 0, 0), Buffer(64, 1, 1), Buffer(64, 0, 3)
    assert place([large, first, second, long]) == 192


def test_how_long_a_buffer_lasts_is_told_by_its_first_value_and_by_all() -> None:
    """Two values in one buffer are there from the beginning of the first to the end of the second."""
    shared, other = Buffer(64, 0, 4, (2,)), Buffer(64, 1, 3)
    assert place([shared, other]) == 128


def test_blocks_in_turn_do_not_meet() -> None:
    twice = in_turn([Lives([Buffer(64, 0, 1)], [], 2), Lives([Buffer(64, 0, 0)], [], 1)])
    assert twice.length == 3 and place(twice.buffers) == 64
