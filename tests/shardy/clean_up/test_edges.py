from __future__ import annotations

import pytest
from tests.shardy.clean_up.written import MESHES, WRITTEN
from tests.shardy.differential import assert_agrees, canonical
from tests.shardy.peer import run_peer

from eggshard import shardy

ORIGINS = "sink-data-flow-edges{sink-debug-sharding-origins=true}"


def sunk(body: str, passes: str = "sink-data-flow-edges") -> str:
    return shardy.transform(f"module {{{MESHES}{body}\n}}", passes)


def test_a_loop_states_what_its_edges_know() -> None:
    after = shardy.transform(WRITTEN["edges of a loop"], "sink-data-flow-edges")
    assert "data_flow_edge" not in after
    assert '#sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{"x":(2)2, ?}p0]>]>' in after
    assert 'optimization_barrier {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y", ?}]>]>}' in after


def test_bodies_get_the_axes_of_their_arguments_behind_manual_ones() -> None:
    after = shardy.transform(WRITTEN["edges of bodies"], "sink-data-flow-edges")
    assert 'in_shardings=[<@mesh, [{"x", "y"}, {?}]>, <@mesh, []>]' in after
    assert 'out_shardings=[<@mesh, [{"x"}, {"y"}]>, <@mesh, []>] manual_axes={"x"}' in after
    assert 'in_shardings=[<@mesh, [{}, {"y", ?}]>] out_shardings=[<@mesh, [{}, {"y"}]>] (' in after


BRANCHES = """
  func.func @main(%i: tensor<i32>, %a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0:2 = "stablehlo.case"(%i) ({
      stablehlo.return %a, %a : tensor<8xf32>, tensor<8xf32>
    }) : (tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>)
    %1 = sdy.data_flow_edge %0#0 sharding=<@mesh, [{?}]> : tensor<8xf32>
    %2 = sdy.data_flow_edge %0#1 sharding=<@mesh, [{"x", ?}]> {sdy.sharding_origins = {x = "input: 1"}} : tensor<8xf32>
    return %1, %2 : tensor<8xf32>, tensor<8xf32>
  }"""


def test_origins_stay_with_their_values() -> None:
    """Where an edge has none, jaxlib moves those of the values behind it forward."""
    assert 'sdy.result_sharding_origins = [{}, {x = "input: 1"}]' in sunk(BRANCHES, ORIGINS)
    theirs = run_peer(f"module {{{MESHES}{BRANCHES}\n}}", f"func.func(sdy-{ORIGINS})")
    assert 'sdy.result_sharding_origins = [{x = "input: 1"}]' in theirs.text


def test_edges_on_meshes_in_full() -> None:
    text = BRANCHES.replace("@mesh", 'mesh<["x"=4]>')
    assert '<mesh<["x"=4]>, [{"x", ?}]>' in sunk(text)
    assert_agrees(text, "sink-data-flow-edges")


def test_a_result_whose_edge_knows_nothing_keeps_its_manual_axes() -> None:
    """jaxlib opens it, and then refuses the computation, whose body does not fit."""
    body = """
      func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
        %0:2 = sdy.manual_computation(%a, %a) in_shardings=[<@mesh, [{"x"}]>, <@mesh, [{"x"}]>]
            out_shardings=[<@mesh, [{"x"}]>, <@mesh, [{"x"}]>] manual_axes={"x"}
            (%b: tensor<2xf32>, %c: tensor<2xf32>) {
          sdy.return %b, %c : tensor<2xf32>, tensor<2xf32>
        } : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
        %1 = sdy.data_flow_edge %0#0 : tensor<8xf32>
        %2 = sdy.data_flow_edge %0#1 sharding=<@mesh, [{"x", "y"}]> : tensor<8xf32>
        return %1, %2 : tensor<8xf32>, tensor<8xf32>
      }"""
    assert 'out_shardings=[<@mesh, [{"x", ?}]>, <@mesh, [{"x", "y"}]>]' in sunk(body)
    assert run_peer(f"module {{{MESHES}{body}\n}}", "func.func(sdy-sink-data-flow-edges)").failure


def test_function_edges_sink_to_arguments_and_results_of_calls() -> None:
    after = sunk(
        """
      func.func private @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
        %0 = sdy.func_data_flow_edge %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} : tensor<8xf32>
        return %0 : tensor<8xf32>
      }
      func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
        %0 = sdy.func_data_flow_edge %a : tensor<8xf32>
        %1 = call @f(%0) : (tensor<8xf32>) -> tensor<8xf32>
        %2 = sdy.func_data_flow_edge %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x", "y"}]>]>}
          : tensor<8xf32>
        return %2 : tensor<8xf32>
      }""",
        "sink-func-data-flow-edges",
    )
    assert "edge" not in after
    assert '@f(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>})' in after
    assert "@main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}]>})" in after
    assert 'call @f(%arg0) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x", "y"}]>]>}' in after


@pytest.mark.parametrize("kind", ["edges of a loop", "edges of bodies"])
def test_without_notes_the_options_note_nothing(kind: str) -> None:
    passes = "sink-data-flow-edges{sink-debug-propagation-edge-sharding=true},remove-propagation-debug-info"
    assert shardy.transform(WRITTEN[kind], passes) == shardy.transform(WRITTEN[kind], "sink-data-flow-edges")
    assert canonical(WRITTEN[kind]) == shardy.transform(WRITTEN[kind], "remove-propagation-debug-info")
