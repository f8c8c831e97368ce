"""A law over all phases of spread-out operands: shards that begin at other holes are refused, or computed rightly."""

from __future__ import annotations

import itertools

import pytest
from tests.shardy.running import assert_runs_equal
from tests.slowness import some

from eggshard import shardy
from eggshard.errors import ShardingError

LOCAL = "convert-global-to-local"
LOWS, HIGHS, HOLES = range(-1, 3), range(-1, 3), range(3)
SIZES = {2: (2, 4), 3: (3,)}


def module(devices: int, n: int, out: int, body: str, spatial: bool = False) -> str:
    """A module of one op from n elements to others; spatial: with a batch and a feature dimension around them."""
    cut = '[{}, {"x"}, {}]' if spatial else '[{"x"}]'
    a, b = (f"tensor<1x{size}x1xi32>" if spatial else f"tensor<{size}xi32>" for size in (n, out))
    stated = f"sdy.sharding = #sdy.sharding_per_value<[<@m, {cut}>]>"
    lies = f"{{sdy.sharding = #sdy.sharding<@m, {cut}>}}"
    return f"""sdy.mesh @m = <["x"={devices}]>
func.func @main(%a: {a} {lies}) -> ({b} {lies}) {{
  %c = stablehlo.constant dense<9> : tensor<i32>
  {body.replace("STATED", stated)}
  return %r : {b}
}}"""


def pad(devices: int, n: int, low: int, high: int, holes: int) -> str | None:
    out = n + (n - 1) * holes + low + high
    body = f"""%r = stablehlo.pad %a, %c, low = [{low}], high = [{high}], interior = [{holes}] {{STATED}}
    : (tensor<{n}xi32>, tensor<i32>) -> tensor<{out}xi32>"""
    return module(devices, n, out, body) if out > 0 and out % devices == 0 else None


def window(devices: int, n: int, low: int, high: int, holes: int, size: int, stride: int, dilation: int) -> str | None:
    span = (size - 1) * dilation + 1
    out = (n + (n - 1) * holes + low + high - span) // stride + 1
    if min(low, high) < 0 or out <= 0 or out % devices:
        return None
    return module(devices, n, out, f"""%r = "stablehlo.reduce_window"(%a, %c) ({{
    ^bb0(%l: tensor<i32>, %m: tensor<i32>):
      %s = stablehlo.add %l, %m : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }}) {{window_dimensions = array<i64: {size}>, window_strides = array<i64: {stride}>,
      window_dilations = array<i64: {dilation}>, base_dilations = array<i64: {holes + 1}>,
      padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>, STATED}}
    : (tensor<{n}xi32>, tensor<i32>) -> tensor<{out}xi32>""")


def convolution(devices: int, n: int, low: int, high: int, holes: int, taps: int, stride: int, dilation: int
                ) -> str | None:
    span = (taps - 1) * dilation + 1
    out = (n + (n - 1) * holes + low + high - span) // stride + 1
    if out <= 0 or out % devices:
        return None
    kernel = "[" + ", ".join(f"[[{t + 2}]]" for t in range(taps)) + "]"
    return module(devices, n, out, f"""%k = stablehlo.constant dense<{kernel}> : tensor<{taps}x1x1xi32>
  %r = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {{stride = [{stride}], pad = [[{low}, {high}]], lhs_dilate = [{holes + 1}], rhs_dilate = [{dilation}]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64, STATED}}
    : (tensor<1x{n}x1xi32>, tensor<{taps}x1x1xi32>) -> tensor<1x{out}x1xi32>""", spatial=True)


def right_or_refused(text: str) -> bool:
    """Whether it is computed on shards, and then rightly."""
    try:
        local = shardy.transform(text, LOCAL)
    except ShardingError:
        return False
    assert_runs_equal(text, local, nans=(False,))
    return True


def cases() -> list[tuple[int, int, int, int, int]]:
    sizes = [(devices, n) for devices, listed in SIZES.items() for n in listed]
    return [(*size, *edges) for size in sizes for edges in itertools.product(LOWS, HIGHS, HOLES)]


def test_pads_of_all_phases() -> None:
    texts = [text for case in cases() if (text := pad(*case))]
    assert sum(map(right_or_refused, texts)) > 10


@pytest.mark.parametrize(("size", "stride", "dilation"), some([(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (2, 1, 2),
                                                              (3, 3, 1), (2, 3, 2)], 1, rows=True))
def test_windows_of_all_phases(size: int, stride: int, dilation: int) -> None:
    for kind in (window, convolution):
        texts = [text for case in cases() if (text := kind(*case, size, stride, dilation))]
        assert texts
        for text in texts:
            right_or_refused(text)
