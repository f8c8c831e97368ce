"""The order in which the linear and integer programs are solved, tightened and rounded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from eggshard.selection.certify.highs import SolverError, deadline_left
from eggshard.selection.certify.linear import EdgeProgram
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.verify import complete

#: The most rounds of rows: covers, and cuts of plans in circles.
ROUNDS = 80
#: Covers are added until so many rounds each closed less than this fraction of the gap.
PROGRESS, PATIENCE = 0.02, 4
#: So small a part of the choices is worth starting again with.
SMALLER = 0.7


def improve_by_programs(
    graph: Graph, incumbent: Selection, search: LocalSearch, deadline: float, gap: float, integer: bool,
    offer: Callable[[Selection | None, str], object], raise_bound: Callable[[float, str], None],
    raise_single: Callable[[float], None], done: Callable[[], bool], enough: Callable[[], bool],
    go_on: Callable[[Problem], bool] | None = None,
) -> None:
    """Solve the linear program, tighten and round it, then the integer program; the callbacks get plans and bounds.

    The program without copies comes first: it is tight, and its plan is mostly the best one; ``enough`` says whether
    its certificate will do. Then the full program bounds all plans, with cover rows as long as they close the gap;
    plans in which choices wait for each other are cut off and the programs solved again. Where tightening leaves a much
    smaller problem ``go_on`` gets that, with every plan cheaper than the best one, and says whether it goes on with it
    instead. Raises `SolverError`.
    """
    problem = graph.problem
    program = EdgeProgram(graph, incumbent, deadline)
    best = incumbent
    cutoff = math.inf
    relaxing = 0.0

    def consider(plan: Selection | None, method: str) -> None:
        nonlocal best
        if plan is not None and plan.cost < best.cost:
            best = plan
        offer(plan, method)

    def note(bound: float) -> None:  # after `tighten`, bounds hold for plans cheaper than the cutoff
        raise_bound(min(bound, cutoff), "linear")

    try:
        single = program.relax_single()
        raise_single(single.bound)
        consider(complete(problem, program.chosen(single.x)) or search.improve(program.rounded()), "linear")
        if enough():
            return
    except SolverError:  # no plan without copies, or out of time
        pass
    stalled, patience = 0.0, PATIENCE
    for _ in range(ROUNDS):
        relaxing -= time.monotonic()
        relaxation = program.relax(note)
        relaxing += time.monotonic()
        if done():
            return
        if relaxation.integral:
            consider(complete(problem, program.chosen(relaxation.x)), "linear")
            if done():
                return
            if program.circles.cut(program.solution.values):
                continue
        rise = relaxation.bound - stalled
        patience = PATIENCE if rise > PROGRESS * (best.cost - stalled) else patience - 1
        stalled = max(stalled, relaxation.bound)
        if patience and program.add_covers():
            continue
        consider(search.improve(program.rounded()), "rounding")
        if done() or not integer or deadline_left(deadline) <= 0:
            return
        cutoff = min(cutoff, best.cost)
        left, _ = program.tighten(best.cost)
        if go_on is not None and left <= SMALLER * int(program.shape.x_allowed.sum()) and go_on(program.remaining()):
            return
        # The solver begins the integer program with the linear one from scratch, and looks at no clock meanwhile.
        if deadline_left(deadline) * len(relaxation.x) < relaxing * left:
            return
        values, bound, finished = program.integer(deadline_left(deadline), gap / 2, best)
        raise_bound(min(bound, cutoff), "integer")
        if values is None:
            return
        consider(complete(problem, program.chosen(values)), "integer")
        if done() or not finished or deadline_left(deadline) <= 0 or not program.circles.cut(values):
            return
        program.model.relax()
