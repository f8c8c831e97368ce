from __future__ import annotations

import re

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.propagation.generated import modules

from eggshard import shardy
from eggshard.program.axes import AxisRef
from eggshard.shardy.module import parsed
from eggshard.shardy.propagation.origins import Gift, edges_text

NOTED = "{debug-sharding-origins=true debug-propagation-edge-sharding=true}"
MODULE = """
module {
  sdy.mesh @mesh = <["a"=2, "b"=2, "c"=4]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a", ?}, {?}]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"b", ?}]>})
      -> (tensor<64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"c", ?}]>}) {
    %1 = stablehlo.add %a, %b : tensor<8x8xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{"a"}, {"c"}]> : tensor<8x8xf32>
    %3 = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"a", ?}, {"b", ?}]>]
        out_shardings=[<@mesh, [{"a", ?}, {?}]>] manual_axes={"a"} (%x: tensor<4x8xf32>) {
      %4 = stablehlo.sine %x : tensor<4x8xf32>
      sdy.return %4 : tensor<4x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %5 = stablehlo.multiply %2, %3 : tensor<8x8xf32>
    %6 = stablehlo.reshape %5 : (tensor<8x8xf32>) -> tensor<64xf32>
    return %6 : tensor<64xf32>
  }
}"""


def _only_constraints(text: str) -> str:
    """Shardings of ops have no origin of their own, and jaxlib's passes abort where one of them propagates.

    One result, as jaxlib notes the edges of all results at the first.
    """
    with parsed(text) as module:
        for op in module.walk():
            if op.name != "func.func" and "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
        return module.text()


def _without_result_edges(text: str) -> str:
    edges = r"sdy\.propagation_edges = #sdy\.propagation_edges<\[(?:\{step[^\n]*?\]\})\]>(, )?"
    return "\n".join(
        (re.sub(edges, "", line) if line.startswith("  func.func") else line).replace(" {}", "")
        for line in text.splitlines())


def test_notes_of_a_written_module_are_jaxlibs() -> None:
    assert_agrees(MODULE, f"add-data-flow-edges,apply-sharding-constraints{NOTED}")
    assert_agrees(MODULE, f"add-data-flow-edges,apply-sharding-constraints{NOTED},user-priority-propagate{NOTED}")
    assert_agrees(MODULE, f"add-data-flow-edges,basic-propagate{NOTED}")


@pytest.mark.parametrize("name", ["user-priority-propagate", "aggressive-propagate"])
def test_notes_of_generated_modules_are_jaxlibs(name: str) -> None:
    from tests.shardy.peer import peer_text, run_peer

    from eggshard.shardy.catalogue import read_steps

    passes = f"add-data-flow-edges,apply-sharding-constraints{NOTED},sharding-group-import,{name}{NOTED}"
    for text in modules(16, length=10, stated=0.35, open=0.6, constraints=True, uneven=True, sub_axes=True,
                        replicated=True):
        text = _only_constraints(text)
        theirs = run_peer(text, peer_text(read_steps(passes)))
        assert not theirs.failure, theirs.failure
        assert _without_result_edges(shardy.transform(text, passes)) == _without_result_edges(theirs.text)


def test_an_argument_says_from_which_other_it_has_an_axis() -> None:
    passes = f"add-data-flow-edges,apply-sharding-constraints{NOTED},user-priority-propagate{NOTED}"
    out = shardy.transform(MODULE, passes)
    assert 'sdy.sharding_origins = {a = "input: 0", b = "self"}' in out
    assert "{step-0 = [" in out and 'sdy.sharding_origins = [{b = "mc_0_input: 0"}]' in out


def test_the_propagation_pipeline_keeps_the_notes() -> None:
    steps = shardy.steps_of("propagation{debug-sharding-origins=true debug-propagation-edge-sharding=true}")
    out = shardy.transform(MODULE, [step for step in steps if not step.startswith("insert-explicit")])
    assert "sdy.sharding_origins" in out and "sdy.propagation_edges" in out


def test_of_equal_gifts_the_first_counts() -> None:
    x = AxisRef("x")
    gifts = [(Gift(x, 0, 2), 2, 5), (Gift(x, 0, 2), 2, 3), (Gift(x, 0, 1), 2, 3)]
    assert edges_text(gifts) == '#sdy.propagation_edges<[{step-3 = [{"x" = operand-0 -> [operand-1, result-0]}]}]>'
