"""CP-SAT as an extractor: optimal where tensors are computed from each other, and dispensable whatever happens."""

import random
import sys

import pytest
from tests.selection.exhaustive import Tally, cases
from tests.selection.problems import random_problem, sharded_program

from eggshard.errors import LimitError
from eggshard.selection.certify import cpsat
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Problem
from eggshard.selection.verify import check
from eggshard.worker import WorkerFailure

pytestmark = pytest.mark.skipif(not cpsat.available(), reason="OR-tools is not installed")


def in_circles(seed: int = 3) -> Problem:
    """A problem with circles that the cheap bounds do not settle."""
    rng = random.Random(seed)
    while True:
        problem = random_problem(rng, classes=12, placements=3, choices=5, cyclic=True)
        try:
            found = extract(problem, methods=("greedy", "local"))
        except LimitError:  # no plan
            continue
        if found.gap > 1e-3 and Graph(problem).has_cycles:
            return problem


def notes_of(problem: Problem) -> str:
    found = extract(problem, seconds=5.0)
    assert check(problem, found.selection) == []
    assert 0 <= found.bound <= found.selection.cost
    return "; ".join(found.notes)


def test_it_finds_the_optimum_and_bounds_it():
    asked = 0
    for problem, best in cases(7, 25, False, Tally()):
        found = extract(problem, gap=1e-6, methods=("cpsat",))
        assert check(problem, found.selection) == []
        assert found.bound <= best * (1 + 1e-9)
        assert found.selection.cost == pytest.approx(best, rel=1e-6)  # costs are whole numbers there
        asked += any(note.startswith("cpsat: cost") for note in found.notes)
    assert asked > 3


def test_it_certifies_problems_with_circles():
    problem = in_circles()
    found = extract(problem, methods=("greedy", "cpsat"))
    assert found.gap <= 1e-4
    assert any(note.startswith("cpsat: bound") for note in found.notes)


def test_the_portfolio_asks_it_only_in_circles_unless_told_to():
    plain = sharded_program(random.Random(3), 16, 5, 8, inputs=4, compute=0.1)
    assert "cpsat" not in notes_of(plain)
    assert "cpsat: cost" in "; ".join(extract(plain, seconds=2.0, methods=("greedy", "cpsat")).notes)
    assert "cpsat: cost" in notes_of(in_circles())


def test_it_gives_the_same_plan_again():
    problem = in_circles()
    first, second = (extract(problem, methods=("greedy", "cpsat")) for _ in range(2))
    assert first.selection == second.selection and first.bound == second.bound


def test_its_libraries_stay_in_their_process():
    extract(in_circles(), methods=("greedy", "cpsat"))
    assert not any(name.split(".")[0] == "ortools" for name in sys.modules)


def test_without_the_library_the_others_go_on(monkeypatch):
    monkeypatch.setattr(cpsat, "available", lambda: False)
    assert "cpsat: OR-tools is not installed" in notes_of(in_circles())


def test_a_process_that_dies_leaves_the_plan_so_far(monkeypatch):
    problem = in_circles()
    with monkeypatch.context() as broken:
        broken.setattr(cpsat, "_ENTRY", "os:abort")
        worker = cpsat.worker()
        call = worker.call
        broken.setattr(worker, "call", lambda function, *_, seconds: call(function, seconds=seconds))
        assert "solver: SolverError: memory" in notes_of(problem)
    assert "cpsat: bound" in notes_of(problem)  # another process was started


def test_a_process_that_takes_too_long_is_killed(monkeypatch):
    problem = in_circles()
    with monkeypatch.context() as hurried:
        hurried.setattr(cpsat, "PATIENCE", 0.0)
        hurried.setattr(cpsat, "START", 0.0)
        assert "solver: SolverError: time" in notes_of(problem)
    assert "cpsat: bound" in notes_of(problem)


def test_an_error_of_the_solver_is_noted(monkeypatch):
    def refuse(*_, **__):
        raise WorkerFailure("crash", "the worker process ended")

    monkeypatch.setattr(cpsat.worker(), "call", refuse)
    assert "SolverError: crash: the worker process ended" in notes_of(in_circles())
