"""Where jaxlib's passes fail on ordinary modules, or note something else: see docs/shardy.md."""

from __future__ import annotations

import pytest
from tests.shardy.peer import peer_text, run_peer
from tests.shardy.propagation.programs import PROGRAMS

from eggshard import shardy
from eggshard.shardy.catalogue import read_steps

EDGES = "{debug-propagation-edge-sharding=true}"
ORIGINS = "{debug-sharding-origins=true}"
DEAD = """
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.sine %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}p1, {?}]>]>} : tensor<8x8xf32>
    %1 = stablehlo.cosine %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"x"}p1]>]>} : tensor<8x8xf32>
    return %a : tensor<8x8xf32>
  }
}"""
SAME_NAME = """
module {
  func.func @main(%a: tensor<8xf32>, %b: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
    %0 = sdy.named_computation<"f">(%a) (%x: tensor<8xf32>) {
      sdy.return %x : tensor<8xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    %1 = sdy.named_computation<"f">(%b) (%x: tensor<4xf32>) {
      sdy.return %x : tensor<4xf32>
    } : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<8xf32>, tensor<4xf32>
  }
}"""
STATED = """
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.sine %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x", ?}, {?}]>]>} : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}"""
INLINED = STATED.replace("<@mesh, ", '<mesh<["x"=2]>, ')
#: What fails in jaxlib: the module, and the passes.
FAILING = {
    "a dead op with a priority": (DEAD, "user-priority-propagate"),
    "a named computation in the pipeline": (
        PROGRAMS["a named computation"], "add-data-flow-edges,flatten-call-graph,import-func-calls"),
    "named computations of one name": (SAME_NAME, "export-named-computations,unflatten-call-graph"),
    "edges of a loop are noted": (PROGRAMS["a loop"], f"add-data-flow-edges,op-priority-propagate{EDGES}"),
    "groups that are not imported": (PROGRAMS["groups that meet"], "basic-propagate"),
    "a manual computation that is not imported": (
        PROGRAMS["manual along one axis, free along others"], "basic-propagate"),
    "no function called main": (PROGRAMS["functions called twice"].replace("@main", "@entry"), "basic-propagate"),
    "meshes in full": (INLINED, "basic-propagate"),
}


@pytest.mark.parametrize("name", FAILING)
def test_ours_go_through(name: str) -> None:
    text, passes = FAILING[name]
    assert shardy.transform(text, passes)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILING)
def test_jaxlibs_fail(name: str) -> None:
    text, passes = FAILING[name]
    assert run_peer(text, peer_text(read_steps(passes))).failure


def test_calls_of_one_function_become_computations_without_sharing_a_body() -> None:
    out = shardy.transform(PROGRAMS["functions called twice"], "import-func-calls")
    assert out.count('sdy.named_computation<"inner">') == 3 and out.count('sdy.named_computation<"outer">') == 2


def test_computations_of_one_name_and_other_types_stay_apart() -> None:
    out = shardy.transform(SAME_NAME, "export-named-computations,unflatten-call-graph")
    assert "call @f(%arg0)" in out and "call @f_0(%arg1)" in out


def test_what_an_op_states_has_no_origin() -> None:
    passes = f"sdy-basic-propagate{ORIGINS}"
    assert "sharding_origins" not in shardy.transform(STATED, passes)
    assert '": 0"' in run_peer(STATED, passes).text


def test_edges_are_noted_at_the_result_that_they_lead_to() -> None:
    text = """
      sdy.mesh @mesh = <["x"=2, "y"=2]>
      func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
          %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>}) -> (tensor<8xf32>, tensor<8xf32>) {
        return %a, %b : tensor<8xf32>, tensor<8xf32>
      }"""
    ours = shardy.transform(text, f"basic-propagate{EDGES}")
    theirs = run_peer(text, f"sdy-basic-propagate{EDGES}").text
    y = '[{"y" = operand-0 -> [result-0]}]'
    assert ours.index(y) > ours.index("-> (") and ours.count("propagation_edges = ") == 2
    assert theirs.count("propagation_edges = ") == 1 and y in theirs
