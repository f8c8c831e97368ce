"""How layouts are spelled: with as few conversions as can be of those that move nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops, vector

from eggshard.triton.kernels.ir import Kernel

#: The layout of #one, spelled as a linear encoding and as a slice.
LINEAR = "#ttg.linear<{register = [[128]], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>"
SLICED = ("#ttg.slice<{dim = 1, parent = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], "
          "warpsPerCTA = [4, 1], order = [0, 1]}>}>")
#: There and back: without it a plan is cheaper, and is taken.
DETOUR = """
  %there = ttg.convert_layout %x : tensor<256xf32, #one> -> tensor<256xf32, #two>
  %back = ttg.convert_layout %there : tensor<256xf32, #two> -> tensor<256xf32, #one>
  tt.store %at, %back : tensor<256x!tt.ptr<f32>, #one>
"""
V, L, S = (f"tensor<256xf32, {e}>" for e in ("#one", LINEAR, SLICED))


def loaded(body: str) -> Kernel:
    return kernel_of(f"{vector('one')}\n%x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>\n{DETOUR}{body}")


def test_spellings_that_nothing_asks_for_disappear() -> None:
    plan = checked(loaded(f"""
      %a = ttg.convert_layout %x : {V} -> {L}
      %b = math.exp2 %a : {L}
      %c2 = ttg.convert_layout %b : {L} -> {S}
      %d = math.absf %c2 : {S}
      %e = ttg.convert_layout %d : {S} -> {V}
      tt.store %at, %e : tensor<256x!tt.ptr<f32>, #one>"""))
    assert plan.conversions == 0


def test_an_op_that_asks_for_a_spelling_gets_it_from_where_the_value_is_made() -> None:
    """A dimension is added to a slice of the result's encoding only; what leads there can be spelled so."""
    plan = checked(loaded(f"""
      %b = math.exp2 %x : {V}
      %s = ttg.convert_layout %b : {V} -> {S}
      %m = tt.expand_dims %s {{axis = 1 : i32}} : {S} -> tensor<256x1xf32, #wide>
      %w = tt.broadcast %m : tensor<256x1xf32, #wide> -> tensor<256x2xf32, #wide>
      %o = tt.splat %q : !tt.ptr<f32> -> tensor<256x2x!tt.ptr<f32>, #wide>
      tt.store %o, %w : tensor<256x2x!tt.ptr<f32>, #wide>
      """.replace("#wide", "#ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [4, 1], "
                  "order = [0, 1]}>")))
    assert plan.conversions <= 1 and all(p.cost == 0 for p in plan.priced() if p.is_conversion)


def test_conversions_that_move_nothing_are_not_repeated() -> None:
    """Many users at one spelling share what brings it about."""
    users = "".join(f"""
      %m{i} = tt.expand_dims %s {{axis = 1 : i32}} : {S} -> tensor<256x1xf32, #wide>
      %w{i} = tt.broadcast %m{i} : tensor<256x1xf32, #wide> -> tensor<256x2xf32, #wide>
      %k{i} = arith.constant dense<{i}.0> : tensor<256x2xf32, #wide>
      %t{i} = arith.addf %w{i}, %k{i} : tensor<256x2xf32, #wide>
      tt.store %o, %t{i} : tensor<256x2x!tt.ptr<f32>, #wide>""" for i in range(4))
    plan = checked(loaded(f"""
      %y = tt.atomic_rmw fadd, acq_rel, gpu, %at, %x : (tensor<256x!tt.ptr<f32>, #one>, {V}) -> {V}
      %s = ttg.convert_layout %y : {V} -> {S}
      %o = tt.splat %q : !tt.ptr<f32> -> tensor<256x2x!tt.ptr<f32>, #wide>{users}""".replace(
          "#wide", "#ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [4, 1], "
          "order = [0, 1]}>")))
    assert plan.conversions <= 1 and len(ops(plan.kernel, "tt.store")) == 5


def test_a_loop_is_spelled_alike_all_round() -> None:
    plan = checked(loaded(f"""
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      %a = ttg.convert_layout %x : {V} -> {L}
      %l = scf.for %i = %k0 to %n step %k1 iter_args(%u = %a) -> ({L}) : i32 {{
        %b = ttg.convert_layout %u : {L} -> {S}
        %e = math.exp2 %b : {S}
        %d = ttg.convert_layout %e : {S} -> {L}
        scf.yield %d : {L}
      }}
      %z = ttg.convert_layout %l : {L} -> {V}
      tt.store %at, %z : tensor<256x!tt.ptr<f32>, #one>"""), numbers={2: 2})
    assert plan.conversions == 0
