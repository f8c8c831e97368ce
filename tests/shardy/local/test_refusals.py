"""What cannot be computed shard by shard is refused, with the op, the shape, the sharding and the remedy."""

from __future__ import annotations

import re

import pytest

from eggshard import shardy
from eggshard.errors import ShardingError

X, Y, WHOLE = '[{"x"}, {}]', '[{}, {"y"}]', "[{}, {}]"


def stated(sharding: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding_per_value<[<@mesh, {sharding}>]>}}"


def module(body: str, argument: str = X, result: str = X, types: str = "tensor<8x16xf32>") -> str:
    return f"""module {{
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      sdy.mesh @one = <[], device_ids=[3]>
      func.func @main(%a: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {argument}>}})
          -> ({types} {{sdy.sharding = #sdy.sharding<@mesh, {result}>}}) {{
        %c = stablehlo.constant dense<0.0> : tensor<f32>
        {body}
      }}
    }}"""


ADD = f"%0 = stablehlo.add %a, %a {stated(X)} : tensor<8x16xf32>\n return %0 : tensor<8x16xf32>"
CASES = {
    "operands that differ from results": (
        module(ADD, Y),
        ["stablehlo.add", "tensor<8x16xf32>", 'sharded as [{}, {"y"}]', "run insert-explicit-reshards"],
    ),
    "sizes that are not divisible": (
        module(f"""%0 = stablehlo.slice %a [0:6, 0:16] {stated(X)} : (tensor<8x16xf32>) -> tensor<6x16xf32>
          return %0 : tensor<6x16xf32>""", types="tensor<6x16xf32>"),
        ["tensor<6x16xf32>", '[{"x"}, {}]', "size 6", "4 shards", "run pad-for-divisibility"],
    ),
    "rows of neighbours": (
        module(f"""%0 = stablehlo.pad %a, %c, low = [1, 0], high = [-1, 0], interior = [0, 0] {stated(X)}
          : (tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
          return %0 : tensor<8x16xf32>"""),
        ["stablehlo.pad", "tensor<8x16xf32>", '[{"x"}, {}]', "run resolve-permutation-factors"],
    ),
    "concatenation along a sharded dimension": (
        module(f"""%0 = stablehlo.concatenate %a, %a, dim = 0 {stated(X)}
          : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
          return %0 : tensor<16x16xf32>""", types="tensor<16x16xf32>"),
        ["stablehlo.concatenate", "run resolve-permutation-factors"],
    ),
    "partial sums that nothing reduces": (
        module("""%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0]
          : (tensor<8x16xf32>, tensor<f32>) -> tensor<16xf32>
          return %0 : tensor<16xf32>""", result="[{}]", types="tensor<16xf32>"),
        ["func.return", "tensor<16xf32>", 'add over {"x"}', "sdy.all_reduce"],
    ),
    "partial sums in an op that is not linear": (
        module("""%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0]
          : (tensor<8x16xf32>, tensor<f32>) -> tensor<16xf32>
          %1 = stablehlo.tanh %0 : tensor<16xf32>
          %2 = sdy.all_reduce {"x"} %1 out_sharding=<@mesh, [{}]> : tensor<16xf32>
          return %2 : tensor<16xf32>""", result="[{}]", types="tensor<16xf32>"),
        ["stablehlo.tanh", "tensor<16xf32>", '{"x"}', "sdy.all_reduce"],
    ),
    "reduction of what is whole": (
        module(f"""%0 = stablehlo.tanh %a {stated(X)} : tensor<8x16xf32>
          %1 = sdy.all_reduce {{"y"}} %0 out_sharding=<@mesh, {X}> : tensor<8x16xf32>
          return %1 : tensor<8x16xf32>"""),
        ["sdy.all_reduce", "tensor<8x16xf32>", '{"y"}', "once per device"],
    ),
    "reshards": (
        module(f"%0 = sdy.reshard %a <@mesh, {Y}> : tensor<8x16xf32>\n return %0 : tensor<8x16xf32>", result=Y),
        ["sdy.reshard", '[{"x"}, {}]', '[{}, {"y"}]', "reshard-to-collectives"],
    ),
    "results that lie elsewhere": (
        module("return %a : tensor<8x16xf32>", result=Y),
        ["func.return", '[{"x"}, {}]', '[{}, {"y"}]', "run insert-explicit-reshards"],
    ),
    "single devices": (
        module("""%0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>}
          : tensor<8x16xf32>
          return %0 : tensor<8x16xf32>"""),
        ["stablehlo.add", "tensor<8x16xf32>", "run resolve-single-device-sharding"],
    ),
    "unknown calls": (
        module(f"""%0 = stablehlo.custom_call @f(%a) {stated(X)} : (tensor<8x16xf32>) -> tensor<8x16xf32>
          return %0 : tensor<8x16xf32>"""),
        ["stablehlo.custom_call", "tensor<8x16xf32>", "must be replicated"],
    ),
    "reductions within two dimensions at once": (
        module(f"""%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] {stated(X)}
          : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32>
          return %0 : tensor<8x8xf32>""", types="tensor<8x8xf32>"),
        ["stablehlo.dot_general", "dimension 0 of operand 1", "run insert-explicit-reshards"],
    ),
    "loops whose values move": (
        module(f"""%0 = stablehlo.while(%x = %a) : tensor<8x16xf32> attributes {stated(WHOLE)}
          cond {{
            %p = stablehlo.constant dense<false> : tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            stablehlo.return %x : tensor<8x16xf32>
          }}
          return %0 : tensor<8x16xf32>"""),
        ["stablehlo.while", "tensor<8x16xf32>", '[{"x"}, {}]', "run insert-explicit-reshards"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refusals_say_what_and_why(name: str) -> None:
    text, wanted = CASES[name]
    with pytest.raises(ShardingError) as caught:
        shardy.transform(text, "convert-global-to-local")
    for part in wanted:
        assert part in str(caught.value), caught.value


def test_calls_whose_results_lie_elsewhere() -> None:
    text = module(f"""%0 = func.call @f(%a) {stated(Y)} : (tensor<8x16xf32>) -> tensor<8x16xf32>
      return %0 : tensor<8x16xf32> }}
      func.func private @f(%a: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {X}>}})
          -> (tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {X}>}}) {{
        return %a : tensor<8x16xf32>""")
    with pytest.raises(ShardingError, match=re.escape('@f returns it as [{"x"}, {}]; run insert-func-call-reshards')):
        shardy.transform(text, "convert-global-to-local")
