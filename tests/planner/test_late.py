"""Whenever the clock ends a search: a plan that is not dearer than the baseline, and says which stages were cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.random_loops import RandomLoop
from tests.random_programs import random_case, random_model
from tests.slowness import some

import eggshard as es
from eggshard.limits import Deadline

#: A loop whose body is planned for several placements of what it carries.
LOOP = RandomLoop((("x", 4), ("y", 2)), ("x", "y"), 64, ((0, 0, "a - b.mean(0, keepdims=True)"), (0, 0, "a @ w")), 1)


class Looked(float):
    """A time that passes when it is looked at for the n-th time, by comparison or subtraction."""

    ends: int
    looks: Callable[[], int]

    def _passed(self) -> bool:
        return self.looks() >= self.ends

    def __lt__(self, now: float) -> bool:
        return self._passed()

    def __sub__(self, now: float) -> float:
        return -1.0 if self._passed() else 1e6


def planned(source: Any, model: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> tuple[es.Plan, int]:
    """The plan of a search that time ends at the n-th look at the clock, and how often it was looked at."""
    count = itertools.count()
    last = [0]

    def looks() -> int:
        last[0] = next(count)
        return last[0]

    def begin(self: Deadline, seconds: float = 0.0) -> None:
        self.at, self.missed = Looked(0.0), {}
        self.at.ends, self.at.looks = n, looks

    with monkeypatch.context() as patched:
        patched.setattr(Deadline, "__init__", begin)
        patched.setattr(Deadline, "before", lambda self, seconds: self.at)
        return es.optimize(source, cost_model=model, limits=es.Limits(proof=0)), last[0]


def late_plans(
    source: Any, model: Any, monkeypatch: pytest.MonkeyPatch, every: int = 1
) -> Iterator[tuple[es.Plan, bool]]:
    """Plans of searches that time ends ever later, each with whether it did; the last search is not ended."""
    for n in itertools.count(0, every):
        plan, looks = planned(source, model, n, monkeypatch)
        yield plan, looks >= n
        if looks < n:
            return


def is_sound(plan: es.Plan, ended: bool) -> bool:
    """Whether a plan is not dearer than the baseline, its bound no more than it costs, and whether it says if it was
    ended."""
    most = plan.cost.total * (1 + 1e-9)
    cheap = plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9) and plan.bound <= most
    return cheap and not plan.search.fallback.startswith("LimitError") and bool(plan.search.late) == ended


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_a_search_that_ends_at_any_look_at_the_clock_is_not_dearer_than_the_baseline(seed, monkeypatch) -> None:
    rng = random.Random(seed)
    for n, (plan, ended) in enumerate(late_plans(random_case(rng).program, random_model(rng), monkeypatch)):
        assert is_sound(plan, ended), f"late at look {n}"


def test_so_is_one_of_loops(monkeypatch) -> None:
    for n, (plan, ended) in enumerate(late_plans(LOOP.lowered(4), None, monkeypatch, every=3)):
        assert is_sound(plan, ended), f"late at look {3 * n}"
