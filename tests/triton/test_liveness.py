"""What a kernel needs: what has effects, what that is computed from, and no more."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops, vector

V = "tensor<256xf32, #two>"
BOUNDS = """
  %k0 = arith.constant 0 : i32
  %k1 = arith.constant 1 : i32
  %k3 = arith.constant 3 : i32
"""


def test_pure_ops_that_nothing_needs_are_not_written() -> None:
    plan = checked(kernel_of(f"""{vector("two")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %dead = math.exp %x : {V}
      %gone = ttg.convert_layout %dead : {V} -> tensor<256xf32, #one>
      %more = math.exp %gone : tensor<256xf32, #one>
      tt.store %at, %x : tensor<256x!tt.ptr<f32>, #two>"""))
    assert not ops(plan.kernel, "math.exp") and plan.conversions == 0 and plan.gap == 0


def test_reads_and_products_that_only_a_loop_needs_for_itself_are_not_run() -> None:
    m = "tensor<32x32xf32, #rows>"
    plan = checked(kernel_of(f"""{BOUNDS}{vector("two")}
      %zero = arith.constant dense<0.0> : {m}
      %a = arith.constant dense<1.0> : tensor<32x32xf32, #ttg.dot_op<{{opIdx = 0, parent = #rows}}>>
      %b = arith.constant dense<1.0> : tensor<32x32xf32, #ttg.dot_op<{{opIdx = 1, parent = #rows}}>>
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %l:2 = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %zero, %v = %x) -> ({m}, {V}) : i32 {{
        %d = tt.dot %a, %b, %u : tensor<32x32xf32, #ttg.dot_op<{{opIdx = 0, parent = #rows}}>>
          * tensor<32x32xf32, #ttg.dot_op<{{opIdx = 1, parent = #rows}}>> -> {m}
        %y = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
        %w = arith.addf %v, %y : {V}
        tt.store %at, %x : tensor<256x!tt.ptr<f32>, #two>
        scf.yield %d, %w : {m}, {V}
      }}"""))
    assert not ops(plan.kernel, "tt.dot") and len(ops(plan.kernel, "tt.load")) == 1


def test_what_a_loop_carries_for_itself_is_not_carried() -> None:
    plan = checked(kernel_of(f"""{BOUNDS}{vector("two")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %l:3 = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %x, %v = %x, %w = %x) -> ({V}, {V}, {V}) : i32 {{
        %s = arith.addf %u, %v : {V}
        %t = math.exp %w : {V}
        scf.yield %s, %u, %t : {V}, {V}, {V}
      }}
      tt.store %at, %l#0 : tensor<256x!tt.ptr<f32>, #two>"""))
    (loop,) = ops(plan.kernel, "scf.for")
    assert len(loop.results) == 2 and not ops(plan.kernel, "math.exp")


def test_a_branch_delivers_what_is_used() -> None:
    plan = checked(kernel_of(f"""{vector("two")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %r:2 = scf.if %c -> ({V}, {V}) {{
        %e = math.exp %x : {V}
        scf.yield %e, %x : {V}, {V}
      }} else {{
        scf.yield %x, %x : {V}, {V}
      }}
      tt.store %at, %r#1 : tensor<256x!tt.ptr<f32>, #two>"""))
    (branch,) = ops(plan.kernel, "scf.if")
    assert len(branch.results) == 1 and not ops(plan.kernel, "math.exp")


def test_a_while_loop_passes_on_what_is_used() -> None:
    plan = checked(kernel_of(f"""{BOUNDS}{vector("two")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %l:3 = scf.while (%i = %k0, %u = %x, %v = %x) : (i32, {V}, {V}) -> (i32, {V}, {V}) {{
        %more = arith.cmpi slt, %i, %k3 : i32
        scf.condition(%more) %i, %u, %v : i32, {V}, {V}
      }} do {{
      ^bb0(%i: i32, %u: {V}, %v: {V}):
        %next = arith.addi %i, %k1 : i32
        %e = math.exp2 %v : {V}
        scf.yield %next, %u, %e : i32, {V}, {V}
      }}
      tt.store %at, %l#1 : tensor<256x!tt.ptr<f32>, #two>"""))
    (loop,) = ops(plan.kernel, "scf.while")
    assert len(loop.operands) == 2 and len(loop.results) == 2 and not ops(plan.kernel, "math.exp2")


def test_effects_stay_though_their_results_are_not_used() -> None:
    plan = checked(kernel_of(f"""{vector("two")}
      %volatile = tt.load %at {{isVolatile = true}} : tensor<256x!tt.ptr<f32>, #two>
      %x = arith.constant dense<1.0> : {V}
      %old = tt.atomic_rmw fadd, acq_rel, gpu, %at, %x : (tensor<256x!tt.ptr<f32>, #two>, {V}) -> {V}"""))
    assert len(ops(plan.kernel, "tt.load")) == 1 and len(ops(plan.kernel, "tt.atomic_rmw")) == 1


def test_the_bound_counts_only_what_is_live() -> None:
    """What is dead has one option here, and would be a part of every plan's cost if it were run."""
    plan = checked(kernel_of(f"""{vector("two")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #two>
      %dead = tt.gather %x[%range] {{axis = 0 : i32, efficient_layout}} :
        ({V}, tensor<256xi32, #two>) -> {V}
      tt.store %at, %x : tensor<256x!tt.ptr<f32>, #two>"""))
    assert plan.bound <= plan.cost and plan.gap == pytest.approx(0)
