"""Limits of a search, each of which ends in a valid plan, and of what a plan may be beside XLA's program."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from eggshard.errors import LimitError


class Effort(NamedTuple):
    """What a selection may take of what is usual. work, patience: factors of `Limits.seconds_per_node` and of
    `Limits.patience`. methods: of the portfolio (`selection.portfolio`); None for all. bounds: whether all plans are
    bounded, too, where what was left out of the search makes it no bound of the plan. bodies: whether loops and
    branches are placed together with all else, or as propagation has them."""

    work: float = 1.0
    patience: float = 1.0
    methods: tuple[str, ...] | None = None
    bounds: bool = False
    bodies: bool = True


#: The least: a greedy plan, local search and a cheap bound. The usual. What it takes for the bound.
EFFORTS: Mapping[str, Effort] = {
    "fast": Effort(patience=0.0, methods=("local",), bodies=False), "default": Effort(),
    "certify": Effort(10.0, 10.0, bounds=True),
}


#: Seconds of planning of which a proof may take its share even where planning took less.
PROVED_SECONDS = 0.5


@dataclass(frozen=True)
class Limits:
    """Limits of `optimize`.

    seconds: for the whole search, that for less memory and the proof included (it stops soon after, with the best plan
    so far). rows, iterations: of the e-graph. rows_per_op: e-nodes per op of a program of more than 20 ops; a smaller
    one may have as many as one of 20. strategies: per op. placements: candidate placements per e-class, the cheapest;
    all, where there are few in all. permutes: collective-permutes that one point-to-point redistribution may issue.
    windows: widths of a value around its tiles. memory_mib: of the worker process. gap: extraction stops at this
    certified relative gap. seconds_per_node: what extraction may take per e-node, so that planning stays in proportion
    to compiling; raise it for a tighter certificate. patience: seconds by which the dual ascent may exceed that, once,
    where it finds better plans; 0 for plans in a hurry. proof: the share of the time that planning took, or of half a
    second, which a proof of the plan may take (`Plan.proved`); 0 for none. flops: so many times the baseline's
    floating-point operations a plan may take that saves little (`repricing.thrift`); `math.inf` for any number. effort:
    of `EFFORTS`: ``fast`` takes the first good plan, ``certify`` ten times the work for a smaller gap.

    LimitError for an unknown effort, a limit that is no number, or below what it can be.
    """

    seconds: float = 60.0
    rows: int = 50_000
    rows_per_op: int = 50
    iterations: int = 8
    strategies: int = 512
    placements: int = 64
    permutes: int = 16
    windows: int = 8
    memory_mib: int = 8192
    gap: float = 1e-4
    seconds_per_node: float = 0.002
    patience: float = 20.0
    proof: float = 0.25
    flops: float = 1.1
    effort: str = "default"

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise LimitError(f"Limits: effort={self.effort!r}; there are {', '.join(EFFORTS)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
            if not number or value < least:
                raise LimitError(f"Limits: {name}={value!r}; give a number of at least {least}")

    def rows_for(self, ops: int) -> int:
        """The most e-nodes for a region of so many ops."""
        return min(self.rows, self.rows_per_op * max(ops, 20))

    def doubled(self) -> Limits:
        """Return a copy with every cap on candidates doubled, to see whether the caps make plans dearer."""
        caps = ("rows", "rows_per_op", "iterations", "strategies", "placements", "permutes", "windows")
        return replace(self, **{cap: 2 * getattr(self, cap) for cap in caps})


@dataclass(frozen=True)
class Guard:
    """How much worse than XLA's own program a plan may be for `jit` to run it; both as compiled.

    time: its modelled time, the cost model's objective, over XLA's. flops, memory: its floating-point operations and
    its peak memory over XLA's, unless the modelled time falls to the part ``worth`` of XLA's or below.

    LimitError for a factor that is no number, or negative.
    """

    time: float = 1.02
    flops: float = 1.1
    memory: float = 1.1
    worth: float = 0.9

    def __post_init__(self) -> None:
        for name in ("time", "flops", "memory", "worth"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value) or value < 0:
                raise LimitError(f"Guard: {name}={value!r}; give a factor of at least 0")


#: The least that each limit may be.
_LEAST = {
    "seconds": 0, "rows": 1, "rows_per_op": 1, "iterations": 0, "strategies": 1, "placements": 1, "permutes": 0,
    "windows": 0, "memory_mib": 1, "gap": 0, "seconds_per_node": 0, "patience": 0, "proof": 0,
    "flops": 1,
}


class Deadline:
    """The end of a search, shared by all that plans for it, bodies of loops included. All else is bounded by work.

    at: of `time.monotonic`. missed: the stages that the clock ended before they were done. interrupted: whether the
    user ended it, by Ctrl-C.
    """

    interrupted = False

    def __init__(self, seconds: float = math.inf):
        self.at = time.monotonic() + seconds
        self.missed: dict[str, None] = {}

    def interrupt(self) -> None:
        """Let the search end now."""
        self.at, self.interrupted = time.monotonic(), True

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.at - time.monotonic())

    def before(self, seconds: float) -> float:
        """The time so many seconds before the end."""
        return self.at - seconds

    @property
    def passed(self) -> bool:
        """Whether time is up."""
        return self.left == 0

    def miss(self, stage: str) -> None:
        """Note that the clock ended a stage."""
        self.missed[stage] = None

    def ends(self, stage: str) -> bool:
        """Whether time is up; a stage that asks ends then, and is noted."""
        passed = self.passed
        if passed:
            self.miss(stage)
        return passed
