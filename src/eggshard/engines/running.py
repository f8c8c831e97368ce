"""Engines by name: each runs a plan on global NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eggshard.errors import LoweringError
from eggshard.plan.record import PlanRecord
from eggshard.simulate.execution import run_global

Arrays = tuple[np.ndarray, ...]


def _processes(plan: PlanRecord, arrays: Sequence[np.ndarray], timeout: float | None, debug: bool) -> Arrays:
    from eggshard.engines.processes.launcher import run_on_processes

    return run_on_processes(plan, arrays, timeout, debug)[0]


def _ranks(plan: PlanRecord, arrays: Sequence[np.ndarray], timeout: float | None, debug: bool) -> Arrays:
    from eggshard.engines.mpi.launching import run_on_ranks

    return run_on_ranks(plan, arrays, timeout)


#: By name: a plan, its inputs, seconds that may pass, and whether memory is guarded; to the plan's outputs.
ENGINES: dict[str, Callable[[PlanRecord, Sequence[np.ndarray], float | None, bool], Arrays]] = {
    "numpy": lambda plan, arrays, timeout, debug: run_global(plan, arrays),
    "processes": _processes,
    "mpi": _ranks,
}


def run(plan: PlanRecord, arrays: Sequence[np.ndarray], engine: str, timeout: float | None = None,
        debug: bool = False) -> Arrays:
    """Run a plan on an engine; LoweringError for an engine that there is not.

    arrays: the program's inputs; or, where these are not as many, the arguments of the function that it was read from,
    which may have structure, and some that JAX dropped since nothing uses them.
    """
    if engine not in ENGINES:
        *others, last = ENGINES
        raise LoweringError(f"no engine {engine!r} runs plans here; there are {', '.join(others)} and {last}")
    if plan.calling_convention is not None and len(arrays) != len(plan.program.input_types):
        arrays = plan.calling_convention.flattened(tuple(arrays), {})
    return ENGINES[engine](plan, arrays, timeout, debug)
