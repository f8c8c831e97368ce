"""Plans: what they say of themselves, and what they choose where the best is plain to see."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops, vector

from eggshard.triton.frequencies import Frequencies
from eggshard.triton.frontend.libtriton import load, module_of
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layout_costs import SM80
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.planning import given_plan, plan_layouts

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"
HEAD = f"""{vector("one")}{vector("two", "2", "%q")}
  %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
"""


def moved(body: str = "") -> Kernel:
    """A tensor loaded at one layout and stored at another, with something in between."""
    return kernel_of(f"""{HEAD}{body}
      %t = ttg.convert_layout %x : {V} -> {W}
      %y = math.exp2 %t : {W}
      tt.store %at2, %y : tensor<256x!tt.ptr<f32>, #two>""")


def test_a_plan_says_what_it_is() -> None:
    plan = checked(moved())
    assert plan.name == "kernel" and plan.method and plan.seconds > 0 and not plan.capped
    assert (plan.given_conversions, plan.conversions) == (1, 1)
    assert plan.gap == pytest.approx(0) and plan.certificate == "optimal among all candidates"
    assert plan.cost == pytest.approx(sum(p.cost for p in plan.priced()))
    assert sum(p.is_conversion for p in plan.priced()) == plan.conversions


def test_the_text_parses_back_to_the_kernel() -> None:
    plan = checked(moved())
    again = load(plan.text())
    assert str(module_of(again).str_nodebug()) == str(module_of(plan.kernel).str_nodebug())


def test_a_kernel_as_given_is_a_plan_with_nothing_proved() -> None:
    kernel = moved()
    plan = given_plan(kernel)
    assert plan.kernel is kernel and plan.cost == plan.given_cost == plan_layouts(kernel).given_cost
    assert plan.bound == 0 and plan.method == "as given" and "at most" in plan.certificate


def test_the_clock_only_ends_a_search_and_the_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, late = plan_layouts(moved()), plan_layouts(moved(), seconds=0)
    assert not usual.late and "clock" not in str(usual)
    assert late.late and "the clock ended the search" in late.certificate and late.cost <= late.given_cost
    real, began = time.monotonic, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 100 * (real() - began))
    assert write_generic(plan_layouts(moved(), seconds=1e6).kernel) == write_generic(usual.kernel)


class Shuffling:
    """Everything is free but what barriers cost."""

    def price(self, counts: Counts) -> float:
        return 10.0 * counts.barriers


def test_the_cost_model_decides() -> None:
    """A load may not be repeated at other layouts, what follows it may: with free arithmetic nothing but barriers
    counts, and the plan's units are the model's."""
    plan = plan_layouts(moved(), Shuffling())
    assert plan.cost == 10.0 * sum(p.conversion.counts.barriers for p in plan.priced() if p.conversion is not None)
    assert plan_layouts(moved(), SM80).cost == plan_layouts(moved()).cost


def test_assumed_trip_counts_decide_where_a_value_is_converted() -> None:
    """Narrow before the loop, or wide inside of it as seldom as it runs: half a time on average."""
    kernel = kernel_of(f"""{HEAD}
      %k0 = arith.constant 0 : i32
      scf.for %i = %k0 to %n step %n : i32 {{
        %h = arith.truncf %x : {V} to tensor<256xf16, #one>
        %t = ttg.convert_layout %h : tensor<256xf16, #one> -> tensor<256xf16, #two>
        %w = arith.extf %t : tensor<256xf16, #two> to {W}
        %o = tt.atomic_rmw fadd, acq_rel, gpu, %at2, %w : (tensor<256x!tt.ptr<f32>, #two>, {W}) -> {W}
      }}""")
    for trips in (1.0, 100.0):
        plan = plan_layouts(kernel, assumed=Frequencies(trips=trips))
        (left,) = [p for p in plan.priced() if p.is_conversion]
        assert left.times == 1.0 and plan.cost <= plan.given_cost
        assert (left.op.parent_op is not None and left.op.parent_op.name) == "tt.func" or trips == 1.0


def test_a_value_is_computed_twice_where_that_is_cheaper_than_converting() -> None:
    plan = checked(kernel_of(f"""{vector("one")}{vector("two", "2", "%q")}
      %i = arith.sitofp %range : tensor<256xi32, #one> to {V}
      %t = ttg.convert_layout %i : {V} -> {W}
      tt.store %at, %i : tensor<256x!tt.ptr<f32>, #one>
      tt.store %at2, %t : tensor<256x!tt.ptr<f32>, #two>"""))
    assert plan.conversions == 0 and len(ops(plan.kernel, "arith.sitofp")) == 2


def test_nothing_is_proved_where_an_op_is_not_understood() -> None:
    plan = plan_layouts(kernel_of(f"""
      %x = builtin.unrealized_conversion_cast %n : i32 to {V}
      %y = ttg.convert_layout %x : {V} -> {W}
      %z = builtin.unrealized_conversion_cast %y : {W} to i32"""))
    assert plan.gap is None
    assert plan.certificate == "nothing is proved: not understood are builtin.unrealized_conversion_cast"


@pytest.mark.parametrize(("target", "said"), [
    ("cuda:80", ""), ("cuda:100", ""), ("cuda:103", "at the prices of cuda:100: cuda:103 has none of its own"),
    ("hip:gfx1250", "at the prices of hip:gfx1100: hip:gfx1250 has none of its own"),
])
def test_borrowed_prices_are_told(target: str, said: str) -> None:
    kernel = kernel_of(vector("one"))
    kernel.module.attributes["ttg.target"] = f'"{target}"'
    text = str(plan_layouts(kernel))
    assert said in text and ("at the prices" in text) == bool(said)


def test_a_kernel_without_tensors_costs_nothing() -> None:
    plan = checked(kernel_of("%x = arith.constant 1.0 : f32\ntt.store %p, %x : !tt.ptr<f32>"))
    assert plan.cost == plan.given_cost == plan.bound == 0 and plan.gap == 0


def test_layouts_of_several_functions_are_planned_together() -> None:
    other = f"""
    tt.func private @other(%x: {V}) -> {W} attributes {{noinline = true}} {{
      %t = ttg.convert_layout %x : {V} -> {W}
      %b = ttg.convert_layout %t : {W} -> {V}
      %u = ttg.convert_layout %b : {V} -> {W}
      tt.return %u : {W}
    }}"""
    plan = checked(kernel_of(f"""{HEAD}
      %y = tt.call @other(%x) : ({V}) -> {W}
      tt.store %at2, %y : tensor<256x!tt.ptr<f32>, #two>""", more=other))
    assert (plan.given_conversions, plan.conversions) == (3, 1)


def test_the_same_kernel_gives_the_same_plan() -> None:
    texts = {write_generic(plan_layouts(moved()).kernel) for _ in range(3)}
    assert len(texts) == 1
