"""Whatever the time limit: a valid plan, and a bound that holds for the best plan known."""

import itertools
import random
import time

import pytest
from tests.selection.exhaustive import Tally, cases
from tests.selection.problems import random_problem, residual_mlp, sharded_program, stencil_windows

from eggshard.errors import LimitError
from eggshard.frontends.builder import ProgramBuilder
from eggshard.limits import Limits
from eggshard.planning import optimize
from eggshard.selection.portfolio import METHODS, extract
from eggshard.selection.problem import Problem
from eggshard.selection.verify import check, price

SECONDS = (0.0, 1e-3, 0.03, 0.2)


def circles() -> Problem:
    rng = random.Random(0)
    while True:
        problem = random_problem(rng, classes=60, placements=5, choices=8, cyclic=True)
        try:
            if extract(problem, methods=("greedy",)).gap > 0.01:
                return problem
        except LimitError:
            continue


PROBLEMS = {
    "dense": lambda: sharded_program(random.Random(3), 60, compute=0.1),
    "layers": lambda: residual_mlp(6, candidates=4),
    "windows": lambda: stencil_windows(12, 0.05),
    "circles": circles,
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_limit_ends_in_a_plan_with_a_bound(kind):
    problem = PROBLEMS[kind]()
    found = [extract(problem, seconds=seconds, deadline=time.monotonic() + seconds) for seconds in SECONDS]
    best = min(extraction.selection.cost for extraction in found)
    for extraction in found:
        assert check(problem, extraction.selection) == []
        assert extraction.selection.cost == pytest.approx(price(problem, extraction.selection))
        assert 0 <= extraction.bound <= best * (1 + 1e-12)
        assert extraction.bound <= extraction.once <= extraction.selection.cost


def test_no_bound_exceeds_the_optimum_however_little_time_there_is():
    for problem, best in cases(11, 12, False, Tally()):
        for seconds in SECONDS[:3]:
            found = extract(problem, seconds=seconds, deadline=time.monotonic() + seconds)
            assert found.bound <= best * (1 + 1e-12) and best <= found.selection.cost * (1 + 1e-12)


def test_time_that_runs_out_between_any_two_looks_at_the_clock_leaves_a_plan(monkeypatch):
    """A clock that jumps past the deadline at its n-th reading."""
    problem = stencil_windows(6, 0.05)
    for n in (*range(1, 12), 20, 40, 80, 160):
        readings = iter(range(10**9))
        with monkeypatch.context() as jumping:
            jumping.setattr(time, "monotonic", lambda n=n, readings=readings: 1e6 * (next(readings) >= n))
            found = extract(problem, seconds=1000.0, methods=METHODS, deadline=1000.0)
        assert check(problem, found.selection) == []
        assert 0 <= found.bound <= found.selection.cost


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_slow_machine_selects_as_a_fast_one_does(monkeypatch, kind):
    """A clock that runs so fast that every method seems to take hours."""
    problem = PROBLEMS[kind]()
    fast = extract(problem, seconds=0.5)
    ticks = itertools.count(0.0, 1e4)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    slow = extract(problem, seconds=0.5)
    assert slow.selection == fast.selection and slow.notes == fast.notes
    assert (slow.bound, slow.once, slow.terms) == (fast.bound, fast.once, fast.terms)


def test_time_that_ran_out_is_noted():
    found = extract(PROBLEMS["dense"](), deadline=0.0)
    assert any("time ran out" in note for note in found.notes)
    assert not any("time ran out" in note for note in extract(PROBLEMS["dense"](), seconds=1.0).notes)


@pytest.mark.parametrize("seconds", [0, 0.01, 0.3])
def test_a_whole_search_ends_in_a_plan(seconds):
    b = ProgramBuilder({"x": 2, "y": 2})
    x = b.input((8, 8), "f32", ("x", None))
    for i in range(4):
        x = b.dot(x, b.input((8, 8), "f32", (None, "y") if i % 2 else ("y", None)))
    b.output(x, ("x", "y"))
    plan = optimize(b.build(), limits=Limits(seconds=seconds))
    assert plan.cost.total >= plan.search.bound >= 0 and not plan.search.fallback
