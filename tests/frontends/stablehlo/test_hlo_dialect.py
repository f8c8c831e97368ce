"""What HLO has besides StableHLO is read by what it means."""

from __future__ import annotations

import pytest

import eggshard
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


@pytest.mark.parametrize("target", ["ShardBarrierFrom", "ShardBarrierTo"])
def test_barriers_of_propagation_are_nothing(target: str) -> None:
    program = load(f"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
      %0 = stablehlo.custom_call @{target}(%a) {{has_side_effect = true}} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }}""")
    assert not program.region.ops and program.region.outputs == program.region.inputs


def test_every_device_places_what_it_holds() -> None:
    end = 'tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
    program = load(f"""sdy.mesh @mesh = <["x"=4]>
    func.func @main(%a: {end}) -> ({end}) {{
      %0 = stablehlo.custom_call @annotate_device_placement(%a) {{has_side_effect = true,
        mhlo.frontend_attributes = {{_xla_buffer_placement = "pinned_host"}}}} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }}""")
    plan = eggshard.optimize(program)
    assert plan.wire_bytes == 0 and "pinned_host" in plan.to_stablehlo()


def test_a_call_of_a_tuple_is_refused() -> None:
    with pytest.raises(ProgramError, match="it takes a tuple"):
        load(f"""func.func @main(%a: tensor<4xf32>, %b: tensor<2xi32>) -> tensor<4xf32> {{
          %0 = stablehlo.tuple %a, %b : {PAIR}
          %1 = stablehlo.custom_call @Some(%0) : ({PAIR}) -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }}""")


def test_an_argument_that_is_a_tuple_is_refused() -> None:
    with pytest.raises(ProgramError, match="static shape and tokens"):
        load(f"""func.func @main(%a: {PAIR}) -> tensor<2xi32> {{
          %0 = stablehlo.get_tuple_element %a[1] : ({PAIR}) -> tensor<2xi32>
          return %0 : tensor<2xi32>
        }}""")
