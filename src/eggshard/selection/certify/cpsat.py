"""CP-SAT as an extractor: asks the solver in its own process, which can die or be killed without harm.

OR-tools and HiGHS cannot be loaded into one process (their symbols clash), and a process of its own ends at a time
limit whatever it does. OR-tools is optional: ``pip install eggshard[cpsat]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from eggshard.selection.certify.highs import SolverError
from eggshard.selection.copies import single_copies
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.worker import Worker, WorkerFailure, shared_worker

_MODULE = "eggshard.selection.certify.cpsat_worker"
_ENTRY = f"{_MODULE}:solve"

#: Seconds that the process takes to start; with less time left it is not asked.
START = 1.0
#: The process is killed where it takes so many times what it was given, and its start.
PATIENCE = 1.5


class Request(NamedTuple):
    """What there is to solve, and the best plan known.

    circles[c]: a number shared by the classes of one circle, -1 for a class in none. single[c]: some optimal plan
    computes class c at most once.
    """

    problem: Problem
    circles: Sequence[int]
    single: Sequence[bool]
    incumbent: Selection


class Answer(NamedTuple):
    """Choices per class of the best solution (None without one), and a bound on every plan's cost."""

    chosen: dict[int, tuple[int, ...]] | None
    bound: float


@cache
def available() -> bool:
    """Whether OR-tools is installed."""
    return find_spec("ortools") is not None


@cache
def worker() -> Worker:
    """The process, shared by all calls."""
    return shared_worker((_MODULE,))


def solve(graph: Graph, incumbent: Selection, seconds: float, gap: float) -> Answer:
    """Better choices than the incumbent's, if found in time, and a bound on every plan no dearer than it.

    ``incumbent`` is a valid plan of positive cost. Raises `SolverError` where the process gave no answer.
    """
    circles = [graph.component[c] if cyclic else -1 for c, cyclic in enumerate(graph.cyclic)]
    request = Request(graph.problem, circles, single_copies(graph.problem, graph.cyclic), incumbent)
    try:
        answer: Answer = worker().call(
            _ENTRY, request, seconds, gap, seconds=PATIENCE * seconds + 2 * START)
    except WorkerFailure as failure:
        raise SolverError(f"{failure.reason}: {failure}") from failure
    return answer
