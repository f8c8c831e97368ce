from __future__ import annotations

import pytest
from tests.shardy.differential import assert_agrees, canonical

from eggshard import shardy
from eggshard.errors import ProgramError, ShardingError
from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.shardy.module import RULE, create, parsed
from eggshard.shardy.rules import rule_of

MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>'
F, S = "tensor<8x4xf32>", "tensor<f32>"
IN, OUT = '[<@mesh, [{"x"}, {}]>]', '[<@mesh, [{"x"}, {}]>]'
COLLECTIVES = f"""
    %c0 = sdy.reshard %a <@mesh, [{{"x"}}, {{}}]> : {F}
    %c1 = sdy.all_gather [{{"x"}}, {{}}] %c0 out_sharding=<@mesh, [{{}}, {{}}]> : {F}
    %c2 = sdy.all_slice [{{"x"}}, {{}}] %c1 out_sharding=<@mesh, [{{"x"}}, {{}}]> : {F}
    %c3 = sdy.all_to_all [{{"x"}}: 0->1] %c2 out_sharding=<@mesh, [{{}}, {{"x"}}]> : {F}
    %c4 = sdy.collective_permute %c2 out_sharding=<@mesh, [{{"x":(2)2, "x":(1)2}}, {{}}]> : {F}
    %c5 = sdy.all_reduce {{"y"}} %c2 out_sharding=<@mesh, [{{"x"}}, {{}}]> : {F}
    sdy.sharding_group %c5 group_id=0 : {F}"""
#: Bodies of ``func.func @main(%a, %n, %t)``, by what is in them.
BODIES = {
    "loops and branches": f"""
    %k = stablehlo.constant dense<3> : tensor<i32>
    %0:2 = stablehlo.while(%i = %k, %x = %a) : tensor<i32>, {F}
      cond {{
        %c = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %y = stablehlo.tanh %x : {F}
        stablehlo.return %i, %y : tensor<i32>, {F}
      }}
    %1 = "stablehlo.case"(%k) ({{
      stablehlo.return %a : {F}
    }}, {{
      %2 = stablehlo.abs %a : {F}
      stablehlo.return %2 : {F}
    }}) : (tensor<i32>) -> {F}
    %3 = stablehlo.optimization_barrier %1 : {F}""",
    "custom rules": f"""
    %0 = stablehlo.custom_call @own(%a) {{sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {{i=8, j=4}}
      need_replication={{i}} permutation={{j}} blocked_propagation={{i, j}}, custom>}} : ({F}) -> {F}
    %1 = stablehlo.add %a, %a {{sdy.sharding_rule =
      #sdy.op_sharding_rule<([i, j], [i, j])->([i, j]) {{i=8, j=4}} need_replication={{j}}, custom>}} : {F}
    %2 = stablehlo.add %a, %a {{sdy.sharding_rule =
      #sdy.op_sharding_rule<([i, j], [k, j])->([i, j]) {{i=8, j=4, k=8}}>}} : {F}
    %3 = stablehlo.add %a, %a : {F}""",
    "manual computations": f"""
    %0 = sdy.manual_computation(%a) in_shardings={IN} out_shardings={OUT} manual_axes={{"x"}} (%b: tensor<2x4xf32>) {{
      %1 = stablehlo.transpose %b, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
      %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
      sdy.return %2 : tensor<2x4xf32>
    }} : ({F}) -> {F}
    %3 = sdy.named_computation<"part">(%a) (%b: {F}) {{
      %4 = stablehlo.negate %b : {F}
      sdy.return %4 : {F}
    }} : ({F}) -> {F}""",
    "tokens": f"""
    %0 = stablehlo.after_all %t, %t : !stablehlo.token
    %1 = stablehlo.create_token : !stablehlo.token
    %2:2 = "stablehlo.infeed"(%0) {{infeed_config = ""}} : (!stablehlo.token) -> ({F}, !stablehlo.token)
    %3 = "stablehlo.outfeed"(%2#0, %1) {{outfeed_config = ""}} : ({F}, !stablehlo.token) -> !stablehlo.token
    %4 = stablehlo.custom_call @MoveToHost(%3) : (!stablehlo.token) -> !stablehlo.token
    %5 = stablehlo.custom_call @unknown(%3) {{has_side_effect = true}} : (!stablehlo.token) -> !stablehlo.token""",
    "ops without a rule": f"""
    %0 = stablehlo.iota dim = 0 : {F}
    %1 = chlo.erf %a : {F} -> {F}
    %2 = mhlo.erf %a : {F}
    %4 = "stablehlo.tuple"(%a) : ({F}) -> tuple<{F}>
    %5 = "stablehlo.get_tuple_element"(%4) {{index = 0 : i32}} : (tuple<{F}>) -> {F}
    %6 = sdy.propagation_barrier %a allowed_direction=FORWARD : {F}
    %7 = stablehlo.partition_id : tensor<ui32>
    %8:2 = chlo.top_k(%a, k = 2) : {F} -> (tensor<8x2xf32>, tensor<8x2xi32>)
    %10 = stablehlo.einsum %a, %a, config = "ab,ab->ab" : ({F}, {F}) -> {F}""",
    "Shardy's collectives": COLLECTIVES,
    "scalars and empty dimensions": f"""
    %0 = stablehlo.constant dense<1.0> : {S}
    %1 = stablehlo.add %0, %0 : {S}
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : ({S}) -> tensor<0x3xf32>
    %3 = stablehlo.reshape %2 : (tensor<0x3xf32>) -> tensor<3x0x1xf32>
    %4 = stablehlo.reshape %0 : ({S}) -> tensor<1x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x1xf32>) -> {S}
    %6 = stablehlo.dot_general %5, %0, contracting_dims = [] x [] : ({S}, {S}) -> {S}""",
    "reductions of pairs": f"""
    %i = stablehlo.iota dim = 0 : tensor<8x4xi32>
    %z = stablehlo.constant dense<0.0> : {S}
    %k = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.reduce(%a init: %z), (%i init: %k) across dimensions = [0] :
        ({F}, tensor<8x4xi32>, {S}, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
     reducer(%l: {S}, %m: {S}) (%p: tensor<i32>, %q: tensor<i32>) {{
      %c = stablehlo.compare GE, %l, %m : ({S}, {S}) -> tensor<i1>
      %1 = stablehlo.select %c, %l, %m : tensor<i1>, {S}
      %2 = stablehlo.select %c, %p, %q : tensor<i1>, tensor<i32>
      stablehlo.return %1, %2 : {S}, tensor<i32>
    }}
    %3 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : ({F}, {S}) -> tensor<8xf32>""",
    "a roll": f"""
    %0 = stablehlo.slice %a [5:8, 0:4] : ({F}) -> tensor<3x4xf32>
    %1 = stablehlo.slice %a [0:5, 0:4] : ({F}) -> tensor<5x4xf32>
    %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<3x4xf32>, tensor<5x4xf32>) -> {F}
    %3 = stablehlo.concatenate %0, %a, dim = 0 : (tensor<3x4xf32>, {F}) -> tensor<11x4xf32>
    %4 = stablehlo.slice %n [5:8, 0:4] : ({F}) -> tensor<3x4xf32>
    %5 = stablehlo.concatenate %4, %a, dim = 0 : (tensor<3x4xf32>, {F}) -> tensor<11x4xf32>""",
    "updates at constants": f"""
    %c = sdy.constant dense<1> : tensor<i32>
    %d = arith.constant dense<1> : tensor<i32>
    %e = stablehlo.add %c, %d : tensor<i32>
    %u = stablehlo.slice %a [0:2, 0:4] : ({F}) -> tensor<2x4xf32>
    %0 = stablehlo.dynamic_update_slice %a, %u, %c, %d : ({F}, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> {F}
    %1 = stablehlo.dynamic_update_slice %a, %u, %c, %e : ({F}, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> {F}""",
    "attention": """
    %q = stablehlo.constant dense<1.0> : tensor<2x16x4x8xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.dot_general %q, %q, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]
      : (tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>) -> tensor<2x4x16x16xf32>
    %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x4x16x16xf32>, tensor<f32>) -> tensor<2x4x16xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<2x4x16xf32>) -> tensor<2x4x16x16xf32>
    %3 = stablehlo.subtract %0, %2 : tensor<2x4x16x16xf32>
    %4 = stablehlo.dot_general %3, %q, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1]
      : (tensor<2x4x16x16xf32>, tensor<2x16x4x8xf32>) -> tensor<2x4x16x8xf32>
    %5 = stablehlo.transpose %4, dims = [0, 2, 1, 3] : (tensor<2x4x16x8xf32>) -> tensor<2x16x4x8xf32>
    %6 = stablehlo.reshape %5 : (tensor<2x16x4x8xf32>) -> tensor<32x32xf32>""",
}


def module(body: str) -> str:
    return (f"module {{\n{MESH}\nfunc.func @main(%a: {F}, %n: {F}, %t: !stablehlo.token) {{{body}\n"
            f"func.call @part(%a) : ({F}) -> ()\nreturn\n}}\n"
            f"func.func private @part(%a: {F}) {{\n%0 = stablehlo.sqrt %a : {F}\nreturn\n}}\n}}")


@pytest.mark.parametrize("name", BODIES)
def test_stating_and_dropping_rules_as_jaxlib_does(name: str) -> None:
    text = module(BODIES[name])
    assert_agrees(text, "populate-op-sharding-rules")
    assert_agrees(text, "populate-op-sharding-rules{conservative-propagation=true}")
    assert_agrees(text, "drop-sharding-rules")
    stated = shardy.transform(text, "populate-op-sharding-rules")
    assert_agrees(stated, "drop-sharding-rules")


def test_modules_without_functions_go_through() -> None:
    assert_agrees("module {\n}", "populate-op-sharding-rules,drop-sharding-rules")


def test_users_own_rules_stay() -> None:
    text = shardy.transform(module(BODIES["custom rules"]), "populate-op-sharding-rules,drop-sharding-rules")
    assert text.count(RULE) == 2 and text.count("custom>") == 2


def test_dropping_undoes_stating() -> None:
    text = canonical(module(BODIES["attention"]))
    assert shardy.transform(text, "populate-op-sharding-rules,drop-sharding-rules") == text


def test_the_stated_rule_goes_before_the_implied_one() -> None:
    with parsed(module(BODIES["custom rules"])) as found:
        rules = [rule_of(op) for op in found.walk("stablehlo.custom_call", "stablehlo.add")]
    own, add, other, implied = (rule for rule in rules if rule)
    assert own.custom and own.of_kind("need-replication") == (0,) and own.of_kind("permutation") == (1,)
    assert own.blocked == (0, 1)
    assert add.custom and not other.custom and len(other.factors) == 3
    assert str(implied) == "#sdy.op_sharding_rule<([i, j], [i, j])->([i, j]) {i=8, j=4}>"


@pytest.mark.parametrize(
    "rule", ["([i])->([i, j]) {i=8, j=4}", "([i, j], [i, j])->([i, j]) {i=8, j=4}", "([i, k])->([i, j]) {i=8, j=4}"])
def test_modules_with_rules_that_do_not_fit_are_refused(rule: str) -> None:
    text = module(f"%0 = stablehlo.custom_call @own(%a) {{{RULE} = #sdy.op_sharding_rule<{rule}, custom>}} : "
                  f"({F}) -> {F}")
    with pytest.raises(ProgramError, match="custom_call"):
        shardy.transform(text, "drop-sharding-rules")


def test_a_rule_that_does_not_fit_its_op_is_refused() -> None:
    with parsed(module("")) as found:
        function = found.functions[0]
        operand = function.regions[0].blocks[0].arguments[0]
        rule = OpShardingRule.parse("#sdy.op_sharding_rule<([i])->([i]) {i=8}, custom>")
        op = create("stablehlo.custom_call", [operand], [operand.type],
                    {"call_target_name": '"own"', RULE: str(rule)}, found.walk("func.call")[0])
        with pytest.raises(ShardingError, match=r"stablehlo.custom_call: operand 0 has shape \(8, 4\)"):
            rule_of(op)
        op.erase()
