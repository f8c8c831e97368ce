"""One extractor on one selection problem, in a process that may be ended."""

from __future__ import annotations

import math
import pickle
import time
from pathlib import Path
from typing import Any

from bench.extraction_peers import and_or_program, egglog_extraction
from bench.worker import serve
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Problem
from eggshard.selection.verify import check, complete

#: Our extractors, as ``methods`` of the portfolio (None: as the planner runs it).
OURS: dict[str, tuple[str, ...] | None] = {
    "greedy": ("greedy",),
    "local": ("greedy", "local"),
    "dual": ("greedy", "local", "dual"),
    "integer": ("greedy", "local", "shards"),
    "portfolio": None,
}
PEERS = ("AND/OR", "egglog")


def measure(problem: Problem, extractor: str, seconds: float, scale: float) -> dict[str, Any]:
    """The exact cost of what an extractor picks, its bounds (0 without one), and its seconds.

    bound: of every plan. certified: the better of that and of plans that compute nothing twice. ``scale`` is the cost
    of some plan, for peers that count in whole numbers.
    """
    began = time.perf_counter()
    bound = certified = 0.0
    if extractor == "egglog":
        plan = complete(problem, egglog_extraction(problem, scale))
    elif extractor == "AND/OR":
        chosen, bound = and_or_program(problem, seconds, scale)
        plan = None if chosen is None else complete(problem, chosen)
        certified = bound
    else:
        found = extract(problem, seconds=seconds, methods=OURS[extractor], deadline=time.monotonic() + seconds)
        plan, bound, certified = found.selection, found.bound, max(found.bound, found.once)
    took = time.perf_counter() - began
    if plan is None:
        return {"cost": math.inf, "bound": bound, "certified": certified, "seconds": took}
    wrong = check(problem, plan)
    return {"cost": plan.cost, "bound": bound, "certified": certified, "seconds": took, "wrong": wrong[:3]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``problem`` is the path of a pickled problem."""
    problem: Problem = pickle.loads(Path(request["problem"]).read_bytes())
    return measure(problem, request["extractor"], request["seconds"], request["scale"])


if __name__ == "__main__":
    serve(answer)
