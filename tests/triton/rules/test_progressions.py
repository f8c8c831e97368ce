"""What is known of counters: how far apart neighbours are in memory, and what that means for accesses."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, ops

from eggshard.triton.candidates import encoding_of
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.costs import global_accesses
from eggshard.triton.rules.progressions import once, steps

MATRIX = """
  %i = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #last>
  %r = tt.expand_dims %i {axis = 1 : i32} : tensor<32xi32, #last> -> tensor<32x1xi32, #rows>
  %j = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, SLICE>
  %c0 = tt.expand_dims %j {axis = 0 : i32} : tensor<64xi32, SLICE> -> tensor<1x64xi32, #rows>
  %w = tt.splat %n : i32 -> tensor<32x1xi32, #rows>
  %v = tt.splat %n : i32 -> tensor<1x64xi32, #rows>
  %far = arith.muli %r, %w : tensor<32x1xi32, #rows>
  %wrapped = arith.remsi %c0, %v : tensor<1x64xi32, #rows>
  %spread = arith.muli %c0, %v : tensor<1x64xi32, #rows>
  %a = tt.broadcast %far : tensor<32x1xi32, #rows> -> tensor<32x64xi32, #rows>
  %b = tt.broadcast COLUMNS : tensor<1x64xi32, #rows> -> tensor<32x64xi32, #rows>
  %offsets = arith.addi %a, %b : tensor<32x64xi32, #rows>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<32x64x!tt.ptr<f32>, #rows>
  %at = tt.addptr %base, %offsets : tensor<32x64x!tt.ptr<f32>, #rows>, tensor<32x64xi32, #rows>
  %x = tt.load %at : tensor<32x64x!tt.ptr<f32>, #rows>
""".replace("SLICE", "#ttg.slice<{dim = 0, parent = #rows}>")


@pytest.mark.parametrize(("columns", "apart"), [("%c0", (2, 1)), ("%wrapped", (2, 1)), ("%spread", (2, 2))])
def test_neighbours_of_a_matrix_in_memory(columns: str, apart: tuple[int, int]) -> None:
    kernel = kernel_of(MATRIX.replace("COLUMNS", columns))
    (load,) = ops(kernel, "tt.load")
    assert steps(load.operands[0]) == apart


def test_a_transposed_matrix_is_contiguous_along_its_other_dimension() -> None:
    kernel = kernel_of(MATRIX.replace("COLUMNS", "%c0") + """
      %t = tt.trans %offsets {order = array<i32: 1, 0>} : tensor<32x64xi32, #rows> -> tensor<64x32xi32, #columns>""")
    (op,) = ops(kernel, "tt.trans")
    assert steps(op.results[0]) == (1, 2)


def test_what_loops_carry_goes_on_as_it_begins_and_what_is_loaded_is_not_known() -> None:
    kernel = kernel_of("""
      %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32, #one>
      %base = tt.splat %p : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, #one>
      %at = tt.addptr %base, %r : tensor<256x!tt.ptr<f32>, #one>, tensor<256xi32, #one>
      %k = arith.constant 0 : i32
      %s = arith.constant 1 : i32
      %step = arith.constant dense<256> : tensor<256xi32, #one>
      %end = scf.for %i = %k to %n step %s iter_args(%q1 = %at) -> (tensor<256x!tt.ptr<f32>, #one>) : i32 {
        %x = tt.load %q1 : tensor<256x!tt.ptr<f32>, #one>
        %y = arith.fptosi %x : tensor<256xf32, #one> to tensor<256xi32, #one>
        %g = tt.addptr %base, %y : tensor<256x!tt.ptr<f32>, #one>, tensor<256xi32, #one>
        %z = tt.load %g : tensor<256x!tt.ptr<f32>, #one>
        tt.store %g, %z : tensor<256x!tt.ptr<f32>, #one>
        %next = tt.addptr %q1, %step : tensor<256x!tt.ptr<f32>, #one>, tensor<256xi32, #one>
        scf.yield %next : tensor<256x!tt.ptr<f32>, #one>
      }""")
    carried, gathered = ops(kernel, "tt.load")
    assert steps(carried.operands[0]) == (1,) and steps(gathered.operands[0]) == (None,)
    assert once(ops(kernel, "tt.addptr")[0]) and not once(ops(kernel, "arith.fptosi")[0])


@pytest.mark.parametrize(("columns", "accesses", "lines"), [
    ("%c0", 16, 4),  # four neighbours at once; each access of a warp reads 2 rows of 64 numbers, of 2 lines each
    ("%spread", 64, 32),  # every number by itself, each in a line of its own
])
def test_accesses_are_as_wide_as_neighbours_lie_side_by_side(columns: str, accesses: int, lines: int) -> None:
    kernel = kernel_of(MATRIX.replace("COLUMNS", columns))
    (load,) = ops(kernel, "tt.load")
    value = load.results[0]
    found = global_accesses(value, encoding_of(value), load.operands[0], Machine.of(kernel))
    assert found == (accesses, accesses * lines)
