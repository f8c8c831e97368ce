"""A kernel's plan as a table."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, vector

from eggshard.triton.layouts.encodings import read
from eggshard.triton.planning import LayoutPlan, given_plan, plan_layouts
from eggshard.triton.table import short

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"


def plan(body: str = "") -> LayoutPlan:
    return plan_layouts(kernel_of(f"""{vector("one")}{vector("two", "2", "%q")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %t = ttg.convert_layout %x : {V} -> {W}
      tt.store %at2, %t : tensor<256x!tt.ptr<f32>, #two>
      {body}"""))


def test_a_line_per_conversion_beneath_what_is_saved_and_proved() -> None:
    found = plan()
    first, second, head, row = str(found).splitlines()
    assert first.startswith("layouts of kernel for cuda:80: 1 -> 1 conversions, cost ")
    assert second == found.certificate
    assert head.split() == ["tensor", "from", "to", "by", "times", "cost", "%"]
    assert row.split()[:3] == ["256xf32", "blocked[1|32|4]", "blocked[2|32|4]"] and "B" in row.split()


def test_without_conversions_there_is_no_table() -> None:
    found = plan_layouts(kernel_of(f"{vector('one')}%x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>"))
    assert len(str(found).splitlines()) == 2 and "0 -> 0 conversions" in str(found)


def test_what_is_as_given_saves_nothing() -> None:
    kernel = plan().given
    assert "(+0.0 %)" in str(given_plan(kernel)) or "(-0.0 %)" in str(given_plan(kernel))


def test_dearest_first() -> None:
    wide = "tensor<256xf16, #one>"
    found = plan(f"""
      %h = tt.atomic_rmw fadd, acq_rel, gpu, %at, %x : (tensor<256x!tt.ptr<f32>, #one>, {V}) -> {V}
      %m = arith.truncf %h : {V} to {wide}
      %c2 = ttg.convert_layout %m : {wide} -> tensor<256xf16, #two>
      %e = arith.extf %c2 : tensor<256xf16, #two> to {W}
      tt.store %at2, %e : tensor<256x!tt.ptr<f32>, #two>""")
    costs = [float(line.split()[-2]) for line in str(found).splitlines()[3:]]
    assert len(costs) == 2 and costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(("text", "said"), [
    ("#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>",
     "blocked[1,8|4,8|4,1]"),
    ("#ttg.slice<{dim = 1, parent = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], "
     "instrShape = [16, 8]}>}>", "slice(1, mma[2,2])"),
    ("#ttg.dot_op<{opIdx = 0, parent = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], "
     "instrShape = [16, 8]}>, kWidth = 2}>", "dot_op(0, mma[4,1])"),
    ("#ttg.linear<{register = [[1]], lane = [], warp = [], block = []}>", "linear"),
])
def test_encodings_in_a_few_words(text: str, said: str) -> None:
    assert short(read(text)) == said
