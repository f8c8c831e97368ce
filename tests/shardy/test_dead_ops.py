"""Which passes drop what nobody uses: those that stand for MLIR's greedy rewriting do, as jaxlib's."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.shardy.peer import run_peer

from eggshard import shardy
from eggshard.shardy.module import parsed

SHARDED = "#sdy.sharding<@mesh, [{\"x\"}, {\"y\"}]>"
#: Each op stands for itself: those that only it uses are beside it. What has effects stays, with what it uses.
UNUSED = f"""module {{
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func private @callee(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{
    return %a : tensor<8x8xf32>
  }}
  func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = {SHARDED}}}, %n: tensor<i32>) -> tensor<8x8xf32> {{
    %sum = stablehlo.add %a, %a : tensor<8x8xf32>
    %product = stablehlo.multiply %sum, %a : tensor<8x8xf32>
    %reshard = sdy.reshard %product <@mesh, [{{"y"}}, {{}}]> : tensor<8x8xf32>
    %manual = sdy.manual_computation(%reshard) in_shardings=[<@mesh, [{{"x"}}, {{}}]>]
        out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={{"x"}} (%b: tensor<4x8xf32>) {{
      %0 = stablehlo.add %b, %b : tensor<4x8xf32>
      sdy.return %0 : tensor<4x8xf32>
    }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %effects = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x"}}, {{}}]>]
        out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={{"x"}} (%b: tensor<4x8xf32>) {{
      %0 = stablehlo.custom_call @log(%b) {{has_side_effect = true}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      sdy.return %0 : tensor<4x8xf32>
    }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %named = sdy.named_computation<"named">(%a) (%b: tensor<8x8xf32>) {{
      sdy.return %b : tensor<8x8xf32>
    }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %call = call @callee(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %constraint = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}]> : tensor<8x8xf32>
    %constant = sdy.constant dense<0.0> : tensor<3xf32>
    %barrier = sdy.propagation_barrier %a allowed_direction=NONE : tensor<8x8xf32>
    %fence = stablehlo.optimization_barrier %a : tensor<8x8xf32>
    %loop = stablehlo.while(%i = %n) : tensor<i32>
      cond {{
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %next = stablehlo.add %i, %n : tensor<i32>
        stablehlo.return %next : tensor<i32>
      }}
    %case = "stablehlo.case"(%n) ({{
      %unused = stablehlo.negate %a : tensor<8x8xf32>
      stablehlo.return %a : tensor<8x8xf32>
    }}) : (tensor<i32>) -> tensor<8x8xf32>
    %edge = sdy.data_flow_edge %case : tensor<8x8xf32>
    %foreign = stablehlo.custom_call @foreign(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %log = stablehlo.custom_call @log(%a) {{has_side_effect = true}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %drawn = stablehlo.all_reduce(%a) ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %a : tensor<8x8xf32>
  }}
}}""".replace("stablehlo.all_reduce(%a)", '"stablehlo.all_reduce"(%a)')


def kept(text: str) -> Counter[str]:
    with parsed(text) as module:
        return Counter(op.name for op in module.walk())


@pytest.mark.parametrize(("ours", "theirs"), [
    ("canonicalize-collectives", "canonicalize{enable-patterns=sdy-collective}"),
    ("canonicalize-reshards", "canonicalize"),
    ("canonicalize-reshards{common=false}", "canonicalize{enable-patterns=sdy-reshard}"),
    ("basic-propagate", "sdy-basic-propagate"),
    ("explicit-gather-scatter-batching", "func.func(sdy-explicit-gather-scatter-batching)"),
])
def test_what_nobody_uses_goes_as_in_jaxlib(ours: str, theirs: str) -> None:
    left = kept(run_peer(UNUSED, theirs).text)
    assert left["sdy.manual_computation"] == 1 and left["stablehlo.while"] == 0
    assert kept(shardy.transform(UNUSED, ours)) == left


@pytest.mark.parametrize("name", [
    "close-shardings", "drop-sharding-rules", "remove-sharding-groups", "constant-or-scalar-merger",
])
def test_other_passes_keep_it(name: str) -> None:
    assert kept(shardy.transform(UNUSED, name)) == kept(UNUSED)
