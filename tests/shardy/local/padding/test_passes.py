"""Padding for equal shards: the program on whole tensors stays what it was, whatever the padding holds."""

import numpy as np
import pytest
from tests.shardy.local.bytes_moved import wire_bytes
from tests.shardy.local.meaning import (
    assert_equal_shards,
    assert_same_meaning,
    evaluate,
    evaluate_local,
    random_inputs,
)
from tests.shardy.local.padding_modules import padding_module
from tests.shardy.peer import run_peer
from tests.slowness import some

from eggshard import shardy
from eggshard.errors import ShardingError

NAME = "pad-for-divisibility"
EXPLICIT = (
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true}),"
    "sdy-resolve-permutation-factors{enable-halo-exchange=false},func.func(sdy-reshard-to-collectives)"
)
MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'


def program(sizes, body, result):
    """Arguments %a, %b, ... of these shapes are sharded on dimension 0 by x, on dimension 1 by y, as %A, %B, ..."""
    names = [chr(ord("a") + i) for i in range(len(sizes))]
    lines = []
    for name, size in zip(names, sizes, strict=True):
        axes = ['{"x"}', '{"y"}', "{}", "{}", "{}"][: size.count("x")]
        lines.append(f"%{name.upper()} = sdy.reshard %{name} <@mesh, [{', '.join(axes)}]> : tensor<{size}>")
    whole = ", ".join(["{}"] * result.count("x"))
    arguments = ", ".join(f"%{name}: tensor<{size}>" for name, size in zip(names, sizes, strict=True))
    for where, dims in {"XY": '{"x"}, {"y"}', "X_": '{"x"}, {}', "Y_": '{"y"}, {}', "X": '{"x"}', "Y": '{"y"}',
                        "XY_": '{"x"}, {"y"}, {}', "XY__": '{"x"}, {"y"}, {}, {}'}.items():
        body = body.replace(f"<{where}>", f"sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{dims}]>]>")
    inner = "\n  ".join(lines)
    return f"""{MESH}func.func @main({arguments}) -> tensor<{result}> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  {inner}
  {body}
  %out = sdy.reshard %r <@mesh, [{whole}]> : tensor<{result}>
  return %out : tensor<{result}>
}}"""


def region(text):
    return f"""({{
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      {text} %l, %m : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }})"""


CASES = {
    "contraction with NaN in the padding": program(["6x5xf32", "5x7xf32"], """
      %0 = stablehlo.log %A {<XY>} : tensor<6x5xf32>
      %1 = stablehlo.divide %B, %B {<XY>} : tensor<5x7xf32>
      %r = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] {<XY>}
        : (tensor<6x5xf32>, tensor<5x7xf32>) -> tensor<6x7xf32>""", "6x7xf32"),
    "convolution of uneven batch and features": program(["3x5x6x6xf32", "7x5x3x3xf32"], """
      %r = stablehlo.convolution(%A, %B) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, <XY__>}
        : (tensor<3x5x6x6xf32>, tensor<7x5x3x3xf32>) -> tensor<3x7x6x6xf32>""", "3x7x6x6xf32"),
    "grouped convolution": program(["3x6x6xf32", "9x2x3xf32"], """
      %r = stablehlo.convolution(%A, %B) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
        window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, <XY_>}
        : (tensor<3x6x6xf32>, tensor<9x2x3xf32>) -> tensor<3x9x6xf32>""", "3x9x6xf32"),
    "size one, sharded and broadcast": program(["1x5xf32"], """
      %r = stablehlo.broadcast_in_dim %A, dims = [0, 1] {<XY>} : (tensor<1x5xf32>) -> tensor<6x5xf32>""", "6x5xf32"),
    "reshape of equal shards into unequal ones": program(["12xf32"], """
      %0 = stablehlo.cosine %A {<X>} : tensor<12xf32>
      %r = stablehlo.reshape %0 {<X_>} : (tensor<12xf32>) -> tensor<6x2xf32>""", "6x2xf32"),
    "reshape of unequal shards into equal ones": program(["6x2xf32"], """
      %0 = sdy.reshard %A <@mesh, [{"x"}, {}]> : tensor<6x2xf32>
      %r = stablehlo.reshape %0 {<X>} : (tensor<6x2xf32>) -> tensor<12xf32>""", "12xf32"),
    "product": program(["5x3xf32"], """
      %r = stablehlo.reduce(%A init: %one) applies stablehlo.multiply across dimensions = [0] {<Y>}
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>""", "3xf32"),
    "reduction by an op of its own": program(["5x3xf32"], """
      %r = "stablehlo.reduce"(%A, %zero) ({
        ^bb0(%l: tensor<f32>, %m: tensor<f32>):
          %p = stablehlo.abs %l : tensor<f32>
          %q = stablehlo.abs %m : tensor<f32>
          %s = stablehlo.maximum %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }) {dimensions = array<i64: 0>, <Y>} : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>""", "3xf32"),
    "truth values": program(["5x3xf32"], """
      %0 = stablehlo.compare GT, %A, %A {<XY>} : (tensor<5x3xf32>, tensor<5x3xf32>) -> tensor<5x3xi1>
      %1 = stablehlo.not %0 {<XY>} : tensor<5x3xi1>
      %t = stablehlo.constant dense<true> : tensor<i1>
      %2 = stablehlo.reduce(%1 init: %t) applies stablehlo.and across dimensions = [0] {<Y>}
        : (tensor<5x3xi1>, tensor<i1>) -> tensor<3xi1>
      %r = stablehlo.convert %2 {<Y>} : (tensor<3xi1>) -> tensor<3xf32>""", "3xf32"),
    "complex and narrow floats": program(["5x3xf32"], """
      %0 = stablehlo.complex %A, %A {<XY>} : tensor<5x3xcomplex<f32>>
      %z = stablehlo.constant dense<(1.0, 2.0)> : tensor<complex<f32>>
      %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] {<Y>}
        : (tensor<5x3xcomplex<f32>>, tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
      %2 = stablehlo.real %1 {<Y>} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
      %3 = stablehlo.convert %2 {<Y>} : (tensor<3xf32>) -> tensor<3xbf16>
      %4 = stablehlo.reverse %3, dims = [0] {<Y>} : tensor<3xbf16>
      %r = stablehlo.convert %4 {<Y>} : (tensor<3xbf16>) -> tensor<3xf32>""", "3xf32"),
    "gather in batches": program(["3x5x2xf32"], """
      %i = stablehlo.constant dense<[[[0], [7]], [[-2], [4]], [[1], [5]]]> : tensor<3x2x1xi32>
      %r = "stablehlo.gather"(%A, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2],
        collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0],
        start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1, 2>, indices_are_sorted = false,
        <XY_>} : (tensor<3x5x2xf32>, tensor<3x2x1xi32>) -> tensor<3x2x2xf32>""", "3x2x2xf32"),
    "gather with indices of one number": program(["5x3xf32"], """
      %i = stablehlo.constant dense<[0, 5, 9, -1, 4]> : tensor<5xi32>
      %I = sdy.reshard %i <@mesh, [{"x"}]> : tensor<5xi32>
      %r = "stablehlo.gather"(%A, %I) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>,
        indices_are_sorted = false, <XY>} : (tensor<5x3xf32>, tensor<5xi32>) -> tensor<5x3xf32>""", "5x3xf32"),
    "scatter of windows": program(["5x3xf32", "3x2x3xf32"], f"""
      %i = stablehlo.constant dense<[[0], [4], [2]]> : tensor<3x1xi32>
      %I = sdy.reshard %i <@mesh, [{{"x"}}, {{}}]> : tensor<3x1xi32>
      %r = "stablehlo.scatter"(%A, %I, %B) {region("%s = stablehlo.add")} {{scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
        indices_are_sorted = false, unique_indices = false, <XY>}}
        : (tensor<5x3xf32>, tensor<3x1xi32>, tensor<3x2x3xf32>) -> tensor<5x3xf32>""", "5x3xf32"),
    "scatter with narrow indices": program(["5x3xf32", "3x3xf32"], f"""
      %i = stablehlo.constant dense<[[0], [7], [4]]> : tensor<3x1xui8>
      %I = sdy.reshard %i <@mesh, [{{"x"}}, {{}}]> : tensor<3x1xui8>
      %r = "stablehlo.scatter"(%A, %I, %B) {region("%s = stablehlo.maximum")} {{scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
        index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false, <XY>}}
        : (tensor<5x3xf32>, tensor<3x1xui8>, tensor<3x3xf32>) -> tensor<5x3xf32>""", "5x3xf32"),
    "windows of single elements": program(["5x3x4xf32"], f"""
      %r = "stablehlo.reduce_window"(%A, %zero) {region("%s = stablehlo.add")} {{
        window_dimensions = array<i64: 1, 1, 3>, padding = dense<[[0, 0], [0, 0], [2, 0]]> : tensor<3x2xi64>, <XY_>}}
        : (tensor<5x3x4xf32>, tensor<f32>) -> tensor<5x3x4xf32>""", "5x3x4xf32"),
    "a partial sum, scattered": program(["5x4xf32"], """
      %0 = stablehlo.reshape %A {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}], unreduced={"x"}>]>}
        : (tensor<5x4xf32>) -> tensor<5x4xf32>
      %r = sdy.reduce_scatter [{"x"}, {}] %0 out_sharding=<@mesh, [{"x"}, {}]> : tensor<5x4xf32>""", "5x4xf32"),
    "three branches": program(["5x3xf32"], """
      %k = stablehlo.constant dense<1> : tensor<i32>
      %r = "stablehlo.case"(%k) ({
        stablehlo.return %A : tensor<5x3xf32>
      }, {
        %0 = stablehlo.negate %a : tensor<5x3xf32>
        stablehlo.return %0 : tensor<5x3xf32>
      }, {
        %0 = stablehlo.add %A, %A {<X_>} : tensor<5x3xf32>
        stablehlo.return %0 : tensor<5x3xf32>
      }) {<XY>} : (tensor<i32>) -> tensor<5x3xf32>""", "5x3xf32"),
    "an op of two results": program(["5x3xf32", "5x3xf32"], """
      %0:2 = "stablehlo.sort"(%A, %B) ({
        ^bb0(%l: tensor<f32>, %m: tensor<f32>, %n: tensor<f32>, %o: tensor<f32>):
          %p = stablehlo.compare LT, %l, %m, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }) {dimension = 1 : i64, is_stable = true,
            sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, <@mesh, [{"y"}, {}]>]>}
        : (tensor<5x3xf32>, tensor<5x3xf32>) -> (tensor<5x3xf32>, tensor<5x3xf32>)
      %r = stablehlo.subtract %0#0, %0#1 {<X_>} : tensor<5x3xf32>""", "5x3xf32"),
}


#: Ops that the interpreter does not have, and what of them must be in the result.
NOT_EVALUATED = {
    "tensor<8xf32>, tensor<8xf32>) -> tensor<f32>": program(["5xf32", "5xf32"], """
      %0 = stablehlo.dot %A, %B : (tensor<5xf32>, tensor<5xf32>) -> tensor<f32>
      %r = stablehlo.reshape %0 {<X>} : (tensor<f32>) -> tensor<1xf32>""", "1xf32"),
    "tensor<4x4x4xf32>": program(["3x4x4xf32"], """
      %t = stablehlo.iota dim = 1 : tensor<3x4x4xi32>
      %u = stablehlo.iota dim = 2 : tensor<3x4x4xi32>
      %d = stablehlo.compare EQ, %t, %u : (tensor<3x4x4xi32>, tensor<3x4x4xi32>) -> tensor<3x4x4xi1>
      %w = stablehlo.convert %d : (tensor<3x4x4xi1>) -> tensor<3x4x4xf32>
      %0 = stablehlo.select %d, %w, %w {<XY_>} : tensor<3x4x4xi1>, tensor<3x4x4xf32>
      %r = stablehlo.cholesky %0, lower = true {<XY_>} : tensor<3x4x4xf32>""", "3x4x4xf32"),
}


@pytest.mark.parametrize("kept", NOT_EVALUATED)
def test_written_modules_that_are_only_read(kept):
    padded = shardy.transform(NOT_EVALUATED[kept], NAME)
    assert_equal_shards(padded)
    assert any(kept in line for line in padded.splitlines() if "stablehlo.dot" in line or "cholesky" in line)


@pytest.mark.parametrize("name", CASES)
def test_written_modules(name):
    padded = shardy.transform(CASES[name], NAME)
    assert_equal_shards(padded)
    assert_same_meaning(CASES[name], padded)
    assert shardy.transform(padded, NAME) == padded


@pytest.mark.parametrize("name", [name for name in CASES if "reshape" in name])
def test_shards_are_reshaped_where_they_are(name):
    padded = shardy.transform(run_peer(CASES[name], "func.func(sdy-reshard-to-collectives)").text, NAME)
    assert_local_results(CASES[name], localised(padded))


@pytest.mark.parametrize("seed", some(range(60), 25))
def test_random_modules(seed):
    assert_padding_keeps_the_meaning(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 400))
def test_more_random_modules(seed):
    assert_padding_keeps_the_meaning(seed)


def assert_padding_keeps_the_meaning(seed):
    text = padding_module(seed, loose=seed % 2 == 0)
    padded = shardy.transform(text, NAME)
    assert_equal_shards(padded)
    assert_same_meaning(text, padded, seed)


def assert_local_results(text, local):
    inputs = random_inputs(text, 1, nan=True)
    for want, got in zip(evaluate(text, inputs), evaluate_local(local, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def localised(text):
    found = run_peer(text, "sdy-convert-global-to-local")
    return "" if found.failure or "unrealized" in found.text else found.text


@pytest.mark.parametrize("seed", some([s for s in range(100, 200) if '":(' not in padding_module(s, True, 1)][:50], 20))
def test_with_jaxlib_before_and_behind(seed):
    """Where jaxlib's padding leads to local shards that compute the same, ours does, and sends no more."""
    text = padding_module(seed, loose=True, ops=1)
    explicit = run_peer(text, EXPLICIT).text
    ours = shardy.transform(explicit, NAME)
    assert_same_meaning(text, ours)
    theirs = run_peer(explicit, "func.func(sdy-pad-for-divisibility)")
    local = "" if theirs.failure or "unrealized" in theirs.text else localised(theirs.text)
    if not local:
        return
    try:
        assert_local_results(text, local)
    except AssertionError:
        return
    assert_local_results(text, localised(ours))
    assert wire_bytes(ours) <= wire_bytes(theirs.text)


# -- what the padding holds -------------------------------------------------------------------------------------------


def test_zeros_that_are_there_are_not_written_again():
    padded = shardy.transform(program(["5x3xf32", "5x3xf32"], """
      %0 = stablehlo.add %A, %B {<XY>} : tensor<5x3xf32>
      %1 = stablehlo.tanh %0 {<XY>} : tensor<5x3xf32>
      %r = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] {<Y>}
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>""", "3xf32"), NAME)
    assert "stablehlo.select" not in padded


def test_one_mask_for_two_uses_in_a_block():
    padded = shardy.transform(program(["5x3xf32"], """
      %1 = stablehlo.cosine %A {<XY>} : tensor<5x3xf32>
      %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] {<Y>}
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
      %3 = stablehlo.reduce(%1 init: %one) applies stablehlo.add across dimensions = [0] {<Y>}
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
      %r = stablehlo.add %2, %3 {<Y>} : tensor<3xf32>""", "3xf32"), NAME)
    assert padded.count("stablehlo.select") == 1


def test_a_splat_is_as_large_as_its_shards_ask_for():
    padded = shardy.transform(program(["5x3xf32"], """
      %c = stablehlo.constant {<XY>} dense<2.5> : tensor<5x3xf32>
      %r = stablehlo.add %A, %c {<XY>} : tensor<5x3xf32>""", "5x3xf32"), NAME)
    assert "dense<2.500000e+00> : tensor<8x4xf32>" in padded


def test_tiles_that_change_size_are_exchanged():
    text = f"""{MESH}func.func @main(%a: tensor<10x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{}}]>}})
        -> (tensor<10x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{}}]>}}) {{
      %0 = sdy.all_slice [{{"x"}}, {{}}] %a out_sharding=<@mesh, [{{"y", "x"}}, {{}}]> : tensor<10x4xf32>
      %1 = stablehlo.cosine %0 {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"y", "x"}}, {{}}]>]>}}
        : tensor<10x4xf32>
      %2 = sdy.all_gather [{{"x"}}, {{}}] %1 out_sharding=<@mesh, [{{"y"}}, {{}}]> : tensor<10x4xf32>
      return %2 : tensor<10x4xf32>
    }}"""
    padded = shardy.transform(text, NAME)
    assert_equal_shards(padded)
    assert_same_meaning(text, padded)
    assert padded.count("sdy.manual_computation") == 2 and padded.count("collective_permute") == 2


def test_jaxlib_multiplies_with_the_zeros_of_the_padding():
    text = MESH + """func.func @main(%a: tensor<6xf32>) -> tensor<f32> {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %0 = sdy.all_slice [{"x"}] %a out_sharding=<@mesh, [{"x"}]> : tensor<6xf32>
      %1 = stablehlo.reduce(%0 init: %one) applies stablehlo.multiply across dimensions = [0]
        : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }"""
    inputs = [np.full(6, 2, np.float32)]
    assert evaluate(shardy.transform(text, NAME), inputs)[0] == 64
    assert evaluate(run_peer(text, "func.func(sdy-pad-for-divisibility)").text, inputs)[0] == 0


# -- functions, calls, computations on shards -------------------------------------------------------------------------


def test_calls_take_tensors_of_their_own_size():
    text = program(["5x3xf32"], """
      %0 = func.call @turned(%A) {<X_>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
      %r = stablehlo.negate %0 {<XY>} : tensor<3x5xf32>""", "3x5xf32") + """
    func.func private @turned(%a: tensor<5x3xf32>) -> tensor<3x5xf32> {
      %0 = sdy.reshard %a <@mesh, [{"y"}, {}]> : tensor<5x3xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
      return %1 : tensor<3x5xf32>
    }"""
    padded = shardy.transform(text, NAME)
    assert_equal_shards(padded)
    assert_same_meaning(text, padded)


UNEVEN = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'


@pytest.mark.parametrize("text, named", [
    (f"func.func @main(%a: tensor<7x8xf32> {UNEVEN}) {{\n return\n}}", "argument 0 of @main"),
    (f"func.func @f(%a: tensor<7x8xf32>) -> (tensor<7x8xf32> {UNEVEN}) {{\n return %a : tensor<7x8xf32>\n}}",
     "result 0 of @f"),
])
def test_arguments_and_results_have_equal_shards(text, named):
    with pytest.raises(ShardingError, match=f"{named} .* run update-non-divisible-input-output-shardings first"):
        shardy.transform(MESH + text, NAME)


def test_arguments_of_manual_computations_have_equal_shards():
    text = program(["6x5xf32"], """
      %r = sdy.manual_computation(%A) in_shardings=[<@mesh, [{"y"}, {"x"}]>] out_shardings=[<@mesh, [{"y"}, {"x"}]>]
          manual_axes={"y"} (%b: tensor<3x5xf32>) {
        sdy.return %b : tensor<3x5xf32>
      } : (tensor<6x5xf32>) -> tensor<6x5xf32>""", "6x5xf32")
    with pytest.raises(ShardingError, match="argument 0 of sdy.manual_computation of shape"):
        shardy.transform(text, NAME)


def test_padding_inside_a_manual_computation():
    text = program(["6x5xf32"], """
      %r = sdy.manual_computation(%A) in_shardings=[<@mesh, [{"y"}, {}]>] out_shardings=[<@mesh, [{"y"}, {}]>]
          manual_axes={"y"} (%b: tensor<3x5xf32>) {
        %0 = sdy.reshard %b <@mesh, [{"x"}, {}]> : tensor<3x5xf32>
        %1 = stablehlo.cosine %0 {<X_>} : tensor<3x5xf32>
        %2 = sdy.reshard %1 <@mesh, [{}, {}]> : tensor<3x5xf32>
        sdy.return %2 : tensor<3x5xf32>
      } : (tensor<6x5xf32>) -> tensor<6x5xf32>""", "6x5xf32")
    padded = shardy.transform(text, NAME)
    assert "stablehlo.cosine" in padded and ": tensor<4x5xf32>" in padded


OPAQUE = {
    "stablehlo.custom_call": '%r = stablehlo.custom_call @own(%A) {<XY>} : (tensor<5x3xf32>) -> tensor<5x3xf32>',
    "stablehlo.rng_bit_generator": """%s = stablehlo.constant dense<[1, 2]> : tensor<2xui64>
      %t, %u = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY {sdy.sharding =
        #sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, [{"x"}, {"y"}]>]>}
        : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5x3xui32>)
      %r = stablehlo.convert %u {<XY>} : (tensor<5x3xui32>) -> tensor<5x3xf32>""",
    "stablehlo.after_all": """%t = stablehlo.create_token : !stablehlo.token
      %u = stablehlo.after_all %t : !stablehlo.token
      %k = stablehlo.outfeed"(%A, %u)""".replace('outfeed"', '"outfeed"').replace(
          '%k = stablehlo."outfeed"(%A, %u)', '%k = "stablehlo.outfeed"(%A, %u) {outfeed_config = ""} '
          ": (tensor<5x3xf32>, !stablehlo.token) -> !stablehlo.token\n"
          "      %r = stablehlo.negate %A {<XY>} : tensor<5x3xf32>"),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_is_not_understood_takes_and_gives_its_own_size(name):
    padded = shardy.transform(program(["5x3xf32"], OPAQUE[name], "5x3xf32"), NAME)
    assert_equal_shards(padded)
    kept = next(line for line in padded.splitlines() if name in line or "outfeed" in line and "after" in name)
    assert "8x4" not in kept


@pytest.mark.parametrize("text", [
    "module {}",
    "func.func @f(%a: tensor<0x3xf32>, %b: tensor<f32>) -> tensor<0x3xf32> {\n return %a : tensor<0x3xf32>\n}",
    "func.func private @outside(tensor<5xf32>)",
])
def test_nothing_to_do(text):
    assert shardy.transform(text, NAME) == shardy.transform(text, "")
