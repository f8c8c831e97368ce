"""Modules by hand: what decisions about reshards meet besides straight lines of pointwise ops and products."""

from __future__ import annotations

X8 = 'sdy.mesh @mesh = <["x"=8]>\n'
X4Y2 = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'


def _s(*dims: str) -> str:
    return "{sdy.sharding = #sdy.sharding<@mesh, [" + ", ".join("{" + d + "}" for d in dims) + "]>}"


ROWS, COLUMNS, WHOLE = _s('"x"', ""), _s("", '"x"'), _s("", "")

#: Two operands by columns outvote nothing: the one by rows should move.
SUM = X8 + f"""
func.func @main(%a: tensor<1024x1024xf32> {ROWS}, %b: tensor<1024x1024xf32> {COLUMNS},
                %e: tensor<1024x1024xf32> {COLUMNS}) -> (tensor<1024x1024xf32> {COLUMNS}) {{
  %0 = stablehlo.add %a, %b : tensor<1024x1024xf32>
  %1 = stablehlo.add %0, %e : tensor<1024x1024xf32>
  return %1 : tensor<1024x1024xf32>
}}"""

#: Rows outvote the contraction.
PRODUCT = X8 + f"""
func.func @main(%a: tensor<512x1024xf32> {ROWS}, %b: tensor<1024x768xf32> {ROWS}) -> (tensor<512x768xf32> {ROWS}) {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<512x1024xf32>, tensor<1024x768xf32>) -> tensor<512x768xf32>
  return %0 : tensor<512x768xf32>
}}"""

#: Partial sums may be added before they are reduced.
PRODUCTS = X8 + f"""
func.func @main(%x: tensor<1024x512xf32> {COLUMNS}, %a: tensor<512x1024xf32> {ROWS},
                %y: tensor<1024x512xf32> {COLUMNS}, %b: tensor<512x1024xf32> {ROWS})
    -> (tensor<1024x1024xf32> {WHOLE}) {{
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0]
    : (tensor<1024x512xf32>, tensor<512x1024xf32>) -> tensor<1024x1024xf32>
  %1 = stablehlo.dot_general %y, %b, contracting_dims = [1] x [0]
    : (tensor<1024x512xf32>, tensor<512x1024xf32>) -> tensor<1024x1024xf32>
  %2 = stablehlo.add %0, %1 : tensor<1024x1024xf32>
  return %2 : tensor<1024x1024xf32>
}}"""

BIAS = X8 + f"""
func.func @main(%x: tensor<64x128xf32> {COLUMNS}, %a: tensor<128x64xf32> {ROWS}, %b: tensor<64xf32>)
    -> (tensor<64x64xf32> {ROWS}) {{
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0]
    : (tensor<64x128xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<64xf32>) -> tensor<64x64xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}}"""

SOFTMAX = X4Y2 + f"""
func.func @main(%a: tensor<32x64xf32> {_s('"y"', '"x"')}) -> (tensor<32x64xf32> {_s('"y"', '"x"')}) {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<32x64xf32>, tensor<f32>) -> tensor<32xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<32xf32>) -> tensor<32x64xf32>
  %2 = stablehlo.subtract %a, %1 : tensor<32x64xf32>
  %3 = stablehlo.exponential %2 : tensor<32x64xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<32x64xf32>, tensor<f32>) -> tensor<32xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<32xf32>) -> tensor<32x64xf32>
  %6 = stablehlo.divide %3, %5 : tensor<32x64xf32>
  return %6 : tensor<32x64xf32>
}}"""

LOOP = X8 + f"""
func.func @main(%a: tensor<64x64xf32> {ROWS}, %w: tensor<64x64xf32> {COLUMNS}) -> (tensor<64x64xf32> {ROWS}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %many = stablehlo.constant dense<4> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<64x64xf32>
    attributes {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{{"x"}}, {{}}]>]>}}
    cond {{
      %2 = stablehlo.compare LT, %i, %many : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    }} do {{
      %2 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %3 = stablehlo.tanh %2 : tensor<64x64xf32>
      %4 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %4, %3 : tensor<i32>, tensor<64x64xf32>
    }}
  return %0#1 : tensor<64x64xf32>
}}"""

BRANCH = X8 + f"""
func.func @main(%p: tensor<i1>, %a: tensor<64x64xf32> {ROWS}, %b: tensor<64x64xf32> {COLUMNS})
    -> (tensor<64x64xf32> {COLUMNS}) {{
  %0 = "stablehlo.if"(%p) ({{
    %1 = stablehlo.add %a, %b : tensor<64x64xf32>
    stablehlo.return %1 : tensor<64x64xf32>
  }}, {{
    %1 = stablehlo.multiply %b, %b : tensor<64x64xf32>
    stablehlo.return %1 : tensor<64x64xf32>
  }}) {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{"x"}}]>]>}} : (tensor<i1>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}}"""

BARRIER = X8 + f"""
func.func @main(%a: tensor<64x64xf32> {ROWS}, %b: tensor<64x64xf32> {COLUMNS}) -> (tensor<64x64xf32> {COLUMNS}) {{
  %0:3 = stablehlo.optimization_barrier %a, %b, %a : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  %1 = stablehlo.add %0#0, %0#1 : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}}"""

SORTED = X8 + f"""
func.func @main(%a: tensor<64x64xf32> {ROWS}, %b: tensor<64x64xi32> {ROWS})
    -> (tensor<64x64xf32> {ROWS}, tensor<64x64xi32> {ROWS}) {{
  %0:2 = "stablehlo.sort"(%a, %b) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%x: tensor<f32>, %y: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>):
    %1 = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }}) : (tensor<64x64xf32>, tensor<64x64xi32>) -> (tensor<64x64xf32>, tensor<64x64xi32>)
  return %0#0, %0#1 : tensor<64x64xf32>, tensor<64x64xi32>
}}"""

COUNTED = X8 + f"""
func.func @main(%a: tensor<64x64xf32> {ROWS}) -> (tensor<64x64xf32> {ROWS}, tensor<f32>) {{
  %0 = stablehlo.iota dim = 0 : tensor<64x64xi32>
  %1 = stablehlo.convert %0 : (tensor<64x64xi32>) -> tensor<64x64xf32>
  %2 = stablehlo.multiply %a, %1 : tensor<64x64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<64x64xf32>, tensor<f32>) -> tensor<f32>
  %4 = stablehlo.add %3, %3 : tensor<f32>
  return %2, %4 : tensor<64x64xf32>, tensor<f32>
}}"""

SUB_AXES = X8 + f"""
func.func @main(%a: tensor<8x32xf32> {_s('"x"', "")}) -> (tensor<64x4xf32> {_s('"x":(1)4', '"x":(4)2')}) {{
  %0 = stablehlo.reshape %a : (tensor<8x32xf32>) -> tensor<64x4xf32>
  %1 = stablehlo.tanh %0 : tensor<64x4xf32>
  return %1 : tensor<64x4xf32>
}}"""

UNREDUCED = X4Y2 + """
func.func @main(%a: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>},
                %b: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}], unreduced={"x"}>})
    -> (tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) {
  %0 = stablehlo.add %a, %b : tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}"""

LOOKUP = X8 + f"""
func.func @main(%t: tensor<64x16xf32> {ROWS}, %i: tensor<8x1xi32>) -> (tensor<8x16xf32> {WHOLE}) {{
  %0 = "stablehlo.gather"(%t, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false,
    slice_sizes = array<i64: 1, 16>}}> : (tensor<64x16xf32>, tensor<8x1xi32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}}"""

CONVOLVED = X8 + f"""
func.func @main(%a: tensor<16x8x8x4xf32> {_s('"x"', "", "", "")}, %k: tensor<3x3x4x8xf32> {_s("", "", "", '"x"')})
    -> (tensor<16x8x8x8xf32> {_s('"x"', "", "", "")}) {{
  %0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<16x8x8x4xf32>, tensor<3x3x4x8xf32>) -> tensor<16x8x8x8xf32>
  return %0 : tensor<16x8x8x8xf32>
}}"""

#: Those that jaxlib's pass takes, and whose result can be compared with it.
COMPARED = {
    "sum": SUM, "product": PRODUCT, "products": PRODUCTS, "bias": BIAS, "softmax": SOFTMAX, "loop": LOOP,
    "branch": BRANCH, "barrier": BARRIER, "sorted": SORTED, "counted": COUNTED, "sub-axes": SUB_AXES,
    "unreduced": UNREDUCED, "lookup": LOOKUP, "convolved": CONVOLVED,
}
