"""Drawn programs: the same for a seed, taken by JAX, and shrunk to what a failure needs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import jax
import pytest
from bench.fuzz.check import checked, renamed, reordered
from bench.fuzz.generate import MESHES, generate
from bench.fuzz.shrink import shrunk

#: Seeds of programs on no more devices than tests have.
SEEDS = [seed for seed in range(40) if math.prod(random.Random(seed).choice(MESHES).values()) <= 8]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield



def test_a_seed_is_a_program() -> None:
    assert generate(SEEDS[0]) == generate(SEEDS[0]) != generate(SEEDS[1])


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_plans_of_drawn_programs_are_right(seed: int) -> None:
    drawn = generate(seed)
    assert drawn.lines
    found = checked(drawn)
    assert found is not None, "JAX takes it"
    assert not [str(p) for p in found]


def test_programs_are_shrunk_to_what_fails() -> None:
    drawn = next(d for d in map(generate, SEEDS) if len(d.lines) > 4)
    culprit = drawn.lines[2].expression.split("(")[0]
    found = shrunk(drawn, lambda d: any(line.expression.startswith(culprit) for line in d.lines))
    assert len(found.lines) < len(drawn.lines) and culprit in found.script()


def test_other_names_and_orders_are_the_same_program() -> None:
    drawn = generate(SEEDS[2])
    assert [n for _, n in renamed(drawn).mesh] == [n for _, n in drawn.mesh]
    assert sorted(line.name for line in reordered(drawn).lines) == sorted(line.name for line in drawn.lines)
