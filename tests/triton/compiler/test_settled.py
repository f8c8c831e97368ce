"""Kernels that need no planning again: equal up to what layouts do not depend on."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, vector

from eggshard.triton.compiler.settled import Settled
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.planning import plan_layouts

V, P = "tensor<256xf32, #two>", "tensor<256x!tt.ptr<f32>, #two>"
A = f"%a = math.exp %x : {V}"
B = f"%b = math.sin %x : {V}"
SUM = f"%s = arith.addf %a, %b : {V}"
STORE = f"tt.store %at, %s : {P}"


def kernel(*lines: str) -> Kernel:
    return kernel_of("\n".join([vector("two"), f"%x = tt.load %at : {P}", *lines]))


def loop(*lines: str) -> str:
    inside = "\n".join(lines)
    return f"""
      %k0 = arith.constant 0 : i32
      scf.for %i = %k0 to %n step %n : i32 {{
        {inside}
      }}"""


def same(first: Kernel, second: Kernel) -> bool:
    settled = Settled()
    return settled.number(first) == settled.number(second)


def test_names_order_and_copies_of_pure_ops_do_not_matter() -> None:
    given = kernel(A, B, SUM, STORE)
    assert same(given, kernel(A, B, SUM, STORE))
    assert same(given, kernel(B, A, SUM, STORE))
    assert same(given, kernel(A.replace("%a", "%z"), A, B, SUM, STORE))
    assert same(given, kernel("%unused = arith.constant 3 : i32", A, B, SUM, STORE))
    assert same(given, kernel(A, B, "gpu.barrier", SUM, STORE))


def test_ops_with_effects_may_change_places_but_not_with_their_like() -> None:
    first, second = (f"%{name} = tt.load %at {{isVolatile = true}} : {P}" for name in "ab")
    other = f"%o = tt.load %at, %mask : {P}"
    mask = "%mask = arith.constant dense<true> : tensor<256xi1, #two>"
    assert not same(kernel(first, second, SUM, STORE), kernel(second, first, SUM, STORE))
    assert same(kernel(mask, first, other, B, SUM, STORE), kernel(mask, other, first, B, SUM, STORE))


@pytest.mark.parametrize("other", [
    (A, B, SUM.replace("%a, %b", "%b, %a"), STORE),
    (A.replace("exp", "cos"), B, SUM, STORE),
    (A, B, SUM, STORE, STORE),
    (A, B, SUM, f"%y = tt.load %at : {P}", STORE),
    (A, B, loop(SUM, STORE)),
    (A, B, SUM, loop(STORE)),
    (A, B, SUM, f"%c1 = ttg.convert_layout %s : {V} -> tensor<256xf32, #one>", STORE),
])
def test_all_else_matters(other: tuple[str, ...]) -> None:
    assert not same(kernel(A, B, SUM, STORE), kernel(*other))


def test_what_is_in_a_loop_or_before_it_is_told_apart() -> None:
    assert same(kernel(loop(A, B, SUM, STORE)), kernel(loop(B, A, SUM, STORE)))
    assert not same(kernel(loop(A, B, SUM, STORE)), kernel(A, loop(B, SUM, STORE)))


def test_bodies_of_reductions_are_compared() -> None:
    def reduced(name: str, other: str = "%v") -> Kernel:
        return kernel(f"""
          %r = "tt.reduce"(%x) <{{axis = 0 : i32}}> ({{
          ^bb0(%u: f32, %v: f32):
            %w = {name} %u, {other} : f32
            tt.reduce.return %w : f32
          }}) : ({V}) -> f32
          tt.store %p, %r : !tt.ptr<f32>""")

    assert same(reduced("arith.addf"), reduced("arith.addf"))
    assert not same(reduced("arith.addf"), reduced("arith.mulf"))
    assert not same(reduced("arith.addf"), reduced("arith.addf", "%u"))


def test_a_planned_kernel_is_planned_already() -> None:
    given = kernel(A, B, f"%c1 = ttg.convert_layout %a : {V} -> tensor<256xf32, #one>",
                   f"%d = ttg.convert_layout %c1 : tensor<256xf32, #one> -> {V}",
                   SUM.replace("%a", "%d"), STORE)
    settled = Settled()
    assert settled.find(given) is None
    plan = plan_layouts(given)
    settled.add(plan)
    assert plan.conversions == 0 and settled.find(given) is None
    other = kernel(B, A, SUM, STORE)
    again = settled.find(other)
    assert again is not None and again.given is again.kernel is other
    assert again.cost == again.given_cost == plan.cost and again.gap == plan.gap
    assert plan_layouts(other).cost == pytest.approx(again.cost)
