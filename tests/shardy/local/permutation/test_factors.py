"""Exchanges between neighbours: equal to the program on whole tensors, and no more bytes than jaxlib's passes send."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from tests.emit.devices import compile_text
from tests.shardy.local.bytes_moved import wire_bytes
from tests.shardy.local.meaning import (
    assert_equal_shards,
    assert_same_meaning,
    evaluate,
    evaluate_local,
    random_inputs,
)
from tests.shardy.local.modules import moving_module
from tests.shardy.peer import run_peer
from tests.slowness import some

from eggshard import shardy

NAME = "resolve-permutation-factors"
TO_COLLECTIVES = "func.func(sdy-reshard-to-collectives)"
GATHERING = f"{NAME}{{enable-halo-exchange=false}}"


def module(body, ins="16x8", out="16x8", ins_axes='[{"x"}, {"y"}]', out_axes=None, mesh='<["x"=4, "y"=2]>', more=""):
    return f"""sdy.mesh @mesh = {mesh}
func.func @main(%a: tensor<{ins}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {ins_axes}>}}{more})
    -> (tensor<{out}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {out_axes or ins_axes}>}}) {{
  %c = stablehlo.constant dense<3.0> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  {body.replace("SHARDED", f"sdy.sharding = #sdy.sharding_per_value<[<@mesh, {out_axes or ins_axes}>]>")}
  return %r : tensor<{out}xf32>
}}"""


def window(rows, edges, ins, out, extra="", initial="%c", combine="maximum"):
    return f"""%r = "stablehlo.reduce_window"(%a, {initial}) ({{
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      %s = stablehlo.{combine} %l, %m : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{window_dimensions = array<i64: {rows}, 1>, {extra} SHARDED,
      padding = dense<[{edges}, [0, 0]]> : tensor<2x2xi64>}}
    : (tensor<{ins}xf32>, tensor<f32>) -> tensor<{out}xf32>"""


def slice_(text, ins, out):
    return f"%r = stablehlo.slice %a {text} {{SHARDED}} : (tensor<{ins}xf32>) -> tensor<{out}xf32>"


def pad(low, high, interior, ins, out):
    text = f"low = [{low}, 0], high = [{high}, 0], interior = [{interior}, 0]"
    return f"%r = stablehlo.pad %a, %c, {text} {{SHARDED}} : (tensor<{ins}xf32>, tensor<f32>) -> tensor<{out}xf32>"


#: Name: the module, and the bytes that a device receives.
CASES = {
    "halo of one row": (module(window(3, "[1, 1]", "16x8", "16x8")), 2 * 4 * 4),
    "cumulative": (module(window(16, "[15, 0]", "16x8", "16x8")), 3 * 4 * 4 * 4),
    "strided window": (module(window(3, "[1, 0]", "16x8", "8x8", "window_strides = array<i64: 2, 1>,"), out="8x8"), 16),
    "dilated base": (module(window(2, "[0, 0]", "6x8", "10x8", "base_dilations = array<i64: 2, 1>,"), "6x8", "10x8"),
                     None),
    "slice across a tile": (module(slice_("[3:16, 0:8]", "16x8", "13x8"), out="13x8"), 3 * 4 * 4),
    "half": (module(slice_("[0:8, 0:8]", "16x8", "8x8"), out="8x8"), 2 * 2 * 4 * 4),
    "every third": (module(slice_("[1:15:3, 0:8]", "16x8", "5x8"), out="5x8"), None),
    "pad over several tiles": (module(pad(9, 0, 0, "4x8", "13x8"), "4x8", "13x8"), None),
    "negative pad": (module(pad(-5, -3, 0, "21x8", "13x8"), "21x8", "13x8"), None),
    "interior pad": (module(pad(2, -1, 2, "5x8", "14x8"), "5x8", "14x8"), None),
    "only padding": (module(pad(-7, 9, 0, "7x8", "9x8"), "7x8", "9x8"), 0),
    "reverse": (module("%r = stablehlo.reverse %a, dims = [0, 1] {SHARDED} : tensor<16x8xf32>"), 4 * 4 * 4),
    "uneven reverse": (module("%r = stablehlo.reverse %a, dims = [0, 1] {SHARDED} : tensor<13x7xf32>", "13x7", "13x7"),
                       4 * 4 * 4),
    "sub-axes and device ids": (module(
        slice_("[1:16, 1:8]", "16x8", "15x7"), out="15x7", ins_axes='[{"x":(2)2, "y"}, {"x":(1)2}]',
        mesh='<["x"=4, "y"=2], device_ids=[7, 3, 0, 1, 2, 6, 4, 5]>'), None),
    "roll": (module("""%s = stablehlo.slice %a [13:16, 0:8] {SHARDED} : (tensor<16x8xf32>) -> tensor<3x8xf32>
      %t = stablehlo.slice %a [0:13, 0:8] {SHARDED} : (tensor<16x8xf32>) -> tensor<13x8xf32>
      %r = stablehlo.concatenate %s, %t, dim = 0 {SHARDED}
        : (tensor<3x8xf32>, tensor<13x8xf32>) -> tensor<16x8xf32>"""), None),
    "operand sharded otherwise": (module(slice_("[3:16, 0:8]", "16x8", "13x8"), out="13x8", ins_axes='[{}, {"x"}]',
                                         out_axes='[{"x"}, {}]'), None),
    "stays where it is": (module(slice_("[0:13, 0:8]", "16x8", "13x8"), out="13x8"), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_written_modules(name):
    text, sent = CASES[name]
    ours = shardy.transform(text, NAME)
    assert_same_meaning(text, ours)
    assert_same_meaning(text, shardy.transform(text, GATHERING))
    if sent is not None:
        assert wire_bytes(ours) == sent
    assert ("manual_computation" in ours) == (name != "stays where it is")


def test_a_slice_in_place_is_left_alone():
    text = CASES["stays where it is"][0]
    assert shardy.transform(text, NAME) == shardy.transform(text, GATHERING) == shardy.transform(text, "")


@pytest.mark.parametrize("seed", some(range(50), 20))
def test_random_modules(seed):
    text = moving_module(seed)
    assert_same_meaning(text, shardy.transform(text, NAME))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50, 400))
def test_more_random_modules(seed):
    test_random_modules(seed)
    assert_same_meaning(moving_module(seed), shardy.transform(moving_module(seed), GATHERING))


def moves_between_equal_sizes(text):
    """jaxlib's rule for a pad that leaves a dimension's size as it is takes it for a dimension that nothing moves
    along, and the pass leaves it sharded."""
    lines = [line for line in text.splitlines() if "stablehlo.pad" in line]
    return any("low = [1" in line or ", 1" in line.partition("high")[0] for line in lines)


@pytest.mark.parametrize("seed", some(range(50), 20))
def test_no_more_bytes_than_jaxlib(seed):
    text = moving_module(seed, joined=False)
    theirs = run_peer(text, f"sdy-{NAME}{{enable-halo-exchange=true}},{TO_COLLECTIVES}")
    ours = run_peer(shardy.transform(text, NAME), TO_COLLECTIVES)
    assert not ours.failure
    if not theirs.failure:
        assert wire_bytes(ours.text) <= wire_bytes(theirs.text)


@pytest.mark.parametrize("seed", range(50))
def test_without_exchanges_it_writes_what_jaxlib_writes(seed):
    text = moving_module(seed, joined=False)
    ours, theirs = shardy.transform(text, GATHERING), run_peer(text, "sdy-" + GATHERING)
    if ours != theirs.text:  # ours leaves what moves nothing; theirs leaves pads by 1 at both ends, which do move
        assert ours.count("sdy.reshard") < theirs.text.count("sdy.reshard") or moves_between_equal_sizes(text)


LOCAL = [seed for seed in range(24) if '":(' not in moving_module(seed, whole=True)]


@pytest.mark.parametrize("seed", some(LOCAL, 8))
def test_the_way_to_local_shards(seed):
    """Through padding and jaxlib's localisation (which is wrong for sub-axes), run on all devices."""
    text = moving_module(seed, whole=True)
    collectives = run_peer(shardy.transform(text, NAME), TO_COLLECTIVES)
    even = shardy.transform(collectives.text, "pad-for-divisibility")
    assert_equal_shards(even)
    local = run_peer(even, "sdy-convert-global-to-local")
    assert not local.failure
    inputs = random_inputs(text, seed, nan=True)
    for want, got in zip(evaluate(text, inputs), evaluate_local(local.text, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 9, 24])
def test_on_xla(seed):
    text = moving_module(seed, whole=True)
    ours = shardy.transform(text, f"{NAME},pad-for-divisibility").replace("sdy.reshard", "sdy.sharding_constraint")
    ours = ours.replace("module {", "module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {")
    inputs = random_inputs(text, seed, nan=True)
    executable = compile_text(ours, 8)
    flat = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("all",))
    arrays = [jax.device_put(value, NamedSharding(flat, PartitionSpec())) for value in inputs]
    results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    for want, devices in zip(evaluate(text, inputs), results, strict=True):
        for got in devices:
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def gathers(text):
    ours = shardy.transform(text, NAME)
    assert "manual_axes" not in ours.replace('manual_axes={"x"}', "") and "sdy.reshard" in ours
    return ours


def convolution(groups, lhs, kernel, out, axes):
    return module(
        f"%r = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{pad = [[1, 1]]}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64, SHARDED}} "
        f": (tensor<{lhs}xf32>, tensor<{kernel}xf32>) -> tensor<{out}xf32>", lhs, out, *axes,
        more=f", %k: tensor<{kernel}xf32>")


def test_what_is_gathered():
    sharded_groups = convolution(2, "2x16x4", "3x2x4", "2x16x4", ['[{}, {"x"}, {"y"}]'])
    contracted = convolution(1, "2x16x4", "3x4x4", "2x16x4", ['[{}, {"x"}, {"y"}]', '[{}, {"x"}, {}]'])
    for text in (sharded_groups, contracted):
        assert_same_meaning(text, gathers(text))
    unreduced = module(slice_("[3:16, 0:8]", "16x8", "13x8"), out="13x8", ins_axes='[{"x"}, {}], unreduced={"y"}')
    assert 'unreduced={"y"}' in gathers(unreduced)


def test_groups_that_are_whole_are_exchanged():
    text = convolution(2, "2x16x4", "3x2x4", "2x16x4", ['[{}, {"x"}, {}]'])
    ours = shardy.transform(text, NAME)
    assert wire_bytes(ours) == 2 * 2 * 4 * 4
    assert_same_meaning(text, ours)


SCATTER = """
  %r = "stablehlo.select_and_scatter"(%a, %s, %z) ({
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      %p = stablehlo.compare GE, %l, %m : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }, {
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      %q = stablehlo.add %l, %m : tensor<f32>
      stablehlo.return %q : tensor<f32>
    }) {window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 2, 1>, SHARDED}
    : (tensor<16x8xf32>, tensor<8x8xf32>, tensor<f32>) -> tensor<16x8xf32>"""


def test_windows_that_scatter_and_ops_in_manual_computations_are_gathered():
    text = module(SCATTER, more=', %s: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}')
    assert_same_meaning(text, gathers(text))
    inside = gathers(module("""%r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {"y"}]>]
        out_shardings=[<@mesh, [{"x"}, {"y"}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {
      %s = stablehlo.reverse %b, dims = [0, 1] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>]>}
        : tensor<4x8xf32>
      sdy.return %s : tensor<4x8xf32>
    } : (tensor<16x8xf32>) -> tensor<16x8xf32>"""))
    assert inside.count("sdy.reshard") == 2


VARIADIC = """
  %i = stablehlo.iota dim = 0 {SHARDED} : tensor<16x8xf32>
  %w:2 = "stablehlo.reduce_window"(%a, %i, %c, %z) ({
    ^bb0(%l: tensor<f32>, %li: tensor<f32>, %m: tensor<f32>, %mi: tensor<f32>):
      %p = stablehlo.maximum %l, %m : tensor<f32>
      %q = stablehlo.add %li, %mi : tensor<f32>
      stablehlo.return %p, %q : tensor<f32>, tensor<f32>
    }) {window_dimensions = array<i64: 3, 1>, padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>,
        sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {"y"}]>, <@mesh, [{"x"}, {"y"}]>]>}
    : (tensor<16x8xf32>, tensor<16x8xf32>, tensor<f32>, tensor<f32>) -> (tensor<16x8xf32>, tensor<16x8xf32>)
  %r = stablehlo.add %w#0, %w#1 {SHARDED} : tensor<16x8xf32>"""


def test_windows_of_several_tensors():
    text = module(VARIADIC)
    ours = shardy.transform(text, NAME)
    assert_same_meaning(text, ours)
    assert wire_bytes(ours) == 2 * 2 * 4 * 4


@pytest.mark.parametrize("kind", ["i1", "ui8", "bf16", "f8E4M3FN", "complex<f32>"])
def test_other_elements(kind):
    text = module("%r = stablehlo.reverse %a, dims = [0, 1] {SHARDED} : tensor<13x7xf32>", "13x7", "13x7")
    text = text.replace("xf32", f"x{kind}")
    assert f"tensor<4x4x{kind}>" in shardy.transform(text, NAME)


def test_an_empty_tensor_is_not_cut():
    text = module(pad(5, 3, 0, "0x8", "8x8"), "0x8", "8x8", '[{}, {"y"}]',
                  '[{"x"}, {"y"}]')
    ours = shardy.transform(text, NAME)
    assert_same_meaning(text, ours)
    assert 'sdy.reshard' in ours and "manual_computation" not in ours


@pytest.mark.parametrize(("reduced", "left"), [('"y"', ""), ('"x", "y"', '"x"'), ('"x"', '"x"')])
def test_kernels_are_whole_along_their_taps_and_not_summed_up_there(reduced, left):
    text = module(f"""%v = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {{pad = [[2, 2]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64,
        sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{}}, {{}}]>]>}}
        : (tensor<2x3x4xf32>, tensor<4x4x2xf32>) -> tensor<2x4x2xf32>
      %r = sdy.all_reduce {{{reduced}}} %v out_sharding=<@mesh, [{{}}, {{}}, {{}}]> : tensor<2x4x2xf32>""",
                  "2x3x4", "2x4x2", '[{}, {}, {"x"}]', "[{}, {}, {}]",
                  more=', %k: tensor<4x4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}, {}]>}')
    ours = shardy.transform(text, NAME)
    assert 'sdy.reshard %arg1 <@mesh, [{}, {"x"}, {}]> : tensor<4x4x2xf32>' in ours
    assert f"sdy.all_reduce {{{left}}}" in ours if left else "sdy.all_reduce" not in ours


def test_an_update_that_may_lie_anywhere_is_made_whole():
    text = module("""%k = stablehlo.constant dense<2> : tensor<i32>
      %r = stablehlo.dynamic_update_slice %a, %u, %k, %k {SHARDED}
        : (tensor<16x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>""",
                  more=', %u: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}')
    ours = shardy.transform(text, NAME)
    assert 'sdy.reshard %arg1 <@mesh, [{}, {"y"}]> : tensor<4x8xf32>' in ours and ours.count("sdy.reshard") == 1
    assert_same_meaning(text, ours)


def test_regions_that_use_values_from_outside_are_gathered():
    text = module(window(3, "[1, 1]", "16x8", "16x8").replace("%l, %m", "%l, %c"))
    assert "manual_computation" not in shardy.transform(text, NAME)


def on_two_axes(text, sizes, out):
    body = f"%r = {text} {{SHARDED}} : (tensor<{sizes}xf32>, tensor<f32>) -> tensor<{out}xf32>"
    return module(body, sizes, out, '[{"x"}]', mesh='<["x"=2, "y"=2]>')


def test_jaxlib_leaves_a_pad_that_cuts_off_what_it_adds():
    """So localisation shifts every shard by itself."""
    text = on_two_axes("stablehlo.pad %a, %c, low = [1], high = [-1], interior = [0]", "8", "8")
    theirs = run_peer(text, f"sdy-{NAME},sdy-convert-global-to-local").text
    assert "low = [1], high = [-1]" in theirs and "collective_permute" not in theirs
    assert "collective_permute" in shardy.transform(text, NAME)


def test_jaxlib_numbers_permutes_of_uneven_reversals_by_position():
    """Device 1 is the neighbour of device 0 along y; along x it is device 2."""
    text = on_two_axes("stablehlo.reverse %a, dims = [0]", "7", "7").replace("(tensor<7xf32>, tensor<f32>) -> ", "")
    assert "source_target_pairs = dense<[[0, 1]]>" in run_peer(text, f"sdy-{NAME}").text
    assert "[0, 2]" in shardy.transform(text, NAME) and "[0, 1]" not in shardy.transform(text, NAME)
    assert_same_meaning(text, shardy.transform(text, NAME))


@pytest.mark.parametrize("text", [
    "module {}", "func.func @f(%t: !stablehlo.token, %a: tensor<f32>) -> tensor<f32> {\n return %a : tensor<f32>\n}",
    "func.func @f(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {\n %r = stablehlo.reverse %a, dims = [0] : tensor<0x3xf32>\n"
    " return %r : tensor<0x3xf32>\n}",
    """sdy.mesh @mesh = <[], device_ids=[2]>
    func.func @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> tensor<8xf32> {
      %r = stablehlo.reverse %a, dims = [0] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>]>} : tensor<8xf32>
      return %r : tensor<8xf32>
    }""",
])
def test_nothing_to_do(text):
    assert shardy.transform(text, f"{NAME},pad-for-divisibility") == shardy.transform(text, "")
