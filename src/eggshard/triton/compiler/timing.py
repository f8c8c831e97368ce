"""Time that a thread block takes, estimated from its assembled code: a second judge beside the cost model of layouts.

All warps of a block are taken to run the text in step: one is followed, and each of its instructions keeps a unit of
the multiprocessor busy for all of them. Forward branches are not taken, loops run a usual number of times. Bank
conflicts, the lines of memory that an access touches, and caches are left out: those are what the cost model counts.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import networkx

from eggshard.triton.frequencies import USUAL

#: The fields of `Executed`.
Kind = Literal["barriers", "shared_loads", "shared_stores", "crossbar", "global_stores"]


class Instruction(NamedTuple):
    """One machine instruction.

    stall: cycles before the warp's next one may issue. starts: (counter, cycles): what goes on meanwhile, each counted
    until so many cycles have passed. waits: (counter, n): how many may go on still when this one issues. unit: of the
    multiprocessor, which it keeps busy for so many cycles. target: the position of another instruction that may be
    next; goes_on: whether the one that follows may be. kind: what it counts as in `Executed`.
    """

    stall: float
    unit: str
    busy: float
    starts: tuple[tuple[str, float], ...] = ()
    waits: tuple[tuple[str, int], ...] = ()
    target: int | None = None
    goes_on: bool = True
    kind: Kind | None = None


class Executed(NamedTuple):
    """What one warp executes: barriers of the block, loads and stores of shared memory, and what else its unit does,
    AMD's shuffles between lanes; stores and atomics of global memory."""

    barriers: float = 0.0
    shared_loads: float = 0.0
    shared_stores: float = 0.0
    crossbar: float = 0.0
    global_stores: float = 0.0

    @property
    def shared_memory(self) -> float:
        """Instructions that the unit of shared memory executes."""
        return self.shared_loads + self.shared_stores + self.crossbar


class Timing(NamedTuple):
    """latency: cycles from a block's first instruction to its last, alone on a multiprocessor. busy: cycles for which
    it keeps the busiest unit busy."""

    latency: float
    busy: float
    executed: Executed = Executed()

    def cycles(self, resident: int) -> float:
        """Cycles per block where so many are resident at once."""
        return max(self.latency / max(1, resident), self.busy)


def timing(code: Sequence[Instruction], warps: int, trips: float = USUAL.trips) -> Timing:
    """Follow a block of so many warps through its code, whose loops run ``trips`` times."""
    found = _Walk(code, _loops(code), warps, trips)
    found.run(0, len(code), 1.0)
    return Timing(found.latency, max(found.work.values(), default=0.0), Executed(**found.executed))


def _loops(code: Sequence[Instruction]) -> dict[int, int]:
    """Where loops begin, and where they end: at the last branch back from what is reached from there. Blocks that stand
    out of line branch back, too."""
    back = [(i, one.target) for i, one in enumerate(code) if one.target is not None and one.target < i]
    if not back:
        return {}
    breaks = {0, *(one.target for one in code if one.target is not None)}
    breaks |= {i + 1 for i, one in enumerate(code) if one.target is not None or not one.goes_on}
    starts = sorted(breaks)

    def block(i: int) -> int:
        return bisect(starts, i) - 1

    flow = networkx.DiGraph()
    for after in starts[1:]:
        last = code[after - 1]
        if last.goes_on:
            flow.add_edge(block(after - 1), block(after))
        if last.target is not None:
            flow.add_edge(block(after - 1), block(last.target))
    cycle = {b: n for n, some in enumerate(networkx.strongly_connected_components(flow)) for b in some}
    ends: dict[int, int] = {}
    for i, start in back:
        if cycle[block(i)] == cycle[block(start)]:
            ends[start] = max(i, ends.get(start, 0))
    return ends


class _Walk:
    """latency, work by unit, executed by kind: of all that was run, times how often. The rest is the state at one
    moment."""

    def __init__(self, code: Sequence[Instruction], ends: dict[int, int], warps: int, trips: float) -> None:
        self.code, self.ends, self.warps, self.trips = code, ends, warps, trips
        self.latency = 0.0
        self.work: dict[str, float] = defaultdict(float)
        self.executed: dict[Kind, float] = defaultdict(float)
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
        if instruction.kind is not None:
            self.executed[instruction.kind] += times
