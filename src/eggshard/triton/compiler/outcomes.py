"""Outcomes of the compilations that Triton did with the planner installed."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Literal, NamedTuple

Result = Literal["improved", "equal", "fallback"]

#: The number of latest outcomes that are kept.
KEPT = 256


class Outcome(NamedTuple):
    """One compilation.

    improved: our kernel was taken; equal: nothing cheaper was found, or ``reason`` says why it was not looked for;
    fallback: something was wrong, as ``reason`` says. given_cost: of Triton's result, cost: of what was taken, in the
    cost model's units, None where it was not priced. seconds: what it took beside Triton's own compilation.
    """

    kernel: str
    target: str
    result: Result
    reason: str
    given_cost: float | None
    cost: float | None
    seconds: float


class Statistics(NamedTuple):
    """Counts since the process began. fallbacks: by reason, without its details. outcomes: the last ones, in order."""

    compilations: int
    improved: int
    equal: int
    fallbacks: dict[str, int]
    outcomes: tuple[Outcome, ...]


_lock = threading.Lock()
_results: Counter[str] = Counter()
_reasons: Counter[str] = Counter()
_last: deque[Outcome] = deque(maxlen=KEPT)


def record(outcome: Outcome) -> None:
    with _lock:
        _results[outcome.result] += 1
        if outcome.result == "fallback":
            _reasons[outcome.reason.split(":")[0]] += 1
        _last.append(outcome)


def statistics() -> Statistics:
    """What came of Triton's compilations so far, in this process. Kernels from Triton's disk cache are none."""
    with _lock:
        return Statistics(
            sum(_results.values()), _results["improved"], _results["equal"], dict(_reasons), tuple(_last))
