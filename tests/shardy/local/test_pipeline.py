"""From annotations to devices by our passes alone: as the unsharded program, on simulated devices and on XLA's."""

from __future__ import annotations

import pytest
from tests.shardy.local.pipeline import JAX_PROGRAMS, lowered, to_device
from tests.shardy.local.programs import programs
from tests.shardy.local.test_random import KINDS
from tests.shardy.modules import random_module
from tests.shardy.running import assert_runs_equal

from eggshard import shardy
from eggshard.errors import ShardingError

ANNOTATED = programs("annotated")
#: Programs on which jaxlib's passes abort or fail.
HARD = (
    "roll", "pad and slice", "reduce-scattered product", "calls", "loop", "scan", "sizes that are not divisible",
    "argmax",
)
ON_XLA = ("roll", "pad and slice", "reduce-scattered product", "loop")


@pytest.mark.parametrize("name", HARD)
def test_programs_that_jaxlib_cannot_partition(name: str) -> None:
    text = lowered(*JAX_PROGRAMS[name])
    before, local = to_device(text)
    assert_runs_equal(before, local, text, xla=name in ON_XLA)


@pytest.mark.parametrize("name", ["roll", "reduce-scattered product", "loop"])
def test_reshards_of_the_whole_program(name: str) -> None:
    text = lowered(*JAX_PROGRAMS[name])
    before, local = to_device(text, "global")
    assert_runs_equal(before, local, text)


@pytest.mark.parametrize("name", ["branches", "roll", "pad and slice", "spatial convolution", "pooling"])
def test_annotated_programs(name: str) -> None:
    before, local = to_device(ANNOTATED[name])
    assert_runs_equal(before, local, ANNOTATED[name])


@pytest.mark.parametrize("kind", KINDS)
def test_generated_programs(kind: str) -> None:
    for seed, uneven in ((0, False), (1, True)):
        text = random_module(seed, **KINDS[kind], uneven=uneven)
        before, local = to_device(text)
        assert_runs_equal(before, local, text, seed)


#: A kernel's taps, the windows' number, stride and padding: without a factor for the taps, with one that is summed
#: up, and with one that is a minor part of the input's dimension.
TAPS = {"no factor": (3, 8, 1, [1, 1]), "more taps than windows": (6, 3, 1, [0, 0]), "strided": (2, 4, 2, [0, 0])}


@pytest.mark.parametrize("mode", ["shardy", "global"])
@pytest.mark.parametrize("name", TAPS)
def test_kernels_sharded_along_their_taps(name: str, mode: str) -> None:
    taps, windows, stride, padding = TAPS[name]
    text = f"""
      sdy.mesh @mesh = <["x"=2, "y"=3]>
      func.func @main(%a: tensor<4x8x6xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}, {{}}]>}},
                      %k: tensor<{taps}x6x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{}}, {{"x"}}]>}})
          -> (tensor<4x{windows}x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}, {{}}]>}}) {{
        %0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
          window = {{stride = [{stride}], pad = [{padding}]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
          : (tensor<4x8x6xf32>, tensor<{taps}x6x8xf32>) -> tensor<4x{windows}x8xf32>
        return %0 : tensor<4x{windows}x8xf32>
      }}"""
    before, local = to_device(text, mode)
    assert_runs_equal(before, local, text)


@pytest.mark.parametrize(("body", "start"), [("add", "2.5"), ("maximum", "0.5"), ("multiply", "3.0")])
def test_what_a_reduction_starts_from_enters_once(body: str, start: str) -> None:
    text = f"""
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{"y"}}]>}})
          -> tensor<4xf32> {{
        %0 = stablehlo.constant dense<{start}> : tensor<f32>
        %1 = stablehlo.reduce(%a init: %0) applies stablehlo.{body} across dimensions = [0]
          : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
        return %1 : tensor<4xf32>
      }}"""
    before, local = to_device(text, "global", "wire-bytes")
    assert "all_reduce" in local and "all_gather" not in local
    assert_runs_equal(before, local, text, xla=body != "maximum")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JAX_PROGRAMS if name not in HARD])
def test_more_programs_of_jax(name: str) -> None:
    text = lowered(*JAX_PROGRAMS[name])
    before, local = to_device(text)
    assert_runs_equal(before, local, text, xla=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_more_generated_programs(kind: str) -> None:
    for seed in range(1, 30):
        text = random_module(seed, **KINDS[kind])
        before, local = to_device(text)
        assert_runs_equal(before, local, text, seed)


SINGLE = """module {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  sdy.mesh @one = <[], device_ids=[3]>
  func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@one, []>})
      -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>} : tensor<8x16xf32>
    %1 = sdy.reshard %0 <@mesh, [{}, {}]> : tensor<8x16xf32>
    %2 = sdy.all_slice [{"x"}, {}] %1 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x16xf32>
    return %2 : tensor<8x16xf32>
  }
}"""


def test_what_is_to_lie_on_a_single_device_lies_on_all() -> None:
    resolved = shardy.transform(SINGLE, "resolve-single-device-sharding")
    assert "sdy.reshard" not in resolved and "<@one" not in resolved
    assert_runs_equal(resolved, shardy.transform(resolved, "convert-global-to-local"))


def test_effects_on_a_single_device_are_refused() -> None:
    call = "stablehlo.custom_call @print(%a) {has_side_effect = true}"
    text = SINGLE.replace("stablehlo.add %a, %a {", f"{call[:-1]}, ").replace("tensor<8x16xf32>\n    %1", (
        "(tensor<8x16xf32>) -> tensor<8x16xf32>\n    %1"))
    with pytest.raises(ShardingError, match="stablehlo.custom_call has effects and lies on a single device"):
        shardy.transform(text, "resolve-single-device-sharding")


def test_a_program_on_a_single_device_alone_keeps_no_shardings() -> None:
    text = SINGLE.replace('sdy.mesh @mesh = <["x"=4, "y"=2]>', "")
    text = text[: text.index("%1 = ")] + "return %0 : tensor<8x16xf32> } }"
    text = text.replace('#sdy.sharding<@mesh, [{"x"}, {}]>', "#sdy.sharding<@one, []>")
    assert "sdy.sharding" not in shardy.transform(text, "resolve-single-device-sharding")
