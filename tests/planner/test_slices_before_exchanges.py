"""Bytes of programs that take parts of a field, repeat or join them: what is not needed is not exchanged."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard
from eggshard.costmodel import WireBytes
from eggshard.ops.evaluate import evaluate_region

ON_TILES = '[{"y"}, {"x"}]'


def plan(text: str) -> eggshard.Plan:
    found = eggshard.optimize(text, cost_model=WireBytes())
    types = found.program.input_types
    arrays = [np.arange(t.elements, dtype=np.float32).reshape(t.shape) + 0.5 * i for i, t in enumerate(types)]
    for made, wanted in zip(found.run(*arrays), evaluate_region(found.program.region, arrays), strict=True):
        np.testing.assert_array_equal(made, wanted)
    return found


def around(field: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int], before: int, after: int) -> str:
    """Rows and columns of a field on 4x4 devices, wrapped around along the columns."""
    (y, x), (a, b), (c, d) = field, rows, columns

    def type_(width: int) -> str:
        return f"tensor<{b - a}x{width}xf32>"

    parts = [(start, stop) for start, stop in ((d - before, d), (c, d), (c, c + after)) if start < stop]
    taken = "\n".join(f"  %{i} = stablehlo.slice %a [{a}:{b}, {start}:{stop}] : (tensor<{y}x{x}xf32>) -> "
                      f"{type_(stop - start)}" for i, (start, stop) in enumerate(parts))
    whole = type_(d - c + before + after)
    return f"""sdy.mesh @m = <["x"=4, "y"=4]>
func.func @main(%a: tensor<{y}x{x}xf32> {{sdy.sharding = #sdy.sharding<@m, {ON_TILES}>}})
    -> ({whole} {{sdy.sharding = #sdy.sharding<@m, {ON_TILES}>}}) {{
{taken}
  %r = stablehlo.concatenate {", ".join(f"%{i}" for i in range(len(parts)))}, dim = 1
      : ({", ".join(type_(stop - start) for start, stop in parts)}) -> {whole}
  return %r : {whole}
}}"""


@pytest.mark.parametrize(("arguments", "elements"), [
    (((64, 256), (0, 64), (0, 256), 8, 8), 128),  # 8 of 272 columns
    # 254 columns lie on one half of x and 257 on no part of it, as XLA has results: half of them travel, and all.
    (((64, 256), (0, 64), (0, 254), 0, 0), 16 * 65),
    (((64, 256), (0, 64), (1, 255), 2, 2), 16 * 66),
    (((64, 256), (0, 64), (0, 256), 1, 0), 16 * 192),
    # Two rows, and then the columns of those that are wanted.
    (((72, 256), (4, 68), (0, 256), 1, 0), 2 * 64 + 16 * 192),
    # 130 rows lie on one half of y, 54 columns on one of x, and 55 on none: the field is cut where it lies, and what
    # remains put on standard tiles (4 of 12 columns) before it is moved.
    (((130, 64), (1, 129), (8, 56), 2, 4), 64 * 4 + 32 * 12 + 32 * 4),
    (((130, 64), (1, 129), (8, 56), 2, 5), 64 * 4 + 32 * 36),
])
def test_fields_that_are_wrapped_around(arguments, elements) -> None:
    assert plan(around(*arguments)).wire_bytes == 4 * elements


def on_rows(body: str, inputs: list[tuple[int, int]], outputs: list[tuple[int, int]]) -> str:
    """A program on tensors whose rows lie on 8 devices."""
    def sharded(shape: tuple[int, int]) -> str:
        return f'tensor<{shape[0]}x{shape[1]}xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}, {{}}]>}}'

    arguments = ", ".join(f"%{name}: {sharded(shape)}" for name, shape in zip("ab", inputs, strict=False))
    return f"""sdy.mesh @m = <["x"=8]>
func.func @main({arguments}) -> ({", ".join(map(sharded, outputs))}) {{
{body}
}}"""


TILED = """
  %0 = stablehlo.broadcast_in_dim %a, dims = [1, 2] : (tensor<64x8xf32>) -> tensor<{k}x64x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<{k}x64x8xf32>) -> tensor<{n}x8xf32>
  return %1 : tensor<{n}x8xf32>
"""


@pytest.mark.parametrize(("repeats", "rows"), [(2, 16), (3, 24), (4, 32)])
def test_repeats_send_the_rows_that_are_missing(repeats: int, rows: int) -> None:
    """Some device has none of its rows."""
    n = 64 * repeats
    assert plan(on_rows(TILED.format(k=repeats, n=n), [(64, 8)], [(n, 8)])).wire_bytes == rows * 8 * 4


def test_even_rows_before_odd_ones() -> None:
    text = on_rows("""
  %0 = stablehlo.slice %a [0:64:2, 0:8] : (tensor<64x8xf32>) -> tensor<32x8xf32>
  %1 = stablehlo.slice %a [1:64:2, 0:8] : (tensor<64x8xf32>) -> tensor<32x8xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<64x8xf32>
  return %2 : tensor<64x8xf32>
""", [(64, 8)], [(64, 8)])
    assert plan(text).wire_bytes == 8 * 8 * 4


@pytest.mark.parametrize(("rows", "received"), [(80, 1 + 7 / 8 + 3 * 7 / 8), (800, 2 * 3 * 7 / 8)])
def test_few_rows_go_to_all_devices(rows: int, received: float) -> None:
    """3 rows, beside the 70 others of another tensor: put on a device each and cut up, or as sums."""
    text = on_rows(f"""
  %0 = stablehlo.slice %b [19:22, 0:8] : (tensor<{rows}x8xf32>) -> tensor<3x8xf32>
  %1 = stablehlo.concatenate %a, %0, dim = 0 : (tensor<80x8xf32>, tensor<3x8xf32>) -> tensor<83x8xf32>
  return %1 : tensor<83x8xf32>
""", [(80, 8), (rows, 8)], [(83, 8)])
    assert plan(text).wire_bytes == (70 + received) * 8 * 4


def test_two_slices_share_one_exchange_of_a_slice() -> None:
    """Of 20 layers 4 are taken before the two rows that are missing are exchanged."""
    field, part = "tensor<20x64x32xf32>", "tensor<4x56x32xf32>"
    sharding = 'sdy.sharding = #sdy.sharding<@m, [{}, {"x"}, {}]>'
    text = f"""sdy.mesh @m = <["x"=2]>
func.func @main(%a: {field} {{{sharding}}}) -> ({part} {{{sharding}}}, {part} {{{sharding}}}) {{
  %0 = stablehlo.slice %a [8:12, 5:61, 0:32] : ({field}) -> {part}
  %1 = stablehlo.slice %a [8:12, 6:62, 0:32] : ({field}) -> {part}
  return %0, %1 : {part}, {part}
}}"""
    assert plan(text).wire_bytes == 2 * 4 * 32 * 4
