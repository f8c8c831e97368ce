"""The shapes that local removal of conversions finds hard, at every place where Triton removes them, for every target:
plans are right, proved, and never cost more than what Triton leaves there."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("triton")

from bench.kernel_corpus import Snapshots, snapshots
from bench.programs import kernels_hard
from bench.programs.kernels import PROGRAMS, TARGETS
from tests.triton.planned import checked

from eggshard.triton.frontend.libtriton import load
from eggshard.triton.planning import PROVED
from eggshard.triton.pricing import cost

HARD = [p.name for p in PROGRAMS if getattr(kernels_hard, p.name, None) is p.function]
OTHERS = [p.name for p in PROGRAMS if p.name not in HARD]
#: Kernels that are quick to plan and judge, with the positions at which there is most to choose.
QUICK = [("branch_in_loop", "sm80", 0), ("used_after_loop", "gfx942", 0), ("broadcast_slices", "sm90", 1),
         ("power_iteration", "sm90", 0)]
REMOVALS = 4


@cache
def taken(name: str, target: str) -> Snapshots:
    return snapshots(next(p for p in PROGRAMS if p.name == name), target)


def check(name: str, target: str, position: int, judged: bool = True) -> None:
    before, after = taken(name, target).removals[position]
    plan = checked(load(before), judged=judged)
    assert plan.cost <= cost(load(after), plan.cost_model, plan.assumed) * (1 + 1e-9)
    assert plan.search_gap <= PROVED


def test_the_shapes_are_there() -> None:
    assert len(HARD) >= 7


@pytest.mark.parametrize(("name", "target", "position"), QUICK)
def test_some_hard_shapes(name: str, target: str, position: int) -> None:
    check(name, target, position)


@pytest.mark.slow
@pytest.mark.parametrize("position", range(REMOVALS))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", HARD)
def test_hard_shapes(name: str, target: str, position: int) -> None:
    check(name, target, position)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels(name: str, target: str) -> None:
    for position in range(REMOVALS):
        check(name, target, position, judged=position == 0)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", HARD)
def test_what_triton_leaves_is_planned_too(name: str, target: str) -> None:
    """The final kernel, software pipelining and all."""
    plan = checked(load(taken(name, target).final))
    assert plan.cost <= plan.given_cost and plan.search_gap <= PROVED
