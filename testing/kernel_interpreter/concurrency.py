"""Warps of one instance that do different things, and the barriers in shared memory by which they wait for each other.

Each partition is a thread of ours, of which one runs at a time, until it waits for a barrier or ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation
from testing.kernel_interpreter.elements import Array
from testing.kernel_interpreter.execution import Program, Wait
from testing.kernel_interpreter.registry import meaning, optional, segmented
from testing.kernel_interpreter.shared import Shared


class Barrier:
    """An mbarrier: a phase ends once all that is expected has arrived, and all bytes announced have come."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pending = count
        self.bytes = 0
        self.phase = 0

    def change(self, arrivals: int = 0, expected: int = 0) -> None:
        """Arrivals, and bytes that are announced, or (negative) have come."""
        self.pending -= arrivals
        self.bytes += expected
        if self.pending < 0:
            raise ProgramError("more arrivals at a barrier than it expects")
        if self.pending == 0 and self.bytes == 0:
            self.pending = self.count
            self.phase += 1


def barrier_at(program: Program, memory: Shared) -> Barrier:
    found = program.state.get(_key(memory))
    if not isinstance(found, Barrier):
        raise ProgramError("the barrier is not initialised")
    return found


def _key(memory: Shared) -> tuple[str, int]:
    return "barrier", memory.cells.__array_interface__["data"][0]


@meaning("ttng.init_barrier")
def _initialise(program: Program, op: Operation, memory: Shared) -> None:
    count = op.integer("count")
    assert count is not None
    program.state[_key(memory)] = Barrier(count)


@meaning("ttng.inval_barrier")
def _invalidate(program: Program, op: Operation, memory: Shared) -> None:
    del program.state[_key(memory)]


@meaning("ttng.barrier_expect")
def _expect(program: Program, op: Operation, memory: Shared, predicate: Array) -> None:
    if predicate:
        barrier_at(program, memory).change(1, op.integer("size") or 0)


@meaning("ttng.arrive_barrier", "ttng.tc_gen5_commit")
def _arrive(program: Program, op: Operation, memory: Shared, *operands: Any) -> None:
    """What is committed has been computed where it was issued."""
    predicates = [v for v in operands if not isinstance(v, Shared)]
    if all(predicates):
        barrier_at(program, memory).change(op.integer("count") or 1)


@meaning("ttng.wait_barrier")
def _wait(program: Program, op: Operation, *operands: Any) -> None:
    (memory,), (parity,), predicate, _ = segmented(op, operands)
    if not predicate or optional(predicate):
        barrier = barrier_at(program, memory)
        program.wait(lambda: barrier.phase & 1 != int(parity) & 1)


class Turns:
    """Threads that take turns: each runs until what it waits for is not so."""

    def __init__(self, tasks: Sequence[Callable[[Wait], Any]]) -> None:
        self.results: list[Any] = [None] * len(tasks)
        self._errors: list[BaseException] = []
        self._ready: list[Callable[[], bool] | None] = [lambda: True] * len(tasks)
        self._mine = [threading.Semaphore(0) for _ in tasks]
        self._back = threading.Semaphore(0)
        self._stuck = False
        self._threads = [threading.Thread(target=self._task, args=(i, task), daemon=True)
                         for i, task in enumerate(tasks)]

    def run(self) -> list[Any]:
        """The tasks' results. Raises the first error of a task, `ProgramError` if all wait for each other."""
        for thread in self._threads:
            thread.start()
        while any(self._ready):
            able = [i for i, ready in enumerate(self._ready) if ready is not None and (self._stuck or ready())]
            if not able:
                self._stuck = True
            for i in able:
                self._mine[i].release()
                self._back.acquire()
                if self._errors:
                    self._stuck = True
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self.results

    def _task(self, number: int, task: Callable[[Wait], Any]) -> None:
        self._mine[number].acquire()
        try:
            with np.errstate(all="ignore"):
                self.results[number] = task(lambda ready: self._aside(number, ready))
        except BaseException as error:
            self._errors.append(error)
        self._ready[number] = None
        self._back.release()

    def _aside(self, number: int, ready: Callable[[], bool]) -> None:
        while not ready():
            if self._stuck:
                raise ProgramError("waits for a barrier that nobody completes")
            self._ready[number] = ready
            self._back.release()
            self._mine[number].acquire()


@meaning("ttg.warp_specialize")
def _specialise(program: Program, op: Operation, *captures: Any) -> tuple[Any, ...]:
    """The default region, and the partitions beside it, each with the captured values as its arguments."""
    (partitions,) = op.regions[1].blocks[0].operations
    given = captures or [program.values[v] for v in partitions.operands]

    def beside(number: int) -> Callable[[Wait], Any]:
        def task(wait: Wait) -> Any:
            own = program.beside(wait)
            if number == 0:
                return own.region(op.regions[0])
            return own.region(partitions.regions[number - 1], given)
        return task

    results: tuple[Any, ...] = Turns([beside(i) for i in range(1 + len(partitions.regions))]).run()[0]
    return results
