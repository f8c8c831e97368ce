"""Modules written by hand, each about one thing that propagation or its import has to do with."""

from __future__ import annotations

MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2, "z"=2]>'


def _module(body: str, mesh: str = MESH) -> str:
    return f"module {{\n  {mesh}\n{body}\n}}\n"



PROGRAMS: dict[str, str] = {
    "a reshape cuts an axis in two": _module("""
  func.func @main(%a: tensor<16x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {"z"}]>}) -> tensor<12x8xf32> {
    %0 = stablehlo.reshape %a : (tensor<16x6xf32>) -> tensor<2x8x6xf32>
    %1 = stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x8x6xf32>) -> tensor<6x2x8xf32>
    %2 = stablehlo.sine %1 : tensor<6x2x8xf32>
    %3 = stablehlo.reshape %2 : (tensor<6x2x8xf32>) -> tensor<12x8xf32>
    return %3 : tensor<12x8xf32>
  }"""),
    "axes overflow a factor": _module("""
  func.func @main(%a: tensor<24xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"w", "y", "x", ?}]>}) -> tensor<24xf32> {
    %0 = stablehlo.reshape %a : (tensor<24xf32>) -> tensor<3x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<3x8xf32>) -> tensor<3x4x2xf32>
    %2 = stablehlo.cosine %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"x":(2)2, ?}, {?}]>]>}
      : tensor<3x4x2xf32>
    %3 = stablehlo.reshape %2 : (tensor<3x4x2xf32>) -> tensor<24xf32>
    return %3 : tensor<24xf32>
  }""", 'sdy.mesh @mesh = <["w"=3, "x"=4, "y"=2]>'),
    "a product's factors want the same axis": _module("""
  func.func @main(%a: tensor<8x32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}, {"y", ?}]>},
      %b: tensor<8x16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x", ?}, {"y", ?}]>})
      -> (tensor<8x32x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"z", "y", ?}, {?}]>}) {
    %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<8x32x16xf32>, tensor<8x16x4xf32>) -> tensor<8x32x4xf32>
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1]
      : (tensor<8x32x4xf32>, tensor<f32>) -> tensor<8x4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 2] : (tensor<8x4xf32>) -> tensor<8x32x4xf32>
    %3 = stablehlo.subtract %0, %2 : tensor<8x32x4xf32>
    return %3 : tensor<8x32x4xf32>
  }"""),
    "a result without an axis keeps it from going sideways": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<8x8xf32>)
      -> tensor<8x8xf32> {
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"y"}]> : tensor<8x8xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{"z"}, {}]> : tensor<8x8xf32>
    %3 = stablehlo.multiply %0, %2 : tensor<8x8xf32>
    %4 = stablehlo.multiply %3, %3 : tensor<8x8xf32>
    return %4 : tensor<8x8xf32>
  }"""),
    "a loop": _module("""
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>})
      -> tensor<8x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<4> : tensor<i32>
    %0:3 = stablehlo.while(%i = %c, %u = %a, %v = %b) : tensor<i32>, tensor<8x8xf32>, tensor<8x8xf32>
    cond {
      %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %i, %1 : tensor<i32>
      %3 = stablehlo.dot_general %u, %v, contracting_dims = [1] x [0]
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %4 = sdy.sharding_constraint %3 <@mesh, [{?}, {"y", ?}]> : tensor<8x8xf32>
      stablehlo.return %2, %v, %4 : tensor<i32>, tensor<8x8xf32>, tensor<8x8xf32>
    }
    %5 = sdy.sharding_constraint %0#1 <@mesh, [{"z"}, {}]> : tensor<8x8xf32>
    %6 = stablehlo.add %5, %0#2 : tensor<8x8xf32>
    return %6 : tensor<8x8xf32>
  }"""),
    "branches and barriers": _module("""
  func.func @main(%i: tensor<i32>, %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", ?}, {"x", ?}]>})
      -> (tensor<8x8xf32>, tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z", ?}, {}]>}) {
    %0:2 = "stablehlo.case"(%i) ({
      %1 = stablehlo.sine %a : tensor<8x8xf32>
      stablehlo.return %1, %b : tensor<8x8xf32>, tensor<8x8xf32>
    }, {
      %1 = stablehlo.add %b, %b : tensor<8x8xf32>
      stablehlo.return %1, %a : tensor<8x8xf32>, tensor<8x8xf32>
    }) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {?}]>, <@mesh, [{}, {?}]>]>}
      : (tensor<i32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
    %2:2 = stablehlo.optimization_barrier %0#0, %0#1 : tensor<8x8xf32>, tensor<8x8xf32>
    %3 = sdy.propagation_barrier %2#0 allowed_direction=BACKWARD : tensor<8x8xf32>
    %4 = stablehlo.subtract %3, %2#0 : tensor<8x8xf32>
    return %4, %2#1 : tensor<8x8xf32>, tensor<8x8xf32>
  }"""),
    "manual along one axis, free along others": _module("""
  func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {?}]>}, %b: tensor<16x4xf32>)
      -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"z"}]>}) {
    %0 = stablehlo.negate %b : tensor<16x4xf32>
    %1 = sdy.manual_computation(%a, %0) in_shardings=[<@mesh, [{"x", ?}, {?}]>, <@mesh, [{}, {}]>]
        out_shardings=[<@mesh, [{"x", ?}, {?}]>] manual_axes={"z", "x"} (%u: tensor<2x16xf32>, %v: tensor<16x4xf32>) {
      %2 = stablehlo.dot_general %u, %v, contracting_dims = [1] x [0]
        : (tensor<2x16xf32>, tensor<16x4xf32>) -> tensor<2x4xf32>
      sdy.return %2 : tensor<2x4xf32>
    } : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.exponential %1 : tensor<8x4xf32>
    return %3 : tensor<8x4xf32>
  }"""),
    "a named computation": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}) -> tensor<8x8xf32> {
    %0 = stablehlo.tanh %a : tensor<8x8xf32>
    %1:2 = sdy.named_computation<"twice">(%0, %0) in_shardings=[<@mesh, [{?}, {"y", ?}]>, <@mesh, [{?}, {?}]>]
        (%u: tensor<8x8xf32>, %v: tensor<8x8xf32>) {
      %2 = stablehlo.add %u, %v : tensor<8x8xf32>
      %3 = stablehlo.transpose %v, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
      sdy.return %2, %3 : tensor<8x8xf32>, tensor<8x8xf32>
    } : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
    %4 = stablehlo.multiply %1#0, %1#1 : tensor<8x8xf32>
    return %4 : tensor<8x8xf32>
  }"""),
    "groups that meet": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<8x8xf32>,
      %c: tensor<8x8xf32>, %d: tensor<4x4xf32>, %e: tensor<4x4xf32>) -> (tensor<8x8xf32>, tensor<4x4xf32>) {
    sdy.sharding_group %a group_id = 7 : tensor<8x8xf32>
    sdy.sharding_group %b group_id = 7 : tensor<8x8xf32>
    sdy.sharding_group %d group_id = 3 : tensor<4x4xf32>
    sdy.sharding_group %e group_id = 3 : tensor<4x4xf32>
    sdy.sharding_group %d group_id = 3 : tensor<4x4xf32>
    %0 = stablehlo.add %b, %c : tensor<8x8xf32>
    sdy.sharding_group %0 group_id = 5 : tensor<8x8xf32>
    sdy.sharding_group %c group_id = 5 : tensor<8x8xf32>
    sdy.sharding_group %c group_id = 7 : tensor<8x8xf32>
    %1 = stablehlo.sine %d {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"y", ?}]>]>} : tensor<4x4xf32>
    %2 = stablehlo.add %1, %e : tensor<4x4xf32>
    return %0, %2 : tensor<8x8xf32>, tensor<4x4xf32>
  }"""),
    "a group that does not agree": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y"}]>}) -> tensor<8x8xf32> {
    sdy.sharding_group %a group_id = 0 : tensor<8x8xf32>
    sdy.sharding_group %b group_id = 0 : tensor<8x8xf32>
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }"""),
    "priorities": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}p1, {"y", ?}p0]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}p2, {"x", ?}], replicated={"z"}>},
      %c: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z"}p3, {}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", ?}p1, {?}]>}) {
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }"""),
    "closed, replicated and unreduced": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}], unreduced={"y"}>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y", ?}]>},
      %c: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {?}], replicated={"x"}>}) -> tensor<8x8xf32> {
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    %1 = stablehlo.add %0, %c : tensor<8x8xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{}, {}], unreduced={"z"}> : tensor<8x8xf32>
    %3 = stablehlo.abs %2 : tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }"""),
    "chains of constraints": _module("""
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
    %2 = stablehlo.sine %0 : tensor<8x8xf32>
    %3 = sdy.sharding_constraint %1 <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
    %4 = sdy.sharding_constraint %3 <@mesh, [{"y"}, {}]> : tensor<8x8xf32>
    %5 = stablehlo.multiply %0, %2 : tensor<8x8xf32>
    %6 = sdy.sharding_constraint %b <@mesh, [{"z"}, {}]> : tensor<8x8xf32>
    %7 = stablehlo.subtract %4, %5 : tensor<8x8xf32>
    return %7, %0, %b : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
  }"""),
    "functions called twice": _module("""
  func.func public @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>},
      %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = call @outer(%a) {mark = 1 : i32} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = call @outer(%b) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"y"}]>]>}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = call @inner(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = stablehlo.add %0, %2 : tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }
  func.func private @outer(%a: tensor<8x8xf32>) -> (tensor<8x8xf32>) {
    %0 = call @inner(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
  func.func private @inner(%a: tensor<8x8xf32>)
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z", ?}, {?}]>}) {
    %0 = stablehlo.sine %a : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
  func.func private @nobody(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
    return %a : tensor<8x8xf32>
  }"""),
    "constants that are shared": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x", ?}]>}, %s: tensor<f32>)
      -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.iota dim = 0 : tensor<8xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.constant dense<2.0> : tensor<8x8xf32>
    %3 = stablehlo.add %1, %2 : tensor<8x8xf32>
    %4 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
    sdy.sharding_group %3 group_id = 0 : tensor<8x8xf32>
    %5 = stablehlo.multiply %a, %3 : tensor<8x8xf32>
    %6 = stablehlo.multiply %b, %3 : tensor<8x8xf32>
    %7 = stablehlo.add %5, %4 : tensor<8x8xf32>
    %8 = stablehlo.add %6, %4 : tensor<8x8xf32>
    %9 = stablehlo.add %one, %s : tensor<f32>
    return %7, %8, %9 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
  }"""),
    "rules of the user, slices and sorts": _module("""
  func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {"y", ?}]>}, %i: tensor<i32>)
      -> (tensor<8x4xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x16xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %a, %c, %i, sizes = [8, 4] : (tensor<8x16xf32>, tensor<i32>, tensor<i32>)
      -> tensor<8x4xf32>
    %1 = stablehlo.custom_call @mine(%a) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j])
      {i=8, j=16} need_replication={j} blocked_propagation={j}, custom>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %2:2 = "stablehlo.sort"(%1, %a) <{dimension = 1 : i64}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<f32>, %s: tensor<f32>):
      %3 = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    }) : (tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>)
    %4 = stablehlo.concatenate %2#0, %a, dim = 0 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
    return %0, %2#0, %2#1, %4 : tensor<8x4xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x16xf32>
  }"""),
    "tokens, scalars, nothing at all, and the dead": _module("""
  func.func @main(%t: !stablehlo.token, %s: tensor<f32>, %e: tensor<0x4xf32>,
      %a: tensor<8x1xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>})
      -> (!stablehlo.token, tensor<f32>, tensor<0x4xf32>, tensor<8x1xf32>) {
    %0 = stablehlo.sine %a : tensor<8x1xf32>
    %1 = stablehlo.cosine %0 : tensor<8x1xf32>
    %2 = stablehlo.custom_call @aside(%0) {has_side_effect = true} : (tensor<8x1xf32>) -> tensor<8x1xf32>
    %3:2 = stablehlo.optimization_barrier %t, %s : !stablehlo.token, tensor<f32>
    %4 = stablehlo.negate %e : tensor<0x4xf32>
    %5 = stablehlo.add %a, %a : tensor<8x1xf32>
    return %3#0, %3#1, %4, %5 : !stablehlo.token, tensor<f32>, tensor<0x4xf32>, tensor<8x1xf32>
  }"""),
    "no mesh and no sharding": _module("""
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }""", ""),
    "one device and two orders of devices": _module("""
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>},
      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@other, [{?}, {"x", ?}]>}, %c: tensor<8x8xf32>)
      -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %0 = stablehlo.add %a, %b : tensor<8x8xf32>
    %1 = stablehlo.custom_call @send(%c) {sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>}
      : (tensor<8x8xf32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
    %3 = stablehlo.add %2, %a : tensor<8x8xf32>
    return %0, %3 : tensor<8x8xf32>, tensor<8x8xf32>
  }""", MESH + ' sdy.mesh @other = <["x"=4, "y"=2, "z"=2], device_ids=[1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, '
         '14, 15]> sdy.mesh @one = <[], device_ids=[0]>'),
}
