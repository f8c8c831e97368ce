"""Modules written by hand, small and odd: every clean-up pass is to take each of them as jaxlib's does."""

MESHES = """
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  sdy.mesh @ones = <["x"=4, "one"=1, "y"=2]>
  sdy.mesh @turned = <["x"=4, "y"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
"""

_BODIES = {
    "no mesh, no shardings": ("", """
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %a, %a : tensor<8xf32>
    return %0 : tensor<8xf32>
  }"""),
    "no functions": (MESHES, ""),
    "a declaration": (MESHES, """
  func.func private @elsewhere(tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}]>}) -> tensor<6xf32>
  func.func @main(%a: tensor<6xf32>) -> tensor<6xf32> {
    %0 = call @elsewhere(%a) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y", "x"}]>]>}
      : (tensor<6xf32>) -> tensor<6xf32>
    return %0 : tensor<6xf32>
  }"""),
    "tokens and scalars": (MESHES, """
  func.func @main(%t: !stablehlo.token, %s: tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, [], replicated={"x"}>})
      -> (!stablehlo.token, tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %0:2 = stablehlo.custom_call @f(%t, %s) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, <@mesh, []>]>}
      : (!stablehlo.token, tensor<f32>) -> (!stablehlo.token, tensor<f32>)
    return %0#0, %0#1 : !stablehlo.token, tensor<f32>
  }"""),
    "empty dimensions": (MESHES, """
  func.func @main(%a: tensor<0x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x", ?}p1]>})
      -> (tensor<0x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
    %0 = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {?}]>]>} : tensor<0x8xf32>
    return %0 : tensor<0x8xf32>
  }"""),
    "several results": (MESHES, """
  func.func @main(%a: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x", ?}]>})
      -> (tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, tensor<6xf32>) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0:2 = "stablehlo.reduce"(%a, %a, %z, %z) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<f32>, %s: tensor<f32>):
      %1 = stablehlo.add %p, %r : tensor<f32>
      %2 = stablehlo.maximum %q, %s : tensor<f32>
      "stablehlo.return"(%1, %2) : (tensor<f32>, tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>, <@mesh, [{"y", ?}]>]>}
      : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<f32>, tensor<f32>) -> (tensor<6xf32>, tensor<6xf32>)
    return %0#0, %0#1 : tensor<6xf32>, tensor<6xf32>
  }"""),
    "constants in regions": (MESHES, """
  func.func @main(%i: tensor<i32>, %a: tensor<8xf32>) -> tensor<8xf32> {
    %c = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0> : tensor<8xf32>
    %d = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0> : tensor<8xf32>
    %e = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>} dense<1.0> : tensor<8xf32>
    %s = sdy.constant dense<2.0> : tensor<f32>
    %t = sdy.constant dense<2.0> : tensor<f32>
    %p = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %q = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %0 = "stablehlo.case"(%i) ({
      %g = stablehlo.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0> : tensor<8xf32>
      %1 = stablehlo.add %g, %p : tensor<8xf32>
      stablehlo.return %1 : tensor<8xf32>
    }, {
      %g = stablehlo.constant dense<1.0> : tensor<8xf32>
      %h = stablehlo.constant dense<1.0> : tensor<8xf32>
      %1 = stablehlo.add %g, %h : tensor<8xf32>
      %2 = stablehlo.add %1, %q : tensor<8xf32>
      stablehlo.return %2 : tensor<8xf32>
    }) : (tensor<i32>) -> tensor<8xf32>
    %3 = stablehlo.add %c, %d : tensor<8xf32>
    %4 = stablehlo.add %3, %e : tensor<8xf32>
    %5 = stablehlo.add %4, %0 : tensor<8xf32>
    return %5 : tensor<8xf32>
  }"""),
    "edges of a loop": (MESHES, """
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %i = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<4> : tensor<i32>
    %0:2 = stablehlo.while(%j = %i, %b = %a) : tensor<i32>, tensor<8xf32>
      cond {
        %1 = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %1 = stablehlo.optimization_barrier %b : tensor<8xf32>
        %2 = sdy.data_flow_edge %1 sharding=<@mesh, [{"y", ?}]> : tensor<8xf32>
        stablehlo.return %j, %2 : tensor<i32>, tensor<8xf32>
      }
    %3 = sdy.data_flow_edge %0#0 : tensor<i32>
    %4 = sdy.data_flow_edge %0#1 sharding=<@mesh, [{"x":(2)2, ?}p0]> : tensor<8xf32>
    return %4 : tensor<8xf32>
  }"""),
    "edges of bodies": (MESHES, """
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<f32>) -> (tensor<8x8xf32>, tensor<f32>) {
    %0:2 = sdy.manual_computation(%a, %b) in_shardings=[<@mesh, [{"x", ?}, {?}]>, <@mesh, []>]
        out_shardings=[<@mesh, [{"x", ?}, {?}]>, <@mesh, []>] manual_axes={"x"} (%c: tensor<2x8xf32>, %d: tensor<f32>) {
      %1 = sdy.data_flow_edge %c sharding=<@mesh, [{"y"}, {?}]> : tensor<2x8xf32>
      %2 = sdy.named_computation<"inner">(%1) in_shardings=[<@mesh, [{?}, {?}]>] (%e: tensor<2x8xf32>) {
        %3 = sdy.data_flow_edge %e sharding=<@mesh, [{}, {"y", ?}]> : tensor<2x8xf32>
        sdy.return %3 : tensor<2x8xf32>
      } : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %4 = sdy.data_flow_edge %2 sharding=<@mesh, [{}, {"y"}]> : tensor<2x8xf32>
      sdy.return %4, %d : tensor<2x8xf32>, tensor<f32>
    } : (tensor<8x8xf32>, tensor<f32>) -> (tensor<8x8xf32>, tensor<f32>)
    %5 = sdy.data_flow_edge %0#0 sharding=<@mesh, [{"x"}, {"y"}]> : tensor<8x8xf32>
    %6 = sdy.data_flow_edge %0#1 sharding=<@mesh, []> : tensor<f32>
    return %5, %6 : tensor<8x8xf32>, tensor<f32>
  }"""),
    "constraints, reshards and groups": (MESHES, """
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
    sdy.sharding_group %a group_id=0 : tensor<8x8xf32>
    sdy.sharding_group %b group_id=0 : tensor<8x8xf32>
    %0 = sdy.sharding_constraint %a <@mesh, [{"x", ?}, {?}], replicated={"y"}> {note = 3 : i32} : tensor<8x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
    %2 = sdy.reshard %1 <@turned, [{}, {}]> : tensor<8x8xf32>
    sdy.sharding_group %2 group_id=1 : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }"""),
    "functions that call": (MESHES, """
  func.func private @inner(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}]>})
      -> (tensor<6xf32>, tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    %0 = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y", "x", ?}]>]>} : tensor<6xf32>
    return %a, %0 : tensor<6xf32>, tensor<6xf32>
  }
  func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x":(1)2, ?}p1]>}) -> tensor<6xf32> {
    %0:2 = call @inner(%a) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y", "x"}]>, <@mesh, [{"x", ?}]>]>}
      : (tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
    return %0#1 : tensor<6xf32>
  }"""),
    "axes of size one": (MESHES, """
  func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@ones, [{"one", "x", ?}p2]>, other.kept = 1 : i32})
      -> (tensor<8xf32> {other.kept = "too", sdy.sharding = #sdy.sharding<@ones, [{"one"}], replicated={"x"}>}) {
    %0 = sdy.manual_computation(%a) in_shardings=[<@ones, [{"one"}]>] out_shardings=[<@ones, [{"one"}]>]
        manual_axes={"one"} (%b: tensor<8xf32>) {
      sdy.return %b : tensor<8xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }"""),
    "meshes in full": ('  sdy.mesh @mesh = <["x"=2]>', """
  func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=4]>, [{"x", ?}]>},
                  %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<[], device_ids=[3]>, []>},
                  %c: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=2], device_ids=[1, 0]>, [{"x"}]>},
                  %d: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=2]>, [{}]>},
                  %e: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<[]>, [{?}]>}) -> tensor<8xf32> {
    %0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<mesh<["x"=4]>, [{"x"}]>]>} : tensor<8xf32>
    return %0 : tensor<8xf32>
  }"""),
    "single devices": (MESHES + '  sdy.mesh @alone = <[], device_ids=[5]>\n  sdy.mesh @empty = <[]>\n', """
  func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@alone, []>}) -> tensor<8xf32> {
    stablehlo.custom_call @effect() {has_side_effect = true, sdy.sharding = #sdy.sharding_per_value<[<@alone, []>]>}
      : () -> ()
    %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@empty, [{?}]>]>} : tensor<8xf32>
    return %0 : tensor<8xf32>
  }"""),
    "names that need quotes": ('  sdy.mesh @"a mesh" = <["an axis"=2]>\n  sdy.mesh @same = <["an axis"=2]>', """
  func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@"a mesh", [{"an axis", ?}]>})
      -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@same, [{"an axis"}]>}) {
    return %a : tensor<8xf32>
  }"""),
    "several functions, none of them main": (MESHES, """
  func.func @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}]>}) -> tensor<8xf32> {
    return %a : tensor<8xf32>
  }
  func.func @g(%a: tensor<8xf32>) -> tensor<8xf32> {
    return %a : tensor<8xf32>
  }"""),
}
WRITTEN = {name: f"module {{{meshes}{body}\n}}\n" for name, (meshes, body) in _BODIES.items()}
