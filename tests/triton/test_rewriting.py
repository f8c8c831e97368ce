"""Chosen layouts put back into the kernel: effects in order, conversions where they are rarest, branches, loops."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, names, ops, vector

from eggshard.triton.candidates import encoding_of
from eggshard.triton.control import ties
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.rules.costs import layout_of

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"
P, Q = "tensor<256x!tt.ptr<f32>, #one>", "tensor<256x!tt.ptr<f32>, #two>"
#: Places in memory at two layouts, a tensor that is loaded at the first, and constants.
HEAD = f"""
  %k0 = arith.constant 0 : i32
  %k1 = arith.constant 1 : i32
  %k3 = arith.constant 3 : i32
{vector("one")}{vector("two", "2", "%q")}
  %x = tt.load %at : {P}
"""
TO = f"ttg.convert_layout {{}} : {V} -> {W}"
BACK = f"ttg.convert_layout {{}} : {W} -> {V}"


def kernel(body: str) -> Kernel:
    return kernel_of(HEAD + body)


def conversions(found: Kernel) -> list[Operation]:
    return ops(found, "ttg.convert_layout")


def inside(op: Operation) -> list[str]:
    """The names of the ops around an op, the innermost first."""
    found, around = [], op.parent_op
    while around is not None:
        found.append(around.name)
        around = around.parent_op
    return found


EFFECTS = ("tt.store", "tt.atomic_rmw", "tt.load", "tt.print", "ttg.barrier", "tt.assert")


def test_effects_are_kept_and_stay_in_order() -> None:
    given = kernel(f"""
      %v = tt.load %at {{isVolatile = true}} : {P}
      tt.store %at, %x : {P}
      %t = {TO.format("%x")}
      %old = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
      tt.print "x: " {{hex = false, isSigned = array<i32: 0>}} : %t : {W}
      %y = tt.load %at : {P}
      %e = math.exp2 %y : {V}
      %f = {TO.format("%e")}
      tt.store %at2, %f : {Q}
      %last = tt.load %at2 {{isVolatile = true}} : {Q}""")
    plan = checked(given, judged=False)
    assert [n for n in names(plan.kernel) if n in EFFECTS] == [n for n in names(given) if n in EFFECTS]
    assert [op.attribute("isVolatile") for op in ops(plan.kernel, "tt.load")] == [
        op.attribute("isVolatile") for op in ops(given, "tt.load")]


def test_small_volatile_loads_happen_once_at_their_layout() -> None:
    """Of small loads others may be read twice, or elsewhere in the block's threads; these not."""
    given = kernel("""
      %r = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32, #one>
      %b = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>, #one>
      %a = tt.addptr %b, %r : tensor<8x!tt.ptr<f32>, #one>, tensor<8xi32, #one>
      %v = tt.load %a {isVolatile = true} : tensor<8x!tt.ptr<f32>, #one>
      %w = ttg.convert_layout %v : tensor<8xf32, #one> -> tensor<8xf32, #last>
      %e = tt.expand_dims %w {axis = 1 : i32} : tensor<8xf32, #last> -> tensor<8x1xf32, #rows>
      %d = ttg.convert_layout %v : tensor<8xf32, #one> -> tensor<8xf32, #first>
      %f = tt.expand_dims %d {axis = 0 : i32} : tensor<8xf32, #first> -> tensor<1x8xf32, #columns>
      %g = ttg.convert_layout %f : tensor<1x8xf32, #columns> -> tensor<1x8xf32, #rows>
      %h = tt.broadcast %g : tensor<1x8xf32, #rows> -> tensor<8x8xf32, #rows>
      %i = tt.broadcast %e : tensor<8x1xf32, #rows> -> tensor<8x8xf32, #rows>
      %s = arith.addf %h, %i : tensor<8x8xf32, #rows>
      %o = tt.splat %q : !tt.ptr<f32> -> tensor<8x8x!tt.ptr<f32>, #rows>
      tt.store %o, %s : tensor<8x8x!tt.ptr<f32>, #rows>""")
    plan = checked(given)
    volatile = [op for op in ops(plan.kernel, "tt.load") if op.attribute("isVolatile") == "true"]
    assert len(volatile) == 1
    before, after = (layout_of(op.results[0], encoding_of(op.results[0]))
                     for op in (ops(given, "tt.load")[1], *volatile))
    assert before == after


def test_a_conversion_leaves_the_loop() -> None:
    plan = checked(kernel(f"""
      scf.for %i = %k0 to %n step %k1 : i32 {{
        %t = {TO.format("%x")}
        %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
      }}"""), numbers={2: 2})
    (left,) = conversions(plan.kernel)
    assert "scf.for" not in inside(left)


def test_a_conversion_stays_in_the_branch_that_needs_it() -> None:
    plan = checked(kernel(f"""
      %t = {TO.format("%x")}
      scf.if %c {{
        %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
      }}
      tt.store %at, %x : {P}"""))
    (left,) = conversions(plan.kernel)
    assert inside(left)[0] == "scf.if"


def test_a_conversion_enters_a_branch_but_not_the_loop_in_it() -> None:
    plan = checked(kernel(f"""
      scf.if %c {{
        scf.for %i = %k0 to %n step %k1 : i32 {{
          %t = {TO.format("%x")}
          %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
        }}
      }}
      tt.store %at, %x : {P}"""), numbers={2: 2})
    (left,) = conversions(plan.kernel)
    assert inside(left)[0] == "scf.if"


def test_a_branch_delivers_two_layouts_where_that_is_cheaper() -> None:
    """One side loads at each: to deliver one layout alone would convert on both sides."""
    plan = checked(kernel(f"""
      %r = scf.if %c -> ({V}) {{
        %a = math.exp2 %range_f : {V}
        scf.yield %a : {V}
      }} else {{
        %b = math.absf %range_f : {V}
        scf.yield %b : {V}
      }}
      %t = {TO.format("%r")}
      %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
      tt.store %at, %r : {P}""".replace("%r = scf.if", f"%range_f = arith.sitofp %range : tensor<256xi32, #one> to {V}"
                                        "\n%r = scf.if")))
    (branch,) = ops(plan.kernel, "scf.if")
    assert len(branch.results) == 2 and plan.conversions == 0
    assert len({str(v.type) for v in branch.results}) == 2


def test_loops_carry_a_value_once() -> None:
    plan = checked(kernel(f"""
      %l = scf.for %i = %k0 to %n step %k1 iter_args(%u = %x) -> ({V}) : i32 {{
        %t = {TO.format("%u")}
        %e = math.exp2 %t : {W}
        %b = {BACK.format("%e")}
        scf.yield %b : {V}
      }}
      %t = {TO.format("%l")}
      %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}"""), numbers={2: 2})
    (loop,) = ops(plan.kernel, "scf.for")
    assert len(loop.results) == 1 and plan.conversions == 1
    assert "scf.for" not in inside(conversions(plan.kernel)[0])


@pytest.mark.parametrize("yielded", ["%u, %v", "%v, %u", "%u, %u", "%x, %x", "%e, %e", "%e, %u", "%x, %e"])
def test_whatever_a_loop_yields(yielded: str) -> None:
    plan = checked(kernel(f"""
      %y = math.absf %x : {V}
      %l:2 = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %x, %v = %y) -> ({V}, {V}) : i32 {{
        %t = {TO.format("%u")}
        %w = {TO.format("%v")}
        %s = arith.addf %t, %w : {W}
        %e = {BACK.format("%s")}
        scf.yield {yielded} : {V}, {V}
      }}
      %t = {TO.format("%l#0")}
      %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %t : ({Q}, {W}) -> {W}
      tt.store %at, %l#1 : {P}"""))
    for loop in ops(plan.kernel, "scf.for"):
        for tie in ties(loop) or ():
            assert len({str(use.value.type) for use in (*tie.sources, *tie.back)} | {
                str(v.type) for v in tie.targets}) == 1


def test_what_is_given_stays_as_it_is() -> None:
    from eggshard.triton.kernels.text import write_generic

    given = kernel(f"%t = {TO.format('%x')}\n%e = math.exp2 %t : {W}\n%b = {BACK.format('%e')}\ntt.store %at, %b : {P}")
    before = write_generic(given)
    assert checked(given).conversions == 0
    assert write_generic(given) == before


def test_locations_and_attributes_stay() -> None:
    given = kernel(f"%e = math.exp2 %x {{tt.hint = 3 : i32}} : {V} loc(\"here\")\ntt.store %at, %e : {P}")
    plan = checked(given)
    (op,) = ops(plan.kernel, "math.exp2")
    assert op.attribute("tt.hint") == "3 : i32" and "here" in plan.text()


def test_a_branch_may_compute_again_what_is_there_outside() -> None:
    """As the kernel itself does: to widen a row after it is converted is cheaper than to convert the wide tensor, and
    in the branch cheaper than before it."""
    at, other = "#ttg.slice<{dim = 0, parent = #columns}>", "#ttg.slice<{dim = 0, parent = #rows}>"
    plan = checked(kernel_of(f"""
      %r = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32, {at}>
      %b = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, {at}>
      %a = tt.addptr %b, %r : tensor<64x!tt.ptr<f32>, {at}>, tensor<64xi32, {at}>
      %k = arith.constant dense<1.0> : tensor<64xf32, {at}>
      %x = tt.atomic_rmw fadd, acq_rel, gpu, %a, %k : (tensor<64x!tt.ptr<f32>, {at}>, tensor<64xf32, {at}>)
        -> tensor<64xf32, {at}>
      %e = tt.expand_dims %x {{axis = 0 : i32}} : tensor<64xf32, {at}> -> tensor<1x64xf32, #columns>
      %w = tt.broadcast %e : tensor<1x64xf32, #columns> -> tensor<64x64xf32, #columns>
      %o = tt.splat %q : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>, #columns>
      tt.store %o, %w : tensor<64x64x!tt.ptr<f32>, #columns>
      %z = ttg.convert_layout %w : tensor<64x64xf32, #columns> -> tensor<64x64xf32, #rows>
      %v = ttg.convert_layout %z : tensor<64x64xf32, #rows> -> tensor<64x64xf32, #columns>
      tt.store %o, %v : tensor<64x64x!tt.ptr<f32>, #columns>
      scf.if %c {{
        %y = ttg.convert_layout %x : tensor<64xf32, {at}> -> tensor<64xf32, {other}>
        %f = tt.expand_dims %y {{axis = 0 : i32}} : tensor<64xf32, {other}> -> tensor<1x64xf32, #rows>
        %g = tt.broadcast %f : tensor<1x64xf32, #rows> -> tensor<64x64xf32, #rows>
        %h = math.exp2 %g : tensor<64x64xf32, #rows>
        %i = tt.splat %q : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>, #rows>
        %old = tt.atomic_rmw fadd, acq_rel, gpu, %i, %h : (tensor<64x64x!tt.ptr<f32>, #rows>,
          tensor<64x64xf32, #rows>) -> tensor<64x64xf32, #rows>
      }}"""))
    (left,) = conversions(plan.kernel)
    assert inside(left)[0] == "scf.if" and plan.gap == pytest.approx(0)
    tensor = left.results[0].tensor
    assert tensor is not None and tensor.shape in ((64,), (1, 64))
