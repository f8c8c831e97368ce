"""Running a whole plan on processes: global NumPy arrays in, global NumPy arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eggshard.engines.processes.launcher import Processes
from eggshard.engines.ranks.runner import RunReport
from eggshard.simulate.execution import gathered, scattered

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


def run_on_processes(
    plan: PlanRecord, arrays: Sequence[np.ndarray], timeout: float | None = None, debug: bool = False
) -> tuple[tuple[np.ndarray, ...], RunReport]:
    """One run of a plan, with processes of its own, and what it took. Errors: `Processes`, and as on the simulator."""
    shards = scattered(plan, arrays)
    with Processes(plan.device_program, timeout=timeout, debug=debug) as processes:
        results = processes.run(shards)
        assert processes.report is not None
        return gathered(plan, results), processes.report
