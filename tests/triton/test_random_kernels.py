"""Kernels drawn at random are planned right: what is promised of plans holds of each of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slowness import some

pytest.importorskip("triton")

from tests.triton.planned import checked
from tests.triton.random_kernels import random_kernel, random_text

from eggshard.triton.alignment import check_layouts
from eggshard.triton.frontend.libtriton import load, module_of
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.planning import PROVED, plan_layouts

QUICK, SLOW = 30, 400
#: The drawn kernels' count of iterations, where a loop's is an argument.
NUMBERS = {3: 2}


def check(seed: int, size: int) -> None:
    kernel = load(random_text(seed, size))
    check_layouts(kernel)
    plan = checked(kernel, numbers=NUMBERS)
    assert plan.search_gap <= PROVED
    again = checked(load(write_generic(plan.kernel)), judged=False)
    assert again.given_cost == pytest.approx(plan.cost)
    assert again.cost <= plan.cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", some(range(QUICK), 12))
def test_small_kernels(seed: int) -> None:
    check(seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, QUICK + SLOW))
def test_large_kernels(seed: int) -> None:
    check(seed, 16)


def test_what_is_drawn_is_what_the_planner_meets() -> None:
    """All kinds of ops, conversions inside loops and branches, and values of several encodings."""
    found: dict[str, int] = {}
    for seed in range(100):
        for op in random_kernel(seed).walk():
            name = op.name
            if name == "ttg.convert_layout" and op.parent_op is not None:
                name += f" in {op.parent_op.name}"
            found[name] = found.get(name, 0) + 1
    wanted = """
        scf.for scf.while scf.if tt.reduce tt.scan tt.dot tt.load tt.store tt.atomic_rmw tt.trans tt.reshape tt.join
        tt.split tt.gather tt.expand_dims tt.broadcast ttg.local_alloc ttg.local_load arith.select"""
    assert not [name for name in wanted.split() if not found.get(name)]
    assert all(found.get(f"ttg.convert_layout in {name}", 0) > 10 for name in ("scf.for", "scf.while", "scf.if"))


@pytest.mark.parametrize("seed", range(3))
def test_drawn_kernels_are_kernels(seed: int) -> None:
    assert random_text(seed) == random_text(seed)
    module_of(random_kernel(seed))


def digest(seeds: range) -> str:
    """Of the plans of drawn kernels."""
    texts = [write_generic(plan_layouts(load(random_text(seed, 8))).kernel) for seed in seeds]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@pytest.mark.slow
def test_plans_do_not_depend_on_the_process() -> None:
    seeds = range(6)
    program = f"from tests.triton.test_random_kernels import digest; print(digest({seeds}))"
    found = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONHASHSEED": hashing},
        ).stdout.split()[0]
        for hashing in ("1", "2")]
    assert found == [digest(seeds)] * 2
