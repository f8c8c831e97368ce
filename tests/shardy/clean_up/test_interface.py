from __future__ import annotations

import re

import pytest
from tests.shardy.clean_up.written import WRITTEN
from tests.shardy.differential import assert_agrees

from eggshard import shardy
from eggshard.errors import ProgramError

EVEN = "update-non-divisible-input-output-shardings"
NO_SUB_AXES = "remove-sub-axes-in-input-output-shardings"


def module(shape: str, sharding: str, mesh: str = '<["x"=4, "y"=2, "z"=3]>') -> str:
    return f"""
      sdy.mesh @mesh = {mesh}
      func.func @main(%a: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}})
          -> tensor<{shape}xf32> {{
        return %a : tensor<{shape}xf32>
      }}"""


@pytest.mark.parametrize("shape, before, after", [
    ("8", '[{"x"}]', '[{"x"}]'),
    ("4", '[{"y", "x"}]', '[{"y", "x":(1)2}]'),
    ("4", '[{"x", "y"}]', '[{"x"}]'),
    ("4", '[{"x", ?}]', '[{"x", ?}]'),
    ("3", '[{"x", ?}p2]', "[{?}]"),
    ("3", '[{"z"}p2]', '[{"z"}p2]'),
    ("6", '[{"z", "x"}]', '[{"z", "x":(1)2}]'),
    ("6", '[{"x", "z"}]', '[{"x":(1)2}]'),
    ("1x2", '[{"y"}, {"x"}], replicated={"z"}', '[{}, {"x":(1)2}], replicated={"z"}'),
    ("0x3", '[{}, {"y"}]', "[{}, {}]"),
    ("6x2", '[{"x":(2)2, "z"}, {"x":(1)2}]', '[{"x":(2)2, "z"}, {"x":(1)2}]'),
    ("5x4", '[{"y"}, {"x"}], unreduced={"z"}', '[{}, {"x"}], unreduced={"z"}'),
])  # fmt: skip
def test_dimensions_keep_what_divides_them(shape: str, before: str, after: str) -> None:
    text = module(shape, before)
    found = re.search(r"#sdy.sharding<@mesh, (.*)>}", shardy.transform(text, EVEN))
    assert found and found[1] == after
    assert_agrees(text, EVEN)


def test_calls_and_bodies_are_even_too() -> None:
    after = shardy.transform(WRITTEN["functions that call"], EVEN)
    assert "call @inner(%arg0) {sdy.sharding = #sdy.sharding_per_value<[" in after
    assert '<@mesh, [{"y"}]>, <@mesh, [{"x":(1)2, ?}]>' in after
    # What ops inside say stays.
    assert 'negate %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y", "x", ?}]>]>}' in after


@pytest.mark.parametrize("before, after", [
    ('[{"x":(1)2, ?}]', "[{?}]"),
    ('[{"x":(1)2}]', '[{"x":(1)2}]'),
    ('[{"y", "x":(1)2, "z", ?}p1]', '[{"y", ?}p1]'),
    ('[{"x":(1)2, "y", ?}p1]', "[{?}p1]"),
    ('[{"y", "x", ?}]', '[{"y", "x", ?}]'),
])  # fmt: skip
def test_open_dimensions_end_before_their_first_sub_axis(before: str, after: str) -> None:
    text = module("96", before)
    found = re.search(r"#sdy.sharding<@mesh, (.*)>}", shardy.transform(text, NO_SUB_AXES))
    assert found and found[1] == after
    assert_agrees(text, NO_SUB_AXES)


def test_only_main_loses_sub_axes() -> None:
    after = shardy.transform(WRITTEN["functions that call"], NO_SUB_AXES)
    assert 'private @inner(%arg0: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}]>})' in after
    assert '@main(%arg0: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", ?}p1]>})' in after


@pytest.mark.parametrize("name", [NO_SUB_AXES, "propagate-to-func-results"])
def test_one_of_several_functions_must_be_main(name: str) -> None:
    with pytest.raises(ProgramError, match="@f, @g and none of them is @main"):
        shardy.transform(WRITTEN["several functions, none of them main"], name)


def test_functions_return_what_they_compute() -> None:
    after = shardy.transform(WRITTEN["functions that call"], "propagate-to-func-results")
    first, second = '{sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}]>}', '#sdy.sharding<@mesh, [{"y", "x", ?}]>'
    assert f"-> (tensor<6xf32> {first}, tensor<6xf32> {{sdy.sharding = {second}}})" in after
