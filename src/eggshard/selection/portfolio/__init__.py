"""The portfolio, from a problem to a plan with a certificate: each method improves on the results of those before it.

In comes a `Problem` and how long it may take; out goes an `Extraction`. `methods` is the table of what runs when,
`state` what the methods know and find. How plans are searched, bounded and solved for is written below this room.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from eggshard.selection.portfolio import methods as table
from eggshard.selection.portfolio.state import Budget, Stage, State
from eggshard.selection.problem import Extraction, Problem, Stopped
from eggshard.selection.reductions.presolve import shrink

#: The names of methods in the order in which they first run. Greedy always runs: every other method starts there.
METHODS = tuple(dict.fromkeys(method.name for method in table.METHODS))


def extract(
    problem: Problem, *, seconds: float = 10.0, gap: float = 1e-4, methods: Sequence[str] | None = None,
    most: float = 0.0, exact: bool = False, deadline: float = math.inf, far: float = 0.0,
) -> Extraction:
    """The best plan found with ``seconds`` of work, to a relative ``gap``, with a bound that holds for every plan.

    Work is counted by what is done, in seconds that it takes on a usual core, so that a problem always gets the same
    plan. At a ``deadline`` of `time.monotonic` the best plan so far is returned; a note says so. Dual ascent, which
    mostly pays, may have work for ``most`` seconds. ``exact``: a certificate among plans that compute nothing twice is
    not enough; where the problem is not too large, dual ascent, which gives no other, is left out then. ``far``: dual
    ascent ends with the plans of the best plan's terms unless that may cost this part more than some other plan.

    Never worse than any valid seed. ``methods`` restricts the portfolio to some of `METHODS`. Raises `LimitError` if no
    plan exists, `ValueError` for an unknown method, and `Stopped`, with the best plan so far, where it is interrupted.
    """
    wanted = METHODS if methods is None else tuple(methods)
    unknown = [m for m in wanted if m not in METHODS]
    if unknown:
        raise ValueError(f"unknown extraction methods {unknown}; there are {', '.join(METHODS)}")
    began = time.monotonic()
    budget = Budget(seconds, max(0.0, most - seconds), deadline, gap, exact, far)
    stage = Stage(*shrink(problem), budget.deadline)
    state = State(problem, budget, ("greedy", *wanted), stage)
    try:
        table.run(state)
    except KeyboardInterrupt:
        if state.best is None:
            raise
        raise Stopped(state.result(time.monotonic() - began)) from None
    return state.result(time.monotonic() - began)
