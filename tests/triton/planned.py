"""Plans of kernels, with everything checked that is promised of any plan; and kernels from a few lines of text."""

from __future__ import annotations

from typing import Any

import pytest
from testing.kernel_interpreter import Judgement, judge

from eggshard.triton.alignment import check_layouts
from eggshard.triton.frontend.libtriton import load, module_of
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.kernels.text import read_generic, write_generic
from eggshard.triton.planning import LayoutPlan, plan_layouts
from eggshard.triton.pricing import cost

#: What pieces of text say for short: four warps of 32 threads on a vector, and on a matrix by rows and by columns.
ALIASES = """
#one = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#two = #ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#four = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#rows = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>
#columns = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 4], order = [0, 1]}>
#last = #ttg.slice<{dim = 1, parent = #rows}>
#first = #ttg.slice<{dim = 0, parent = #columns}>
"""
ATTRIBUTES = ('"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:80", '
              '"ttg.threads-per-warp" = 32 : i32')
#: Pointers to 256 elements at an encoding, a vector of their numbers, and what follows.
VECTOR = """
  %range = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32, #LAYOUT>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, #LAYOUT>
  %at = tt.addptr %base, %range : tensor<256x!tt.ptr<f32>, #LAYOUT>, tensor<256xi32, #LAYOUT>
"""


def kernel_of(
    body: str, arguments: str = "%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %n: i32, %c: i1", more: str = "",
) -> Kernel:
    """The kernel of a function's body in libtriton's own spelling; ``more``: other functions."""
    return load(f"{ALIASES}module attributes {{{ATTRIBUTES}}} {{\n{more}\ntt.func public @kernel({arguments}) "
                f"attributes {{noinline = false}} {{\n{body}\n  tt.return\n}}\n}}\n")


def vector(layout: str, prefix: str = "", pointer: str = "%p") -> str:
    """`VECTOR` at a layout, with other names."""
    text = VECTOR.replace("LAYOUT", layout).replace("%p ", f"{pointer} ")
    for name in ("%range", "%base", "%at"):
        text = text.replace(name, f"{name}{prefix}")
    return text


def checked(kernel: Kernel, judged: bool = True, **how: Any) -> LayoutPlan:
    """The plan: it verifies, its layouts line up, it leaves what the given kernel leaves, and its figures agree.

    how: for `judge`.
    """
    plan = plan_layouts(kernel, seconds=60.0)
    module_of(plan.kernel)
    check_layouts(plan.kernel)
    if judged:
        leaves_the_same(kernel, plan.kernel, **how)
    again = read_generic(write_generic(plan.kernel))
    assert plan.cost == pytest.approx(cost(again, plan.cost_model, plan.assumed))
    assert plan.cost <= plan.given_cost * (1 + 1e-9)
    assert plan.bound <= plan.cost * (1 + 1e-9)
    return plan


def leaves_the_same(given: Kernel, rewritten: Kernel, **how: Any) -> Judgement:
    found = judge(given, rewritten, **how)
    assert found.pages > 0
    return found


def ops(kernel: Kernel, name: str) -> list[Operation]:
    """All ops of a name, in the order of the text."""
    return [op for op in kernel.walk() if op.name == name]


def names(kernel: Kernel) -> list[str]:
    return [op.name for op in kernel.walk()]
