from __future__ import annotations

import pytest
from tests.shardy.clean_up.features import FEATURES
from tests.shardy.clean_up.written import WRITTEN
from tests.shardy.modules import random_module

from eggshard import shardy

CONSTANTS = WRITTEN["constants in regions"]


def count(text: str, what: str) -> int:
    return sum(what in line for line in text.splitlines())


def test_constants_of_different_regions_are_not_merged() -> None:
    before, after = CONSTANTS, shardy.transform(CONSTANTS, "constant-or-scalar-merger")
    assert count(before, "stablehlo.constant") == 6
    # One of each sharding outside, one in each branch, although three of the four are equal.
    assert count(after, "stablehlo.constant") == 4
    assert count(after, "sdy.constant") == 1
    assert count(after, "broadcast_in_dim") == 1


def test_the_older_merger_leaves_expansions() -> None:
    after = shardy.transform(CONSTANTS, "constant-merger")
    assert count(after, "stablehlo.constant") == 4
    assert count(after, "sdy.constant") == 1
    assert count(after, "broadcast_in_dim") == 2


def test_constants_with_other_attributes_are_others() -> None:
    text = """
      func.func @main() -> (tensor<f32>, tensor<f32>, tensor<f32>) {
        %0 = stablehlo.constant dense<1.0> : tensor<f32>
        %1 = stablehlo.constant {note = 1 : i32} dense<1.0> : tensor<f32>
        %2 = "stablehlo.constant"() {value = dense<1.0> : tensor<f32>, note = 1 : i32} : () -> tensor<f32>
        return %0, %1, %2 : tensor<f32>, tensor<f32>, tensor<f32>
      }"""
    after = shardy.transform(text, "constant-merger")
    assert count(after, "stablehlo.constant") == 2
    assert "return %cst, %cst_0, %cst_0" in after


@pytest.mark.parametrize("seed", range(20))
def test_the_mergers_agree_where_there_are_no_expansions(seed: int) -> None:
    without = dict(constants=False, families=("elementwise", "reduce", "pad"))
    text = random_module(seed, **FEATURES["constant-or-scalar-merger"][0] | without)
    merged = shardy.transform(text, "constant-merger")
    assert merged == shardy.transform(text, "constant-or-scalar-merger")
    assert merged == shardy.transform(merged, "constant-merger")
