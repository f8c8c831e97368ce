"""Times of code that is followed instruction by instruction."""

from __future__ import annotations

import pytest

from eggshard.triton.compiler.timing import Instruction, Timing, timing

ADD = Instruction(4.0, "float", 0.5)
LOAD = Instruction(1.0, "memory", 1.0, starts=(("0", 30.0),))
USE = Instruction(4.0, "float", 0.5, waits=(("0", 0),))


def test_one_after_another() -> None:
    assert timing([ADD] * 3, warps=4) == Timing(latency=12.0, busy=6.0)


def test_warps_share_units() -> None:
    """16 warps keep the unit busy for 8 cycles where one waits for 4."""
    assert timing([ADD] * 3, warps=16) == Timing(latency=20.0, busy=24.0)


def test_a_result_is_waited_for() -> None:
    assert timing([LOAD, USE], warps=1).latency == 31.0 + 4.0
    assert timing([LOAD, *[ADD] * 10, USE], warps=1).latency == 1.0 + 40.0 + 4.0


def test_some_may_be_under_way() -> None:
    """The second wait is for the first of two loads only."""
    newer = USE._replace(waits=(("0", 1),))
    assert timing([LOAD, ADD, LOAD, newer], warps=1).latency == 31.0 + 4.0
    assert timing([LOAD, ADD, LOAD, USE], warps=1).latency == 36.0 + 4.0


def test_loops_run_as_often_as_they_are_said_to() -> None:
    found = timing([ADD, ADD, LOAD, ADD._replace(target=1)], warps=1, trips=10)
    assert found == Timing(latency=4.0 + 10 * (4.0 + 1.0 + 4.0), busy=0.5 + 10 * 1.0)
    assert timing([ADD._replace(target=0)], warps=1).latency == 4.0  # what ends a text


def test_what_stands_out_of_line_is_no_loop() -> None:
    """A branch to the end, where a block branches back."""
    code = [ADD._replace(target=3), ADD, ADD._replace(goes_on=False), ADD._replace(target=1, goes_on=False)]
    assert timing(code, warps=1, trips=10).latency == 4.0 * 4


def test_loops_in_loops() -> None:
    code = [ADD, ADD, ADD._replace(target=1), ADD._replace(target=0)]
    assert timing(code, warps=1, trips=10).latency == 4.0 * (10 * (1 + 10 * 2 + 1))


def test_what_a_loop_begins_goes_on_in_the_next_iteration() -> None:
    """Each load is used an iteration later: but for the first, its 30 cycles pass with 40 of work."""
    body = [USE, LOAD, *[ADD] * 10, ADD._replace(target=0)]
    assert timing(body, warps=1, trips=4).latency == 4 * (4.0 + 1.0 + 44.0)


@pytest.mark.parametrize(("resident", "cycles"), [(1, 1000.0), (4, 250.0), (8, 200.0)])
def test_blocks_hide_each_others_latency(resident: int, cycles: float) -> None:
    assert Timing(latency=1000.0, busy=200.0).cycles(resident) == cycles
