from __future__ import annotations

from tests.shardy.differential import assert_agrees
from tests.shardy.peer import run_peer

import eggshard as es

MODULE = """
module {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {?}], replicated={"y"}>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>}) {
    %0 = sdy.sharding_constraint %a <@mesh, [{"x", ?}, {?}]> : tensor<8x8xf32>
    %1 = stablehlo.add %0, %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"x":(1)2, ?}]>]>}
      : tensor<8x8xf32>
    %2 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{"x", ?}, {?}]>] out_shardings=[<@mesh, [{"x", ?}, {?}]>]
        manual_axes={"x"} (%b: tensor<2x8xf32>) {
      sdy.return %b : tensor<2x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }
}"""


def test_closing_shardings_everywhere() -> None:
    assert_agrees(MODULE, "close-shardings")


def test_a_pass_is_a_function_from_a_program_to_a_program() -> None:
    closed = es.shardy.close_shardings(MODULE)
    assert str(closed.input_shardings[0]) == '[{"x"}p1, {}]'
    assert closed.text and "?" not in closed.text


def test_a_dimension_that_closes_empty_has_no_priority() -> None:
    """jaxlib leaves it there, which its own verifier refuses."""
    text = """
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%a: tensor<8x8xi1> {sdy.sharding = #sdy.sharding<@mesh, [{?}p1, {"x", ?}p2]>}) -> tensor<8x8xi1> {
        return %a : tensor<8x8xi1>
      }"""
    assert run_peer(text, "sdy-close-shardings").failure
    assert '[{}, {"x"}p2]' in es.shardy.transform(text, "close-shardings")
