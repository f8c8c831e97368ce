"""Odd modules: without meshes, main functions or sizes; tokens, tuples, blocks, declarations; all kinds of elements."""

from __future__ import annotations

import re

import pytest
from tests.shardy.running import assert_runs_equal

from eggshard import shardy
from eggshard.errors import ShardingError
from eggshard.shardy.local.wrapping import whole_program

MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>'
X = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
ON_X = '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}'
FIRST, BOTH = '#sdy.sharding<@mesh, [{}], unreduced={"x"}>', '#sdy.sharding<@mesh, [{}], unreduced={"x", "y"}>'

UNCHANGED = {
    "no mesh": "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }",
    "nothing": "",
    "a declaration": f"{MESH} func.func private @f(tensor<4xf32>) -> tensor<4xf32>",
    "dynamic sizes": f"""{MESH} func.func @f(%a: tensor<?xf32>) -> tensor<?xf32> {{
      %0 = stablehlo.abs %a : tensor<?xf32>
      return %0 : tensor<?xf32> }}""",
    "tuples": f"""{MESH} func.func @f(%a: tensor<8xf32>) -> tuple<tensor<8xf32>> {{
      %0 = stablehlo.tuple %a : tuple<tensor<8xf32>>
      return %0 : tuple<tensor<8xf32>> }}""",
    "blocks": f"""{MESH} func.func @f(%a: tensor<8xf32>) -> tensor<8xf32> {{
        cf.br ^bb1(%a : tensor<8xf32>)
      ^bb1(%b: tensor<8xf32>):
        return %b : tensor<8xf32> }}""",
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_not_sharded_stays(name: str) -> None:
    text = shardy.transform(f"module {{ {UNCHANGED[name]} }}", [])
    assert shardy.transform(text, "convert-global-to-local") == text


RUN = {
    "nothing reshaped": """func.func @main(%a: tensor<8x0xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
        -> (tensor<0x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.reshape %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>}
        : (tensor<8x0xf32>) -> tensor<0x4xf32>
      return %0 : tensor<0x4xf32> }""",
    "no elements": """func.func @main(%a: tensor<0x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>})
        -> (tensor<0x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>} : tensor<0x4xf32>
      return %0 : tensor<0x4xf32> }""",
    "constants": f"""func.func @main() -> (tensor<4xcomplex<f32>> {X}, tensor<4xcomplex<f32>> {X}, tensor<8xi4> {X},
        tensor<4xi1> {X}) {{
      %0 = stablehlo.constant {ON_X} dense<[(1., 2.), (3., 4.), (5., 6.), (7., 8.)]> : tensor<4xcomplex<f32>>
      %1 = stablehlo.constant {ON_X} dense<(1., 2.)> : tensor<4xcomplex<f32>>
      %2 = stablehlo.constant {ON_X} dense<[1, 2, 3, -4, 5, 6, 7, -8]> : tensor<8xi4>
      %3 = stablehlo.constant {ON_X} dense<[true, false, true, true]> : tensor<4xi1>
      return %0, %1, %2, %3 : tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>, tensor<8xi4>, tensor<4xi1> }}""",
    "truth values": f"""func.func @main(%a: tensor<8xi1> {X}) -> tensor<i1> {{
      %c = stablehlo.constant dense<false> : tensor<i1>
      %0 = stablehlo.reduce(%a init: %c) applies stablehlo.or across dimensions = [0]
        : (tensor<8xi1>, tensor<i1>) -> tensor<i1>
      %1 = sdy.all_reduce {{"x"}} %0 out_sharding=<@mesh, []> : tensor<i1>
      return %1 : tensor<i1> }}""",
    "groups and reshards to where a value lies": f"""func.func @main(%a: tensor<8xf32> {X}) -> (tensor<8xf32> {X}) {{
      %0 = sdy.reshard %a <@mesh, [{{"x"}}]> : tensor<8xf32>
      sdy.sharding_group %0 group_id=0 : tensor<8xf32>
      return %0 : tensor<8xf32> }}""",
    "sums of different partial sums": f"""func.func @main(%a: tensor<8xf32> {{sdy.sharding = {FIRST}}},
        %b: tensor<8xf32> {{sdy.sharding = {BOTH}}}) -> (tensor<8xf32> {{sdy.sharding = {BOTH}}}) {{
      %0 = stablehlo.add %a, %b
        {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}], unreduced={{"x", "y"}}>]>}} : tensor<8xf32>
      return %0 : tensor<8xf32> }}""",
    "constants that are said to be partial sums": f"""func.func @main(%a: tensor<8xf32> {{sdy.sharding = {FIRST}}})
        -> tensor<8xf32> {{
      %c = stablehlo.constant {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}], unreduced={{"x"}}>]>}}
        dense<2.0> : tensor<8xf32>
      %0 = stablehlo.add %a, %c
        {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}], unreduced={{"x"}}>]>}} : tensor<8xf32>
      %1 = sdy.all_reduce {{"x"}} %0 out_sharding=<@mesh, [{{}}]> : tensor<8xf32>
      return %1 : tensor<8xf32> }}""",
    "whole operands of a sharded result": f"""func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32> {X}) {{
      %0 = stablehlo.reverse %a, dims = [0] {ON_X} : tensor<8xf32>
      return %0 : tensor<8xf32> }}""",
    "bodies that capture constants": """func.func @main(%a: tensor<8x2xf32>
          {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
        -> (tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %0 = "stablehlo.sort"(%a) <{dimension = 1 : i64}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %r = stablehlo.multiply %p, %c : tensor<f32>
        %s = stablehlo.multiply %q, %c : tensor<f32>
        %l = stablehlo.compare LT, %r, %s, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %l : tensor<i1>
      }) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : (tensor<8x2xf32>) -> tensor<8x2xf32>
      return %0 : tensor<8x2xf32> }""",
}


@pytest.mark.parametrize("name", RUN)
def test_odd_programs_on_devices(name: str) -> None:
    text = f"module {{ {MESH} {RUN[name]} }}"
    assert_runs_equal(text, shardy.transform(text, "convert-global-to-local"), nans=(False,))


IN_PLACE = {
    "spread out, and shards begin at other holes": ("tensor<16xf32>", "low = [2], high = [2], interior = [2]", 50),
    "cut off at both ends": ("tensor<16xf32>", "low = [-2], high = [-2], interior = [0]", 12),
    "both": ("tensor<16xf32>", "low = [-2], high = [-3], interior = [1]", 26),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_pads_whose_shards_have_all_that_their_devices_need(name: str) -> None:
    """Each device takes its shard at a place of its own; nothing is sent."""
    type_, edges, size = IN_PLACE[name]
    y, result = '[{"y"}]', f"tensor<{size}xf32>"
    text = f"""module {{ {MESH}
      func.func @main(%a: {type_} {{sdy.sharding = #sdy.sharding<@mesh, {y}>}})
          -> ({result} {{sdy.sharding = #sdy.sharding<@mesh, {y}>}}) {{
        %c = stablehlo.constant dense<7.0> : tensor<f32>
        %0 = stablehlo.pad %a, %c, {edges} {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, {y}>]>}}
          : ({type_}, tensor<f32>) -> {result}
        return %0 : {result} }} }}"""
    local = shardy.transform(text, "convert-global-to-local")
    assert "collective_permute" not in local
    assert_runs_equal(text, local, xla=True)


def test_arguments_that_are_summed_hold_addends() -> None:
    """Whether or not a module says so: what devices hold of an argument only its callers know."""
    whole, x, xy = "[{}, {}]", '[{"x"}, {}]', '[{"x"}, {"y"}]'

    def text(argument: str) -> str:
        return f"""module {{ {MESH}
          func.func @main(%a: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, {argument}>}})
              -> (tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, {xy}>}}) {{
            %0 = sdy.reduce_scatter [{{"x"}}, {{}}] %a out_sharding=<@mesh, {x}> : tensor<8x4xf32>
            %1 = sdy.reduce_scatter [{{}}, {{"y"}}] %0 out_sharding=<@mesh, {xy}> : tensor<8x4xf32>
            return %1 : tensor<8x4xf32> }} }}"""

    local = shardy.transform(text(whole), "convert-global-to-local")
    assert_runs_equal(text(f'{whole}, unreduced={{"x", "y"}}'), local)


def test_what_depends_on_its_device_is_sent_by_the_one_it_lies_on() -> None:
    text = f"""module {{ {MESH}
      sdy.mesh @third = <[], device_ids=[2]>
      func.func @main(%a: tensor<8xi32> {X}) -> tensor<8xi32> {{
        %0 = stablehlo.partition_id : tensor<ui32>
        %1 = stablehlo.convert %0 : (tensor<ui32>) -> tensor<i32>
        %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<i32>) -> tensor<8xi32>
        %3 = stablehlo.add %a, %2 {{sdy.sharding = #sdy.sharding_per_value<[<@third, []>]>}} : tensor<8xi32>
        return %3 : tensor<8xi32> }} }}"""
    everywhere = text.replace("@third, []", "@mesh, [{}]")
    meant = re.sub(r"stablehlo.partition_id.*", "stablehlo.constant dense<2> : tensor<ui32>", everywhere)
    local = shardy.transform(text, "resolve-single-device-sharding,convert-global-to-local")
    assert_runs_equal(everywhere, local, original=meant)


def test_numbers_from_hidden_state_are_the_same_where_a_shard_is() -> None:
    text = f"""module {{ {MESH}
      func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<8xf32> {X}) {{
        %c = stablehlo.constant dense<[8]> : tensor<1xi64>
        %0 = stablehlo.rng %a, %b, %c, distribution = UNIFORM {ON_X}
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>
        return %0 : tensor<8xf32> }} }}"""
    local = shardy.transform(text, "convert-global-to-local")
    assert "stablehlo.rng" in local and "stablehlo.all_reduce" in local and "dense<2> : tensor<1xi64>" in local


def test_sharded_dynamic_sizes_are_refused() -> None:
    text = f"module {{ {MESH} func.func @f(%a: tensor<?xf32> {X}) -> tensor<?xf32> {{ return %a : tensor<?xf32> }} }}"
    with pytest.raises(ShardingError, match="argument 0 of @f has a sharded dimension of dynamic size"):
        shardy.transform(text, "convert-global-to-local")


def test_whole_programs_keep_no_partial_sums() -> None:
    text = f"module {{ {MESH} func.func @main(%a: tensor<8xf32> {{sdy.sharding = {FIRST}}}) {{ return }} }}"
    with pytest.raises(ShardingError, match="holds partial sums"):
        whole_program(shardy.transform(text, "convert-global-to-local"))


def test_named_computations_that_state_nothing_are_computed_whole() -> None:
    text = """
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
        %0 = sdy.all_gather [{"x"}] %a out_sharding=<@mesh, [{}]> : tensor<8xf32>
        %1 = sdy.named_computation<"f">(%0) (%b: tensor<8xf32>) {
          %2 = stablehlo.add %b, %b : tensor<8xf32>
          sdy.return %2 : tensor<8xf32>
        } : (tensor<8xf32>) -> tensor<8xf32>
        return %1 : tensor<8xf32>
      }"""
    assert_runs_equal(text, shardy.transform(text, "convert-global-to-local"))
