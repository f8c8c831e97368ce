"""The sharding laws of every op of the elementwise, movement, creation, contraction and reduction families."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.laws import check_factors, check_linear
from tests.ops.samples import SAMPLES, missing

FAMILIES = (
    "elementwise.table", "shapes.movement", "shapes.slicing", "sources.creation", "algebra.contraction",
    "reductions.reduction", "neighbours.window_reduction",
)


def test_every_op_has_samples() -> None:
    assert missing(FAMILIES) == []


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_parts_recombine_to_the_whole(name: str) -> None:
    samples = SAMPLES[name](np.random.default_rng(7))
    checked = sum(check_factors(name, sample) for sample in samples)
    assert checked, f"no sample of {name} has a factor that can be sharded"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_partial_sums_combine_to_the_whole(name: str) -> None:
    rng = np.random.default_rng(11)
    for sample in SAMPLES[name](rng):
        check_linear(name, sample, rng)
