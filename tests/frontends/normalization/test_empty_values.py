"""Arrays without elements leave programs; what has elements, or effects, stays."""

from __future__ import annotations

import pytest

import eggshard as es
from eggshard.frontends.normalization.empty_values import without_empty_values
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region
from eggshard.program.types import TensorType


def region(body: str, result: str) -> Region:
    return es.load(f"func.func @main(%a: tensor<0x4xf32>, %b: tensor<8x4xf32>) -> {result} {{\n{body}\n}}").region


@pytest.mark.parametrize(("body", "result", "left"), [
    ("%0 = stablehlo.add %a, %a : tensor<0x4xf32>\nreturn %0 : tensor<0x4xf32>", "tensor<0x4xf32>",
     ["constant", "broadcast_in_dim"]),
    ("%0 = stablehlo.concatenate %b, %a, dim = 0 : (tensor<8x4xf32>, tensor<0x4xf32>) -> tensor<8x4xf32>\n"
     "return %0 : tensor<8x4xf32>", "tensor<8x4xf32>", []),
    ("%c = stablehlo.constant dense<3.0> : tensor<f32>\n%0 = stablehlo.pad %a, %c, low = [2, 0], high = [1, 0], "
     "interior = [5, 0] : (tensor<0x4xf32>, tensor<f32>) -> tensor<3x4xf32>\nreturn %0 : tensor<3x4xf32>",
     "tensor<3x4xf32>", ["constant", "broadcast_in_dim"]),
    ("%c = stablehlo.constant dense<0> : tensor<i32>\n%0 = stablehlo.dynamic_update_slice %b, %a, %c, %c : "
     "(tensor<8x4xf32>, tensor<0x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>\nreturn %0 : tensor<8x4xf32>",
     "tensor<8x4xf32>", []),
])
def test_what_is_left(body: str, result: str, left: list[str]) -> None:
    found = region(body, result)
    assert [op.name for op in found.ops] == left
    assert without_empty_values(found).types.count(found.types[0]) <= 2


def test_effects_stay() -> None:
    found = region('%0 = stablehlo.custom_call @own(%a) {has_side_effect = true} : (tensor<0x4xf32>) -> '
                   "tensor<0x4xf32>\nreturn %b : tensor<8x4xf32>", "tensor<8x4xf32>")
    assert [op.name for op in found.ops][-1] == "custom_call_effectful"


def test_bodies_of_built_programs_compute_nothing_without_elements() -> None:
    empty, number = TensorType((0, 4), "f32"), TensorType((), "i32")
    body = RegionBuilder([number, empty])
    (sine,) = body.add("sine", (1,))
    (doubled,) = body.add("add", (sine, sine))
    (next_,) = body.add("add", (0, body.scalar(1, "i32")))
    condition = RegionBuilder([number, empty])
    goes_on = condition.add("compare", (0, condition.scalar(3, "i32")),
                            {"comparison_direction": "LT", "compare_type": "SIGNED"})
    whole = RegionBuilder([number, empty])
    outs = whole.add("while", (0, 1), regions=(condition.build(goes_on), body.build([next_, doubled])))
    program = Program(Mesh({"x": 2}), whole.build(outs), (None, None), (None, None))
    (loop,) = (op for op in es.load(program).region.ops if op.name == "while")
    assert [op.name for op in loop.regions[1].ops] == ["constant", "add", "constant", "broadcast_in_dim"]
    assert es.optimize(program).verify(engines=("numpy",)).differences
