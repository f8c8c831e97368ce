"""Values that loops carry at several layouts: where each iteration can compute them at any, instead of converting them.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops

from eggshard.triton.planning import PROVED, LayoutPlan

N, M = "tensor<256xi32, #one>", "tensor<256xi32, #four>"
F, G = "tensor<256xf32, #one>", "tensor<256xf32, #four>"
P, Q = "tensor<256x!tt.ptr<f32>, #one>", "tensor<256x!tt.ptr<f32>, #four>"
BEFORE = f"""
  %k0 = arith.constant 0 : i32
  %k1 = arith.constant 1 : i32
  %k3 = arith.constant 3 : i32
  %step = arith.constant dense<256> : {N}
  %o = tt.make_range {{start = 0 : i32, end = 256 : i32}} : {N}
  %pp = tt.splat %p : !tt.ptr<f32> -> {P}
  %qq = tt.splat %q : !tt.ptr<f32> -> {Q}
"""
#: Offsets at which one array is read at one layout, and another one written at another.
BODY = f"""
  %at = tt.addptr %pp, %u : {P}, {N}
  %x = tt.load %at : {P}
  %y = ttg.convert_layout %x : {F} -> {G}
  %v = ttg.convert_layout %u : {N} -> {M}
  %to = tt.addptr %qq, %v : {Q}, {M}
  tt.store %to, %y : {Q}
"""


def conversions(plan: LayoutPlan) -> list[str]:
    """The elements of what is converted."""
    tensors = (op.operands[0].tensor for op in ops(plan.kernel, "ttg.convert_layout"))
    return [tensor.element for tensor in tensors if tensor is not None]


def test_a_for_loop_carries_offsets_at_both_layouts() -> None:
    plan = checked(kernel_of(f"""{BEFORE}
      %l = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %o) -> ({N}) : i32 {{
        {BODY}
        %w = arith.addi %u, %step : {N}
        scf.yield %w : {N}
      }}"""))
    (loop,) = ops(plan.kernel, "scf.for")
    assert len(loop.results) == 2 and conversions(plan) == ["f32"] and plan.gap is not None and plan.gap < PROVED


def test_a_while_loop_does_so_too() -> None:
    plan = checked(kernel_of(f"""{BEFORE}
      %l:2 = scf.while (%i = %k0, %u = %o) : (i32, {N}) -> (i32, {N}) {{
        %more = arith.cmpi slt, %i, %k3 : i32
        scf.condition(%more) %i, %u : i32, {N}
      }} do {{
      ^bb0(%i: i32, %u: {N}):
        {BODY}
        %j = arith.addi %i, %k1 : i32
        %w = arith.addi %u, %step : {N}
        scf.yield %j, %w : i32, {N}
      }}"""))
    assert conversions(plan) == ["f32"] and plan.gap is not None and plan.gap < PROVED


def test_what_is_read_in_an_iteration_is_carried_once() -> None:
    """To carry it at a second layout, each iteration would have to convert it."""
    plan = checked(kernel_of(f"""{BEFORE}
      %first = arith.sitofp %o : {N} to {F}
      %l = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %first) -> ({F}) : i32 {{
        %at = tt.addptr %pp, %o : {P}, {N}
        %x = tt.load %at : {P}
        %w = arith.addf %u, %x : {F}
        %y = ttg.convert_layout %u : {F} -> {G}
        %v = ttg.convert_layout %o : {N} -> {M}
        %to = tt.addptr %qq, %v : {Q}, {M}
        tt.store %to, %y : {Q}
        scf.yield %w : {F}
      }}"""))
    (loop,) = ops(plan.kernel, "scf.for")
    assert len(loop.results) == 1 and conversions(plan) == ["f32"]
