"""Which plan is taken: by cost and by what the code says."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from eggshard.errors import ProgramError
from eggshard.triton.compiler.choosing import (
    Code,
    cautious,
    choose,
    confining,
    falls_short,
    refusals,
    room,
    variations,
)
from eggshard.triton.compiler.counting import Usage
from eggshard.triton.compiler.timing import Executed, Timing
from eggshard.triton.layout_costs import SM80, Surcharged, WithinScratch
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.machine import Machine

OWN = Code(
    Usage(registers=100, spills=0), 1024, 4,
    Timing(latency=4000.0, busy=800.0, executed=Executed(barriers=4, shared_loads=8, shared_stores=8)))


class Plan(NamedTuple):
    cost: float
    code: Code | None = OWN


def changed(resident: int = 4, latency: float = 4000.0, busy: float = 800.0, **used: int) -> Code:
    return Code(OWN.usage._replace(**used), 1024, resident, OWN.timing._replace(latency=latency, busy=busy))


def executing(**counts: int) -> Code:
    return OWN._replace(timing=OWN.timing._replace(executed=OWN.timing.executed._replace(**counts)))


MORE_LOADS = executing(shared_loads=9, shared_stores=7)


def chosen(*plans: Plan) -> Plan | None:
    return choose(plans, 100.0, lambda: OWN, assemble).plan


def assemble(plan: Plan) -> Code:
    if plan.code is None:
        raise ProgramError("not assembled")
    return plan.code


@pytest.mark.parametrize(("code", "reason"), [
    (executing(barriers=5), "more barriers: 5, Triton's 4"),
    (executing(shared_loads=9), "more shared memory instructions: 17, Triton's 16"),
    (executing(crossbar=1), "more shared memory instructions: 17, Triton's 16"),
    (changed(spills=4), "more spilled bytes: 4, Triton's 0"),
    (changed(resident=3, latency=3000.0), "fewer blocks at once: 3, Triton's 4"),
    (changed(latency=4100.0), "longer as assembled: 1025 cycles per block, Triton's 1000"),
    (changed(busy=1100.0), "longer as assembled: 1100 cycles per block, Triton's 1000"),
])
def test_refusals(code: Code, reason: str) -> None:
    (found,) = refusals(code, OWN)
    assert found.startswith(reason)
    assert choose([Plan(1.0, code)], 100.0, lambda: OWN, assemble) == (None, [found])


def test_no_refusals() -> None:
    for code in (OWN, changed(registers=150), MORE_LOADS, changed(resident=5), executing(barriers=3)):
        assert refusals(code, OWN) == []


def test_what_falls_short() -> None:
    assert not falls_short(changed(registers=105), OWN)
    assert falls_short(changed(registers=106), OWN)
    assert falls_short(MORE_LOADS, OWN)
    alone = changed(resident=8, latency=4100.0)  # longer where the multiprocessor is not full
    assert falls_short(alone, OWN) and refusals(alone, OWN) == []


def test_the_cheapest_without_refusal_is_taken() -> None:
    refused = Plan(10.0, executing(barriers=5))
    assert chosen(refused, Plan(20.0, None), Plan(40.0), Plan(45.0)) == Plan(40.0)
    assert chosen(refused) is None


def test_what_costs_more_than_tritons_is_not_assembled() -> None:
    assert chosen(Plan(101.0, None), Plan(100.0)) == Plan(100.0)
    assert choose([Plan(101.0, None)], 100.0, lambda: OWN, assemble).refused == []


def test_a_plan_without_shortcomings_is_preferred_if_it_keeps_half_of_the_gain() -> None:
    short = Plan(20.0, changed(registers=110))
    assert chosen(short, Plan(60.0)) == Plan(60.0)
    assert chosen(short, Plan(61.0)) == short
    assert chosen(short, Plan(61.0), Plan(59.0)) == Plan(59.0)


def test_a_plan_that_falls_short_is_to_be_worth_it() -> None:
    assert chosen(Plan(98.0, changed(registers=110))) == Plan(98.0, changed(registers=110))
    assert chosen(Plan(98.1, changed(registers=110))) is None
    assert chosen(Plan(98.1, MORE_LOADS), Plan(99.9)) == Plan(99.9)


def test_the_search_ends_at_a_good_plan() -> None:
    def plans():
        yield Plan(50.0)
        raise AssertionError("no other plan is needed")

    assert choose(plans(), 100.0, lambda: OWN, assemble).plan == Plan(50.0)


def test_tritons_code_is_asked_for_only_where_a_plan_is_cheaper() -> None:
    def own() -> Code:
        raise AssertionError("not needed")

    assert choose([Plan(120.0)], 100.0, own, assemble).plan is None


def test_variations_make_dearer_what_code_is_refused_for() -> None:
    dear, within, arithmetic, shared = variations(SM80, 64)
    counts = Counts(arithmetic=(("float", 10.0), ("special", 2.0)), shared_loads=3, shared_stores=4, scratch=128)
    price = SM80.price(counts)
    assert isinstance(within, WithinScratch) and within.price(counts) > 1e6 * price
    assert arithmetic.price(counts) == pytest.approx(price + 12 * 4)
    assert shared.price(counts) == pytest.approx(price + 7 * 50)
    assert repr(Surcharged(SM80, shared=50.0)) != repr(Surcharged(SM80, shared=60.0))
    assert [dear, within] == list(cautious(SM80, 64))
    dear, _ = cautious(SM80, 128)
    assert dear.price(counts._replace(barriers=2)) == pytest.approx(dear.price(counts) + 2 * (200 + SM80.barrier))


def test_an_op_may_have_as_much_shared_memory_as_leaves_room_for_as_many_blocks() -> None:
    """Of 164 KiB on A100 each of four blocks may have 40, one of them reserved; 512 bytes of 1024 are one op's."""
    assert room(OWN, 512, Machine("cuda:80")) == 40 * 1024 - 512
    assert room(OWN._replace(resident=160), 512, Machine("cuda:80")) == 512


def test_what_has_too_much_shared_memory_is_confined_ever_more() -> None:
    """163 KiB are the most on A100: of 200 KiB, 64 of them in one op, that may have 27."""
    found = list(confining(SM80, 200 * 1024, 64 * 1024, Machine("cuda:80")))
    assert [model.scratch for model in found if isinstance(model, WithinScratch)] == [27 * 1024, 27 * 512, 0]
    assert not OWN._replace(shared=164 * 1024).fits(Machine("cuda:80")) and OWN.fits(Machine("cuda:80"))
