"""Time that a thread block takes, estimated from its assembled code: a second judge beside the cost model of layouts.

All warps of a block are taken to run the text in step: one is followed, and each of its instructions keeps a unit of the
multiprocessor busy for all of them. Forward branches are not taken, loops run a usual number of times. Bank conflicts,
the lines of memory that an access touches, and caches are left out: those are what the cost model counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from eggshard.triton.frequencies import USUAL


class Instruction(NamedTuple):
    """One machine instruction.

    stall: cycles before the warp's next one may issue. starts: (counter, cycles): what goes on meanwhile, each counted
    until so many cycles have passed. waits: (counter, n): how many may go on still when this one issues. unit: of the
    multiprocessor, which it keeps busy for so many cycles. target: the position of the instruction that may be next.
    """

    stall: float
    unit: str
    busy: float
    starts: tuple[tuple[str, float], ...] = ()
    waits: tuple[tuple[str, int], ...] = ()
    target: int | None = None


class Timing(NamedTuple):
    """latency: cycles from a block's first instruction to its last, alone on a multiprocessor. busy: cycles for which it
    keeps the busiest unit busy."""

    latency: float
    busy: float

    def cycles(self, resident: int) -> float:
        """Cycles per block where so many are resident at once."""
        return max(self.latency / max(1, resident), self.busy)


def timing(code: Sequence[Instruction], warps: int, trips: float = USUAL.trips) -> Timing:
    """Follow a block of so many warps through its code, whose loops run ``trips`` times."""
    ends: dict[int, int] = {}
    for i, instruction in enumerate(code):
        if instruction.target is not None and instruction.target < i:
            ends[instruction.target] = max(i, ends.get(instruction.target, 0))
    found = _Walk(code, ends, warps, trips)
    found.run(0, len(code), 1.0)
    return Timing(found.latency, max(found.work.values(), default=0.0))


class _Walk:
    """latency, work by unit: of all that was run, times how often. The rest is the state at one moment."""

    def __init__(self, code: Sequence[Instruction], ends: dict[int, int], warps: int, trips: float) -> None:
        self.code, self.ends, self.warps, self.trips = code, ends, warps, trips
        self.latency = 0.0
        self.work: dict[str, float] = defaultdict(float)
        self.now = 0.0
        self.free: dict[str, float] = defaultdict(float)
        self.going: dict[str, list[float]] = defaultdict(list)

    def run(self, first: int, end: int, times: float, loop: int | None = None) -> None:
        """Run what stands between two positions, the body of the loop that begins at ``loop`` if one is given. Of loops
        the first iteration is followed, and the second, which stands for all others."""
        i = first
        while i < end:
            last = self.ends.get(i)
            if last is not None and last < end and i != loop:
                self.run(i, last + 1, times, i)
                self.run(i, last + 1, times * (self.trips - 1), i)
                i = last + 1
            else:
                self.step(self.code[i], times)
                i += 1

    def step(self, instruction: Instruction, times: float) -> None:
        before = self.now
        for counter, most in instruction.waits:
            going = self.going[counter]
            if len(going) > most:
                self.now = max(self.now, going[len(going) - most - 1])
            self.going[counter] = going[len(going) - most:] if most else []
        busy = self.warps * instruction.busy
        issued = max(self.now, self.free[instruction.unit])
        self.free[instruction.unit] = issued + busy
        for counter, cycles in instruction.starts:
            going = self.going[counter]
            going.append(max(issued + busy + cycles, going[-1] if going else 0.0))
        self.now = issued + instruction.stall
        self.latency += times * (self.now - before)
        self.work[instruction.unit] += times * busy
