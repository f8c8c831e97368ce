"""What HLO has besides StableHLO is read by what it means."""

from __future__ import annotations

import pytest

from eggshard.errors import ProgramError
from eggshard.frontends import load

PAIR = "tuple<tensor<4xf32>, tensor<2xi32>>"
NESTED = f"tuple<{PAIR}, tensor<4xf32>>"


def test_elements_are_taken_of_copied_and_nested_tuples() -> None:
    program = load(f"""func.func @main(%a: tensor<4xf32>, %b: tensor<2xi32>) -> (tensor<2xi32>, tensor<4xf32>) {{
      %0 = stablehlo.negate %a : tensor<4xf32>
      %1 = stablehlo.tuple %a, %b : {PAIR}
      %2 = stablehlo.tuple %1, %0 : {NESTED}
      %3 = mhlo.copy %2 : {NESTED}
      %4 = stablehlo.get_tuple_element %3[0] : ({NESTED}) -> {PAIR}
      %5 = stablehlo.get_tuple_element %4[1] : ({PAIR}) -> tensor<2xi32>
      %6 = stablehlo.get_tuple_element %3[1] : ({NESTED}) -> tensor<4xf32>
      return %5, %6 : tensor<2xi32>, tensor<4xf32>
    }}""")
    (negated,) = program.region.ops
    assert program.region.outputs == (program.region.inputs[1], *negated.results)


def test_an_argument_that_is_a_tuple_is_refused() -> None:
    with pytest.raises(ProgramError, match="static shape and tokens"):
        load(f"""func.func @main(%a: {PAIR}) -> tensor<2xi32> {{
          %0 = stablehlo.get_tuple_element %a[1] : ({PAIR}) -> tensor<2xi32>
          return %0 : tensor<2xi32>
        }}""")
