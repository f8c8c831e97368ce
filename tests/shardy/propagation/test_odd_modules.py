"""Modules that propagation has little to do with, or cannot take: they go through, or are refused with a reason."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from eggshard import shardy
from eggshard.errors import ProgramError
from eggshard.shardy.catalogue import PASSES
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import Pass, Step

NOTED = "{debug-sharding-origins=true debug-propagation-edge-sharding=true}"
PASSES_HERE = [
    name for name, found in PASSES.items()
    if ".propagation." in found.run.__module__ or found.run.__module__.endswith(".by_jaxlib")]
MODULES = {
    "nothing": "module {}",
    "an empty function": "module { func.func @main() { return } }",
    "a declaration": """
      module {
        sdy.mesh @mesh = <["x"=2]>
        func.func private @away(tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32>
        func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
          %0 = call @away(%a) : (tensor<8xf32>) -> tensor<8xf32>
          %1 = call @away(%0) : (tensor<8xf32>) -> tensor<8xf32>
          return %1 : tensor<8xf32>
        }
      }""",
    "an op that nobody knows": """
      module {
        sdy.mesh @mesh = <["x"=2]>
        func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
          %0 = "foo.bar"(%a) ({
          ^bb0(%z: tensor<8xf32>):
            "foo.yield"(%z) : (tensor<8xf32>) -> ()
          }) : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }
      }""",
    "an if, and what comes from outside": """
      module {
        sdy.mesh @mesh = <["x"=2]>
        func.func @main(%p: tensor<i1>, %t: !stablehlo.token,
            %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32>, !stablehlo.token) {
          %0 = "stablehlo.if"(%p) ({
            %1 = stablehlo.sine %a : tensor<8xf32>
            stablehlo.return %1 : tensor<8xf32>
          }, {
            stablehlo.return %a : tensor<8xf32>
          }) : (tensor<i1>) -> tensor<8xf32>
          %2:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<8xf32>, !stablehlo.token)
          %3 = stablehlo.add %0, %2#0 : tensor<8xf32>
          return %3, %2#1 : tensor<8xf32>, !stablehlo.token
        }
      }""",
    "names that need quotes, and no main function": """
      module {
        sdy.mesh @"a mesh" = <["x y"=2]>
        func.func @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@"a mesh", [{"x y"}]>}) -> tensor<8xf32> {
          %0 = stablehlo.sine %a : tensor<8xf32>
          return %0 : tensor<8xf32>
        }
        func.func @g(%a: tensor<8xf32>) -> tensor<8xf32> {
          return %a : tensor<8xf32>
        }
      }""",
}


@pytest.mark.parametrize("name", MODULES)
def test_they_go_through_every_pass(name: str) -> None:
    for step in [*PASSES_HERE, f"user-priority-propagate{NOTED}", "add-func-data-flow-edges,basic-propagate",
                 shardy.steps_of("import")]:
        assert shardy.transform(MODULES[name], step)


def test_all_passes_are_here() -> None:
    assert len(PASSES_HERE) >= 18


def test_recursion_is_refused() -> None:
    text = """
      module {
        func.func private @f(%a: tensor<8xf32>) -> tensor<8xf32> {
          %0 = call @g(%a) : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }
        func.func private @g(%a: tensor<8xf32>) -> tensor<8xf32> {
          %0 = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }
      }"""
    for step in ("flatten-call-graph", "import-func-calls"):
        with pytest.raises(ProgramError, match="@g calls @f, which calls it; write the recursion as a loop"):
            shardy.transform(text, step)


def test_tuples_are_refused() -> None:
    text = """
      func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
        %0 = stablehlo.tuple %a : tuple<tensor<8xf32>>
        %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<8xf32>>) -> tensor<8xf32>
        return %1 : tensor<8xf32>
      }"""
    with pytest.raises(ProgramError, match=r"stablehlo\.tuple has a result of type tuple<.*no tuples"):
        shardy.transform(text, "basic-propagate")


def test_edges_of_what_owns_none_are_refused() -> None:
    """jaxlib overflows its stack."""
    text = """
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
        %0 = sdy.data_flow_edge %a sharding=<@mesh, [{"x"}]> : tensor<8xf32>
        return %0 : tensor<8xf32>
      }"""
    with pytest.raises(ProgramError, match=r"a value of func\.func, of type tensor<8xf32>, .* add-data-flow-edges"):
        shardy.transform(text, "basic-propagate")


def test_edges_of_calls_do_not_become_edges_of_computations_twice() -> None:
    """What the user has put behind a call stays the edge of its computation; jaxlib puts a second one behind it."""
    text = """
      sdy.mesh @mesh = <["x"=2]>
      func.func private @f(%a: tensor<8xf32>) -> tensor<8xf32> {
        %0 = sdy.named_computation<"g">(%a) (%b: tensor<8xf32>) {
          %1 = sdy.data_flow_edge %b : tensor<8xf32>
          sdy.return %1 : tensor<8xf32>
        } : (tensor<8xf32>) -> tensor<8xf32>
        return %0 : tensor<8xf32>
      }
      func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
        %0 = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
        %1 = sdy.data_flow_edge %0 sharding=<@mesh, [{"x"}]> : tensor<8xf32>
        %2 = call @f(%1) : (tensor<8xf32>) -> tensor<8xf32>
        return %2 : tensor<8xf32>
      }"""
    assert shardy.transform(text, "import-func-calls").count("sdy.data_flow_edge") == 8


def test_what_mlir_finds_invalid_within_a_pass_is_an_error_of_ours() -> None:
    def broken(module: ShardyModule) -> None:
        ir.Attribute.parse("#sdy.sharding<@mesh, [{")

    step = Step(Pass("broken", broken, ""), {})
    with pytest.raises(ProgramError, match="pass broken finds the module invalid: .*data-flow edges must stand where"):
        shardy.transform("module {}", [step])
