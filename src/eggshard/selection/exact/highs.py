"""The adapter to HiGHS: one growing model, with every status checked, and the work and time of each call limited.

Work is in seconds that a usual core takes, by what the solver counts: a limit on it ends a call at the same point on
any machine. HiGHS keeps zeros and goes on after a rejected call, takes its thread count from the process's first
solve, and counts ``time_limit`` over all runs of a model: all three are dealt with here.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

#: Work of a simplex iteration per row, and of what the integer solver does between interrupts per row and column
#: (`python -m bench extraction`).
ITERATION, INTERRUPT = 1e-8, 1e-5


#: How far from a whole number the integer solver's values may be, a hundredth of what is usual: bounds are off by as
#: much of the cost of what is taken.
INTEGRAL = 1e-8


class SolverError(Exception):
    """The solver refused a call or gave no answer; the caller falls back to what it has."""


class LinearSolution(NamedTuple):
    """An optimal basic solution: values per column, duals per row."""

    values: np.ndarray
    duals: np.ndarray


class IntegerSolution(NamedTuple):
    """The best integer solution found (values None if there is none), and the dual bound."""

    values: np.ndarray | None
    bound: float


class Model:
    """Minimise c x over rows low <= A x <= high and column bounds; columns and rows can be added between solves."""

    def __init__(self) -> None:
        import highspy

        self._highspy = highspy
        self._highs = highspy.Highs()
        self.columns = 0
        self.rows = 0
        #: The work done so far.
        self.work = 0.0
        self._cost: list[np.ndarray] = []
        self._upper: list[np.ndarray] = []
        self._low: list[np.ndarray] = []
        self._high: list[np.ndarray] = []
        self._coordinates: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._option("output_flag", False)
        self._option("threads", 1)
        self._option("random_seed", 0)

    def _option(self, name: str, value: Any) -> None:
        self._ok(self._highs.setOptionValue(name, value), name)

    def _ok(self, status: Any, what: str) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise SolverError(f"HiGHS refused {what}")

    def add_rows(
        self, low: np.ndarray, high: np.ndarray, row: np.ndarray, column: np.ndarray, value: np.ndarray
    ) -> None:
        """Append ``len(low)`` rows; ``row`` numbers the coordinates' rows from 0 within this call."""
        count = len(low)
        if not count:
            return
        order = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[order], np.arange(count)).astype(np.int32)
        inf = self._highspy.kHighsInf
        self._ok(self._highs.addRows(
            count, np.where(np.isinf(low), -inf, low), np.where(np.isinf(high), inf, high), len(order), starts,
            column[order].astype(np.int32), value[order].astype(float)), "rows")
        self._coordinates.append((row + self.rows, column, value))
        self._low.append(low)
        self._high.append(high)
        self.rows += count

    def add_columns(
        self, cost: np.ndarray, upper: np.ndarray, row: np.ndarray, column: np.ndarray, value: np.ndarray
    ) -> None:
        """Append ``len(cost)`` columns in [0, upper]; ``column`` numbers the coordinates' columns from 0."""
        count = len(cost)
        if not count:
            return
        order = np.argsort(column, kind="stable")
        starts = np.searchsorted(column[order], np.arange(count)).astype(np.int32)
        self._ok(self._highs.addCols(
            count, cost.astype(float), np.zeros(count), upper.astype(float), len(order), starts,
            row[order].astype(np.int32), value[order].astype(float)), "columns")
        self._coordinates.append((row, column + self.columns, value))
        self._cost.append(cost)
        self._upper.append(upper)
        self.columns += count

    def solve_linear(self, seconds: float, work: float = math.inf) -> LinearSolution:
        """Solve the relaxation from the last basis; raises `SolverError` if not solved to optimality within limits."""
        self._option("simplex_iteration_limit", _count(work / (ITERATION * max(1, self.rows))))
        self._run(seconds)
        self.work += ITERATION * self.rows * self._highs.getInfo().simplex_iteration_count
        status = self._highs.getModelStatus()
        if status != self._highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"the linear program ended as {self._highs.modelStatusToString(status)}")
        solution = self._highs.getSolution()
        return LinearSolution(np.array(solution.col_value), np.array(solution.row_dual))

    def solve_integer(
        self, integers: np.ndarray, seconds: float, gap: float, start: tuple[np.ndarray, np.ndarray] | None,
        work: float = math.inf,
    ) -> IntegerSolution:
        """Solve with these columns integer, from a partial solution (columns, values), to a relative gap."""
        most, calls = _count(work / (INTERRUPT * (self.rows + self.columns))), 0

        def count(event: Any) -> None:
            nonlocal calls
            calls += 1
            if calls >= most:
                event.interrupt()

        kinds = np.zeros(self.columns, np.uint8)
        kinds[integers] = int(self._highspy.HighsVarType.kInteger)
        everything = np.arange(self.columns, dtype=np.int32)
        self._ok(self._highs.changeColsIntegrality(self.columns, everything, kinds), "integrality")
        self._option("mip_rel_gap", gap)
        self._option("mip_feasibility_tolerance", INTEGRAL)
        if start is not None:
            self._ok(self._highs.setSolution(
                len(start[0]), start[0].astype(np.int32), start[1].astype(float)), "start")
        self._option("simplex_iteration_limit", _MOST)
        self._highs.cbMipInterrupt.subscribe(count)
        try:
            self._run(seconds)
        finally:
            self._highs.cbMipInterrupt.unsubscribe(count)
        self.work += INTERRUPT * (self.rows + self.columns) * calls
        info, status = self._highs.getInfo(), self._highs.getModelStatus()
        if status == self._highspy.HighsModelStatus.kInfeasible:
            return IntegerSolution(None, math.inf)
        found = info.primal_solution_status == 2
        values = np.array(self._highs.getSolution().col_value) if found else None
        bound = float(info.mip_dual_bound)
        return IntegerSolution(values, bound if math.isfinite(bound) else -math.inf)

    def _run(self, seconds: float) -> None:
        self._option("time_limit", max(0.01, seconds) + self._highs.getRunTime())
        status = self._highs.run()
        if status == self._highspy.HighsStatus.kError:
            # The process's first solve fixed another thread count.
            self._highspy.Highs.resetGlobalScheduler(True)
            self._ok(self._highs.run(), "to run")

    def dual_bound(self, duals: np.ndarray) -> float:
        """A lower bound that holds whatever the solver's tolerances.

        Weak duality with duals clipped to their signs: sum of dual * side + sum of min(0, reduced cost) * upper.
        """
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        duals = np.where((duals > 0) & np.isinf(low) | (duals < 0) & np.isinf(high), 0.0, duals)
        side = np.where(duals > 0, low, np.where(duals < 0, high, 0.0))
        row, column, value = (np.concatenate(some) for some in zip(*self._coordinates, strict=True))
        reduced = np.concatenate(self._cost) - np.bincount(column, weights=value * duals[row], minlength=self.columns)
        terms = np.minimum(reduced, 0.0) * np.concatenate(self._upper)
        return math.fsum((duals * side).tolist()) + math.fsum(terms.tolist())


#: The largest whole number that HiGHS takes.
_MOST = 2**31 - 1


def _count(number: float) -> int:
    """A limit as HiGHS takes it: a whole number, at least 1."""
    return int(min(max(1.0, number), _MOST))


def deadline_left(deadline: float) -> float:
    """Seconds until a `time.monotonic` deadline, at least 0."""
    return max(0.0, deadline - time.monotonic())
