"""Names and messages hold nothing that commands a terminal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import EggshardError, MeshError, printable

EVIL = '''module @"\\1B[31mevil\\07" {
  func.func public @main(%arg0: tensor<4xf32> {jax.arg_info = "a\\1B]0;title\\07b"})
      -> (tensor<4xf32> {jax.result_info = "r\\C2\\9B2J"}) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32> loc("\\1B[5mfile.py":3:1)
    return %0 : tensor<4xf32>
  }
}'''


def test_lines_and_tabs_stay() -> None:
    assert printable("a\x1b[31m\tb\nc\x9b\x7f\u00e4\r") == "a\\x1b[31m\tb\nc\\x9b\\x7f\u00e4\\r"


@pytest.mark.parametrize("shown", [
    repr, str, es.Plan.explain, es.Plan.to_dot, es.Plan.to_stablehlo, es.Plan.to_json, es.Plan._repr_html_,
    lambda plan: str(plan.diff(plan)), lambda plan: str(plan.workspace()), lambda plan: plan.explain(0),
    lambda plan: "".join(plan.program.input_names + plan.program.output_names),
])
def test_plans_of_odd_names_are_shown_without_control_characters(shown: Callable[[es.Plan], str]) -> None:
    plan = es.optimize(EVIL)
    text = shown(plan)
    assert text == printable(text)


def test_plans_of_odd_names_run() -> None:
    plan, x = es.optimize(EVIL), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(plan.run(x)[0], 2 * x)
    np.testing.assert_array_equal(np.asarray(plan.to_jax()(x)[0]), 2 * x)
    assert es.optimize(plan.to_stablehlo()).program.name == plan.program.name


@pytest.mark.parametrize("act", [
    lambda: es.optimize('module { func.func @"\\1B[31mx"(%a: tensor<4xf32>) -> tensor<5xf32> { '
                        "return %a : tensor<4xf32> } }"),
    lambda: es.optimize("module { \x1b[31m }"), lambda: es.optimize(EVIL).run(1, 2),
    lambda: es.optimize('module { func.func private @"\\1B[31mx"() func.func private @"y"() }'),
])
def test_errors_show_no_control_characters(act: Callable[[], object]) -> None:
    with pytest.raises(EggshardError) as caught:
        act()
    assert str(caught.value) == printable(str(caught.value)) and "\\x1b" in str(caught.value)


def test_axes_are_not_named_by_control_characters() -> None:
    with pytest.raises(MeshError, match="without control characters"):
        es.Mesh({"\x1b[31mx": 2})


@pytest.mark.parametrize("axes", [("x", 4), ["x"], [("x", 4, 2)]])
def test_axes_that_are_no_pairs(axes: object) -> None:
    with pytest.raises(MeshError, match=r"pairs of a name and a size; write Mesh"):
        es.Mesh(axes)  # type: ignore[arg-type]
