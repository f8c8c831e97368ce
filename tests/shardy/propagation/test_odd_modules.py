"""Modules that propagation has little to do with, or cannot take: they go through, or are refused with a reason."""

from __future__ import annotations

import pytest

from eggshard import shardy
from eggshard.errors import ProgramError
from eggshard.shardy.catalogue import PASSES

NOTED = "{debug-sharding-origins=true debug-propagation-edge-sharding=true}"
PASSES_HERE = [name for name, found in PASSES.items() if ".propagation." in found.run.__module__]
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
