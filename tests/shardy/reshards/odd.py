"""Modules at the edges of what a pass over functions may meet; each must go through."""

from __future__ import annotations

X8 = 'sdy.mesh @mesh = <["x"=8]>\n'
X4Y2 = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'
ROWS = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
COLUMNS = '{sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}'
T = "tensor<64x64xf32>"

CALLS = X8 + f"""
func.func private @f(%a: {T} {ROWS}) -> ({T} {COLUMNS}) {{
  %0 = stablehlo.tanh %a : {T}
  return %0 : {T}
}}
func.func @main(%a: {T} {ROWS}) -> ({T} {ROWS}) {{
  %0 = call @f(%a) : ({T}) -> {T}
  %1 = call @f(%0) : ({T}) -> {T}
  return %1 : {T}
}}"""

NO_MAIN = X8 + f"""
func.func private @declared({T}) -> {T}
func.func @g(%a: {T} {ROWS}, %b: {T} {COLUMNS}) -> {T} {{
  %0 = stablehlo.add %a, %b : {T}
  return %0 : {T}
}}
func.func @h(%a: {T} {ROWS}) -> {T} {{
  return %a : {T}
}}"""

NO_MESH = f"""
func.func @main(%a: {T}) -> {T} {{
  %0 = stablehlo.add %a, %a : {T}
  return %0 : {T}
}}"""

TOKENS = X8 + f"""
func.func @main(%a: {T} {ROWS}, %t: !stablehlo.token) -> ({T} {COLUMNS}, !stablehlo.token) {{
  %0 = stablehlo.after_all %t, %t : !stablehlo.token
  %1 = "stablehlo.outfeed"(%a, %0) <{{outfeed_config = ""}}> : ({T}, !stablehlo.token) -> !stablehlo.token
  return %a, %1 : {T}, !stablehlo.token
}}"""

EFFECTS = X8 + f"""
func.func @main(%a: {T} {ROWS}) -> ({T} {COLUMNS}) {{
  stablehlo.custom_call @log(%a) {{has_side_effect = true}} : ({T}) -> ()
  %0 = stablehlo.custom_call @f(%a) : ({T}) -> {T}
  %1 = "foreign.op"(%0) : ({T}) -> {T}
  return %1 : {T}
}}"""

OWN_RULE = X8 + f"""
func.func @main(%a: {T} {ROWS}) -> ({T} {ROWS}) {{
  %0 = stablehlo.custom_call @f(%a) {{sdy.sharding_rule =
    #sdy.op_sharding_rule<([i, j])->([i, j]) {{i=64, j=64}} need_replication={{j}}, custom>}} : ({T}) -> {T}
  return %0 : {T}
}}"""

MANUAL = X4Y2 + """
func.func @main(%a: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
    -> (tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) {
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"x"}, {"y"}]>]
      manual_axes={"x"} (%b: tensor<4x16xf32>) {
    %1 = stablehlo.dot_general %b, %b, contracting_dims = [1] x [1]
      : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x4xf32>
    %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [0]
      : (tensor<4x4xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    sdy.return %2 : tensor<4x16xf32>
  } : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %3 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"x"}, {"y"}]>]
      manual_axes={"x", "y"} (%b: tensor<4x8xf32>) {
    %1 = "stablehlo.collective_permute"(%b) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<16x16xf32>) -> tensor<16x16xf32>
  return %3 : tensor<16x16xf32>
}"""

NAMED = X8 + f"""
func.func @main(%a: {T} {ROWS}) -> ({T} {COLUMNS}) {{
  %0 = sdy.named_computation<"f">(%a) in_shardings=[<@mesh, [{{"x"}}, {{}}]>]
      out_shardings=[<@mesh, [{{}}, {{"x"}}]>] (%b: {T}) {{
    %1 = stablehlo.tanh %b : {T}
    sdy.return %1 : {T}
  }} : ({T}) -> {T}
  return %0 : {T}
}}"""

EMPTY = X8 + f"""
func.func @main(%a: tensor<0x64xf32> {COLUMNS}) -> (tensor<0x64xf32> {COLUMNS}) {{
  %0 = stablehlo.add %a, %a : tensor<0x64xf32>
  return %0 : tensor<0x64xf32>
}}"""

HINTS = X8 + f"""
func.func @main(%a: {T} {ROWS}) -> ({T} {COLUMNS}) {{
  %0 = stablehlo.add %a, %a : {T}
  sdy.sharding_group %0 group_id=0 : {T}
  %1 = sdy.propagation_barrier %0 allowed_direction=FORWARD : {T}
  %2 = sdy.sharding_constraint %1 <@mesh, [{{?}}, {{?}}]> : {T}
  %3 = sdy.reshard %2 <@mesh, [{{}}, {{}}]> : {T}
  %4 = stablehlo.tanh %3 : {T}
  return %3 : {T}
}}"""

INLINED_MESH = """
func.func @main(%a: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{"x"}, {}]>})
    -> (tensor<64x64xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{}, {"x"}]>}) {
  %0 = stablehlo.add %a, %a : tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}"""

CASES = X8 + f"""
func.func @main(%i: tensor<i32>, %a: {T} {ROWS}, %b: {T} {COLUMNS}) -> ({T} {ROWS}) {{
  %c = stablehlo.constant dense<1.0> : {T}
  %0 = "stablehlo.case"(%i) ({{
    %1 = stablehlo.add %a, %b : {T}
    stablehlo.return %1 : {T}
  }}, {{
    stablehlo.return %c : {T}
  }}, {{
    stablehlo.return %b : {T}
  }}) {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{"x"}}]>]>}} : (tensor<i32>) -> {T}
  return %0 : {T}
}}"""

#: Reducing over shards would make nothing of these: they depend on the order, or on all results at once.
REDUCTIONS = X8 + f"""
func.func @main(%a: {T} {ROWS}, %i: tensor<64x64xi32> {ROWS}) -> (tensor<64xf32>, tensor<64xi32>, tensor<64xf32>) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<0> : tensor<i32>
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %0:2 = stablehlo.reduce(%a init: %z), (%i init: %k) across dimensions = [0]
    : ({T}, tensor<64x64xi32>, tensor<f32>, tensor<i32>) -> (tensor<64xf32>, tensor<64xi32>)
    reducer(%x: tensor<f32>, %y: tensor<f32>) (%j: tensor<i32>, %l: tensor<i32>) {{
      %1 = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.select %1, %x, %y : tensor<i1>, tensor<f32>
      %3 = stablehlo.select %1, %j, %l : tensor<i1>, tensor<i32>
      stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
    }}
  %4 = "stablehlo.reduce"(%a, %z) <{{dimensions = array<i64: 0>}}> ({{
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %5 = stablehlo.add %x, %y : tensor<f32>
    %6 = stablehlo.multiply %5, %two : tensor<f32>
    stablehlo.return %6 : tensor<f32>
  }}) : ({T}, tensor<f32>) -> tensor<64xf32>
  return %0#0, %0#1, %4 : tensor<64xf32>, tensor<64xi32>, tensor<64xf32>
}}"""

COMPLEX = X8 + f"""
func.func @main(%a: tensor<64x64xcomplex<f32>> {ROWS}) -> (tensor<64x64xcomplex<f32>> {COLUMNS}) {{
  %c = stablehlo.constant dense<(1.0, 2.0)> : tensor<64x64xcomplex<f32>>
  %0 = stablehlo.add %a, %c : tensor<64x64xcomplex<f32>>
  return %0 : tensor<64x64xcomplex<f32>>
}}"""

UNEVEN = X8 + f"""
func.func @main(%a: tensor<60x64xf32> {ROWS}, %b: tensor<60x64xf32> {COLUMNS}) -> (tensor<60x64xf32> {ROWS}) {{
  %0 = stablehlo.add %a, %b : tensor<60x64xf32>
  return %0 : tensor<60x64xf32>
}}"""

#: What nothing needs is dropped.
UNUSED = X8 + f"""
func.func @main(%a: {T} {ROWS}, %b: {T} {COLUMNS}) -> ({T} {ROWS}) {{
  %0 = stablehlo.add %a, %b : {T}
  %1 = stablehlo.tanh %0 : {T}
  return %a : {T}
}}"""

TWO_MESHES = 'sdy.mesh @other = <["x"=8], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>\n' + X8 + f"""
func.func @main(%a: {T} {ROWS}) -> ({T} {ROWS}) {{
  %0 = stablehlo.add %a, %a {{sdy.sharding = #sdy.sharding_per_value<[<@other, [{{"x"}}, {{}}]>]>}} : {T}
  return %0 : {T}
}}"""

MODULES = {
    "calls": CALLS, "no main": NO_MAIN, "no mesh": NO_MESH, "unused mesh": X8 + NO_MESH, "tokens": TOKENS,
    "effects": EFFECTS, "own rule": OWN_RULE, "manual": MANUAL, "named": NAMED, "empty": EMPTY, "hints": HINTS,
    "inlined mesh": INLINED_MESH, "cases": CASES, "reductions": REDUCTIONS, "complex": COMPLEX, "uneven": UNEVEN,
    "unused": UNUSED,
}
