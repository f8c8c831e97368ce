"""jaxlib has no such pass: the documented cases."""

from __future__ import annotations

import pytest
from tests.shardy.modules import random_module

from eggshard import shardy
from eggshard.errors import ShardingError

PLAIN = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
OPEN_SUM = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}], unreduced={"y"}>}'
SUM, NO_SUM = '<@mesh, [{"x"}, {}], unreduced={"y"}>', '<@mesh, [{"x"}, {}]>'
T = "tensor<8x8xf32>"


def of(sharding: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding_per_value<[{sharding}]>}}"


def check(body: str, argument: str = OPEN_SUM, result: str = "", before: str = "") -> None:
    shardy.transform(
        f"""
      sdy.mesh @mesh = <["x"=2, "y"=2]>
      sdy.mesh @other = <["x"=2, "y"=4]>
      {before}
      func.func @main(%a: {T} {argument}, %i: tensor<i32>) -> ({T} {result}) {{
        {body}
      }}""",
        "verify-unreduced-axes",
    )


RETURN = f"return %0 : {T}"
REDUCED = """({
  ^bb0(%b: tensor<f32>, %c: tensor<f32>):
    %s = stablehlo.add %b, %c : tensor<f32>
    stablehlo.return %s : tensor<f32>
  })"""
GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"


def within(out: str) -> str:
    return f'in_shardings=[{SUM}] out_shardings=[{out}] manual_axes={{"x"}}'



GOOD = {
    "passed on": f"%0 = stablehlo.add %a, %a {of(SUM)} : {T}\n{RETURN}",
    "reduced by a constraint": f"%0 = sdy.sharding_constraint %a {NO_SUM} : {T}\n{RETURN}",
    "reduced by a reshard, and used": f"""
      %1 = sdy.reshard %a {NO_SUM} : {T}
      %0 = stablehlo.add %1, %1 {of(NO_SUM)} : {T}
      {RETURN}""",
    "behind a barrier": f"""
      %1 = sdy.reshard %a {NO_SUM} : {T}
      %2 = sdy.propagation_barrier %1 allowed_direction=NONE : {T}
      %0 = stablehlo.add %2, %2 {of(NO_SUM)} : {T}
      {RETURN}""",
    "a product makes one": f"""
      %1 = sdy.reshard %a {NO_SUM} : {T}
      %0 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [0] {of(SUM)} : ({T}, {T}) -> {T}
      {RETURN}""",
    "reduced by Shardy's all-reduce": f'%0 = sdy.all_reduce {{"y"}} %a out_sharding={NO_SUM} : {T}\n{RETURN}',
    "reduced by an all-reduce": f"""
      %0 = "stablehlo.all_reduce"(%a) <{{{GROUPS}}}> {REDUCED} {of(NO_SUM)} : ({T}) -> {T}
      {RETURN}""",
    "of other meshes": f'%0 = stablehlo.negate %a {of("<@other, [{}, {}]>")} : {T}\n{RETURN}',
    "parts together are the whole": f"""
      %1 = stablehlo.negate %i {of("<@other, []>")} : tensor<i32>
      %0 = sdy.reshard %a {NO_SUM} : {T}
      {RETURN}""",
    "through a body": f"""
      %0 = sdy.manual_computation(%a) {within(SUM)} (%b: tensor<4x8xf32>) {{
        %1 = stablehlo.negate %b {of('<@mesh, [{}, {}], unreduced={"y"}>')} : tensor<4x8xf32>
        sdy.return %1 : tensor<4x8xf32>
      }} : ({T}) -> {T}
      {RETURN}""",
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD.keys())
def test_sums_that_are_kept_or_reduced(body: str) -> None:
    check(body)


BAD = {
    "dropped by an op": (f"%0 = stablehlo.add %a, %a {of(NO_SUM)} : {T}\n{RETURN}",
                         r'stablehlo.add .*drops the unreduced axis "y" of its operands; reduce it first'),
    "dropped where nothing is stated": (f"%0 = stablehlo.add %a, %a : {T}\n{RETURN}", 'drops the unreduced axis "y"'),
    "dropped by a body": (f"""
      %0 = sdy.manual_computation(%a) {within(NO_SUM)} (%b: tensor<4x8xf32>) {{
        %1 = sdy.reshard %b <@mesh, [{{}}, {{}}]> : tensor<4x8xf32>
        sdy.return %1 : tensor<4x8xf32>
      }} : ({T}) -> {T}
      {RETURN}""", "sdy.manual_computation .*drops the unreduced axis"),
    "dropped inside a body": (f"""
      %0 = sdy.manual_computation(%a) {within(SUM)} (%b: tensor<4x8xf32>) {{
        %1 = stablehlo.negate %b : tensor<4x8xf32>
        sdy.return %1 : tensor<4x8xf32>
      }} : ({T}) -> {T}
      {RETURN}""", "stablehlo.negate .*drops"),
    "returned from a branch": (f"""
      %0 = "stablehlo.case"(%i) ({{
        stablehlo.return %a : {T}
      }}) {of(NO_SUM)} : (tensor<i32>) -> {T}
      {RETURN}""", 'value 0 of stablehlo.return .* unreduced along "y", and result 0 of its stablehlo.case is not'),
    "another reduction": (f"""%0 = stablehlo.add %a, %a {of('<@mesh, [{"x"}, {}], unreduced=max{"y"}>')} : {T}
      {RETURN}""", "from add to max"),
}


@pytest.mark.parametrize("body, message", BAD.values(), ids=BAD.keys())
def test_sums_that_are_lost(body: str, message: str) -> None:
    if "max" in body and not supports_reductions():
        pytest.skip("this jaxlib has sums alone")
    with pytest.raises(ShardingError, match=message):
        check(body)


def supports_reductions() -> bool:
    try:
        check(f"return %a : {T}", '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}], unreduced=max{"y"}>}')
    except Exception:
        return False
    return True


CALLEE = f"func.func private @f(%a: {T} {{argument}}) -> ({T} {{result}}) {{{{ return %a : {T} }}}}"


@pytest.mark.parametrize("argument, result, stated, message", [
    (OPEN_SUM, OPEN_SUM, SUM, ""),
    (PLAIN, PLAIN, NO_SUM, "argument 0 of func.call"),
    (OPEN_SUM, OPEN_SUM, NO_SUM, "result 0 of func.call"),
    (OPEN_SUM, PLAIN, NO_SUM, 'value 0 of func.return .* unreduced along "y" on one side and no axis on the other'),
])  # fmt: skip
def test_functions_take_and_return_what_they_state(argument: str, result: str, stated: str, message: str) -> None:
    before = CALLEE.format(argument=argument, result=result)
    body = f"%0 = call @f(%a) {of(stated)} : ({T}) -> {T}\n%1 = sdy.reshard %0 {NO_SUM} : {T}\nreturn %1 : {T}"
    if not message:
        check(body, before=before)
        return
    with pytest.raises(ShardingError, match=message):
        check(body, before=before)


def test_parts_of_axes() -> None:
    text = """
      sdy.mesh @mesh = <["x"=8]>
      func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], unreduced={"x":(1)4}>},
                      %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}], unreduced={"x":(4)2}>}) -> tensor<8xf32> {
        %0 = stablehlo.add %a, %b {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}], unreduced={AXES}>]>} : tensor<8xf32>
        return %0 : tensor<8xf32>
      }"""  # noqa: E501
    shardy.transform(text.replace("AXES", '"x"'), "verify-unreduced-axes")
    with pytest.raises(ShardingError, match='drops the unreduced axis "x":[(]2[)]2 of'):
        shardy.transform(text.replace("AXES", '"x":(1)2, "x":(4)2'), "verify-unreduced-axes")


@pytest.mark.parametrize("seed", range(20))
def test_programs_without_sums_pass(seed: int) -> None:
    regions = ("while", "case", "barrier", "manual", "named")
    text = random_module(seed, regions=regions, sub_axes=True, tokens=True, functions=1, scalars=True, constraints=True)
    shardy.transform(text, "verify-unreduced-axes")
