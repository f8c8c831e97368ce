"""Schedules of device programs on a machine that computes while it communicates.

A device has one compute stream and one or more channels. A local step occupies the compute stream. A collective
occupies its channels, and also the compute stream for the part of its time that cannot be overlapped. A loop or branch
that communicates occupies everything, since back ends start nothing else while one runs. Steps start in program order,
each as soon as its operands are ready and its resources are free; a collective is awaited by the first step that uses
its result.

`scheduled` improves the order by list scheduling: among the steps that can start first it prefers collectives, then the
step with the longest chain of dependents (Jackson's rule). It moves a step past a bounded number of others and keeps an
order only if peak memory stays near the old peak; otherwise the gathers of all layers would come first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Protocol

from rich.table import Table

from eggshard.program.types import TensorType
from eggshard.steps.dependencies import Dependencies
from eggshard.steps.peak_memory import peak_bytes
from eggshard.steps.steps import Action, Step, StepPlan
from eggshard.tables import Shown, duration, render

#: The compute stream, among the names of channels.
COMPUTE = "compute"
#: Numbers of steps past which a step may be moved, tried in turn, and the fraction of the makespan that a larger number
#: must save to be taken (`python -m bench overlap`).
LOOKAHEAD = (4, 16, 64, 256)
#: Fraction of a schedule below which a gain is not worth another order.
WORTH = 1e-3
#: Fraction by which peak memory may grow for the sake of overlap.
SPARE = 0.5


class Work(NamedTuple):
    """What a step takes: seconds on its channels, and of these the first ``computing`` on the compute stream."""

    seconds: float
    computing: float
    channels: tuple[str, ...] = ()


class Works(Protocol):
    """Says what steps take of a machine."""

    def work(self, action: Action, *operands: TensorType) -> Work: ...


@dataclass(frozen=True, repr=False)
class Schedule(Shown):
    """The timeline of a device program. Per step, in the program's order, what it takes and when it starts, in seconds.

    awaited[i]: the first step that waits for step i; None where only the program's end does.
    critical_path: seconds of the longest chain of steps, each of which waits for the one before.
    """

    work: tuple[Work, ...]
    starts: tuple[float, ...]
    awaited: tuple[int | None, ...]
    critical_path: float

    @property
    def ends(self) -> tuple[float, ...]:
        """When each step's results are there."""
        return tuple(start + work.seconds for start, work in zip(self.starts, self.work, strict=True))

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return max(self.ends, default=0.0)

    @cached_property
    def busy(self) -> dict[str, float]:
        """Seconds for which the compute stream and each channel are held."""
        out = {COMPUTE: 0.0}
        for work in self.work:
            out[COMPUTE] += work.computing
            for channel in work.channels:
                out[channel] = out.get(channel, 0.0) + work.seconds
        return out

    @cached_property
    def hidden(self) -> tuple[float, ...]:
        """Per step the seconds for which other steps compute while it communicates."""
        computing = [(s, s + w.computing) for s, w in zip(self.starts, self.work, strict=True) if w.computing]
        starts = [start for start, _ in computing]  # in the order of time: there is one stream
        before = [0.0, *accumulate(end - start for start, end in computing)]

        def computed(time: float) -> float:
            i = bisect_right(starts, time)
            return before[i] - max(0.0, computing[i - 1][1] - time) if i else 0.0

        return tuple(
            max(0.0, computed(end) - computed(start) - work.computing) if work.channels else 0.0
            for start, end, work in zip(self.starts, self.ends, self.work, strict=True)
        )

    def __str__(self) -> str:
        table = Table(box=None, padding=(0, 2), show_edge=False)
        for name in ("held", "for", "of the time"):
            table.add_column(name, justify="left" if name == "held" else "right", no_wrap=True)
        span = self.makespan
        for resource, seconds in self.busy.items():
            name = resource if resource == COMPUTE else f"link {resource}"
            table.add_row(name, duration(seconds), f"{seconds / span:.0%}" if span else "-")
        chain, hidden = duration(self.critical_path), duration(sum(self.hidden))
        return (f"{len(self.work)} steps in {duration(span)}; their longest chain takes {chain}, {hidden} of "
                f"communication runs beside compute\n{render(table)}")


def timeline(plan: StepPlan, works: Works) -> Schedule:
    """When each step of a device program runs, in the order in which they stand."""
    order = Dependencies(plan)
    work = _works(plan, works)
    free: dict[str, float] = {}
    starts: list[float] = []
    ends: list[float] = []
    chain: list[float] = []
    for i, taken in enumerate(work):
        start = max((ends[j] for j in order.before[i]), default=0.0)
        start = max([start, *starts[-1:], *(free.get(resource, 0.0) for resource in _held(taken))])
        starts.append(start)
        ends.append(start + taken.seconds)
        chain.append(max((chain[j] for j in order.before[i]), default=0.0) + taken.seconds)
        _hold(free, taken, start)
    awaited = tuple(min(after, default=None) for after in order.after)
    return Schedule(tuple(work), tuple(starts), awaited, max(chain, default=0.0))


def scheduled(plan: StepPlan, works: Works) -> StepPlan:
    """Return the plan with its steps reordered to shorten its makespan, or the plan itself if no order was better."""
    work = _works(plan, works)
    if not any(w.computing < w.seconds for w in work):
        return plan  # whatever the order, steps add up
    order = Dependencies(plan)
    best, least = plan, timeline(plan, works).makespan
    most = peak_bytes(plan) * (1 + SPARE)
    for lookahead in LOOKAHEAD:
        found = _reordered(plan, _listed(work, order, lookahead))
        seconds = timeline(found, works).makespan
        if seconds < least * (1 - WORTH) and peak_bytes(found) <= most:
            best, least = found, seconds
        if lookahead >= len(work):
            break
    return best


def _works(plan: StepPlan, works: Works) -> list[Work]:
    return [works.work(s.action, *(plan.types[v] for v in s.operands)) for s in plan.steps]


def _held(work: Work) -> tuple[str, ...]:
    """What must be free for a step to start; nothing for one that takes no time."""
    return (COMPUTE, *work.channels) if work.computing else work.channels


def _hold(free: dict[str, float], work: Work, start: float) -> None:
    """Keep a step's resources from its start on."""
    for channel in work.channels:
        free[channel] = start + work.seconds
    if work.computing:
        free[COMPUTE] = start + work.computing


def _listed(work: Sequence[Work], order: Dependencies, lookahead: int) -> list[int]:
    """Numbers of steps in the order of a list schedule.

    A step is issued only once all steps are that stand ``lookahead`` or more before it.
    """
    urgency = [0.0] * len(work)
    for i in reversed(range(len(work))):
        urgency[i] = max((work[j].seconds + urgency[j] for j in order.after[i]), default=0.0)
    missing = [len(before) for before in order.before]
    there = [0.0] * len(work)
    lines: dict[tuple[str, ...], _Line] = {}
    issued = [False] * len(work)
    free: dict[str, float] = {}
    out: list[int] = []
    first = entered = 0
    now = 0.0
    early: set[int] = set()  # ready, but too far ahead

    def enter(i: int) -> None:
        if i >= entered:
            early.add(i)
            return
        line = lines.setdefault(_held(work[i]), _Line(not work[i].channels))
        heapq.heappush(line.coming, (there[i], -urgency[i], i))

    while len(out) < len(work):
        while entered < min(first + lookahead, len(work)):
            entered += 1
            if not missing[entered - 1]:
                early.discard(entered - 1)
                enter(entered - 1)
        i, now = min(
            (line.next(max([now, *(free.get(r, 0.0) for r in held)])) for held, line in lines.items() if line),
            key=lambda option: option[0],
        )[1:]
        lines[_held(work[i])].take()
        out.append(i)
        issued[i] = True
        _hold(free, work[i], now)
        for j in order.after[i]:
            there[j] = max(there[j], now + work[i].seconds)
            missing[j] -= 1
            if not missing[j]:
                enter(j)
        while first < len(work) and issued[first]:
            first += 1
    return out


class _Line:
    """Steps that wait for the same resources: those that are ready, the most urgent first, and those that will be."""

    def __init__(self, computes: bool) -> None:
        self.computes = computes
        self.ready: list[tuple[float, int]] = []
        self.coming: list[tuple[float, float, int]] = []

    def __bool__(self) -> bool:
        return bool(self.ready or self.coming)

    def next(self, free: float) -> tuple[tuple[float, bool, float, int], int, float]:
        """The step that starts first if the resources are free from then on: its rank among lines', it, its start."""
        while self.coming and self.coming[0][0] <= free:
            _, urgency, i = heapq.heappop(self.coming)
            heapq.heappush(self.ready, (urgency, i))
        if self.ready:
            urgency, i = self.ready[0]
            return (free, self.computes, urgency, i), i, free
        start, urgency, i = self.coming[0]
        return (start, self.computes, urgency, i), i, start

    def take(self) -> None:
        """Remove that step."""
        if self.ready:
            heapq.heappop(self.ready)
        else:
            heapq.heappop(self.coming)


def _reordered(plan: StepPlan, order: Sequence[int]) -> StepPlan:
    """Return the plan with its steps in the given order and its values renumbered by first appearance."""
    number = {v: i for i, v in enumerate(plan.inputs)}
    steps: list[Step] = []
    for i in order:
        step = plan.steps[i]
        operands = tuple(number[v] for v in step.operands)
        results = tuple(number.setdefault(v, len(number)) for v in step.results)
        steps.append(replace(step, operands=operands, results=results))
    types = tuple(plan.types[v] for v in number)
    held = tuple(plan.held[v] for v in number) if plan.held else ()
    return StepPlan(plan.mesh, tuple(range(len(plan.inputs))), tuple(steps), tuple(number[v] for v in plan.outputs),
                    types, held)
