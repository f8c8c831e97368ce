"""What kernels cost as they stand: every op at its layout as often as its block runs, equal ones once."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, ops, vector

from eggshard.triton.frequencies import Frequencies
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.layout_costs import SM80, default_costs
from eggshard.triton.layouts.conversion import conversion
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.pricing import cost, priced

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"


class Conversions:
    """A model in which nothing but barriers has a price: one."""

    def price(self, counts: Counts) -> float:
        return float(counts.barriers)


def loaded(body: str) -> Kernel:
    return kernel_of(f"{vector('one')}\n%x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>\n{body}")


def by_name(kernel: Kernel, name: str) -> list[float]:
    return [p.cost for p in priced(kernel, SM80) if p.op.name == name]


def test_a_conversion_costs_what_it_moves_as_often_as_it_runs() -> None:
    line = f"%t{{0}} = ttg.convert_layout %x : {V} -> {W}\n"
    kernel = loaded(f"""{line.format(0)}
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      %k5 = arith.constant 5 : i32
      scf.for %i = %k0 to %k5 step %k1 : i32 {{ {line.format(1)} scf.if %c {{ {line.format(2)} }} }}""")
    machine = Machine.of(kernel)
    (first, *_) = ops(kernel, "ttg.convert_layout")
    layouts = [linear_layout(read(v.tensor.encoding or ""), (256,))
               for v in (first.operands[0], first.results[0]) if v.tensor is not None]
    assert layouts[0] is not None and layouts[1] is not None
    once = SM80.price(conversion(layouts[0], layouts[1], 32, machine).counts)
    assert once > 0
    assert by_name(kernel, "ttg.convert_layout") == [once, 5 * once, 2.5 * once]
    assert [p.times for p in priced(kernel, SM80) if p.is_conversion] == [1, 5, 2.5]


def test_equal_ops_at_one_layout_are_paid_once() -> None:
    """Also where the layout is spelled in another way, and inside of the block that has the first."""
    linear = "#ttg.linear<{register = [[128]], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>"
    kernel = loaded(f"""
      %a = math.exp2 %x : {V}
      %l = ttg.convert_layout %x : {V} -> tensor<256xf32, {linear}>
      %b = math.exp2 %l : tensor<256xf32, {linear}>
      scf.if %c {{ %d = math.exp2 %x : {V} }}
      %t = ttg.convert_layout %x : {V} -> {W}
      %e = math.exp2 %t : {W}""")
    costs = by_name(kernel, "math.exp2")
    assert costs[0] > 0 and costs[1:3] == [0, 0] and costs[3] == costs[0]


def test_ops_in_branches_beside_each_other_are_both_paid() -> None:
    add = f"%a = math.exp2 %x : {V}\n"
    costs = by_name(loaded(f"scf.if %c {{ {add} }} else {{ {add} }}"), "math.exp2")
    assert costs[0] == costs[1] > 0


def test_the_cost_is_the_sum_and_follows_the_model() -> None:
    kernel = loaded(f"%t = ttg.convert_layout %x : {V} -> {W}")
    assert cost(kernel, SM80) == pytest.approx(math.fsum(p.cost for p in priced(kernel, SM80)))
    assert cost(kernel, Conversions()) == sum(
        p.conversion.counts.barriers for p in priced(kernel, SM80) if p.conversion is not None) > 0


def test_assumptions_count() -> None:
    kernel = loaded(f"""
      %k0 = arith.constant 0 : i32
      scf.for %i = %k0 to %n step %n : i32 {{ %t = ttg.convert_layout %x : {V} -> {W} }}""")
    few, many = (cost(kernel, Conversions(), Frequencies(trips=t)) for t in (2.0, 20.0))
    assert many == 10 * few > 0


def test_every_target_has_costs() -> None:
    for target in ("cuda:80", "cuda:90", "cuda:120", "hip:gfx942", ""):
        assert default_costs(target).price(Counts(barriers=1)) > 0
