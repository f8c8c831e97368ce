"""Plans of small kernels cost what the best of all plans costs, found by looking at them all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest

pytest.importorskip("triton")

from tests.selection.exhaustive import TooLarge, optimum
from tests.triton.planned import checked, kernel_of, vector
from tests.triton.random_kernels import random_text

from eggshard.triton.alignment import check_layouts
from eggshard.triton.candidates import Candidates, find_candidates
from eggshard.triton.classes import Classes, find_classes
from eggshard.triton.frequencies import frequencies
from eggshard.triton.frontend.libtriton import load
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layout_costs import LayoutCostModel, default_costs
from eggshard.triton.layouts.conversion import conversion
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.liveness import find_live
from eggshard.triton.pricing import cost
from eggshard.triton.problem import NOTHING, Builder, KernelProblem
from eggshard.triton.rewriting import rewrite
from eggshard.triton.rules import Option
from eggshard.triton.rules.costs import bits
from eggshard.triton.spelling import Layouts

V, W, F = (f"tensor<256xf32, #{name}>" for name in ("one", "two", "four"))

STRAIGHT = {
    "chain": f"""{vector("one")}{vector("two", "2", "%q")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %a = math.exp2 %x : {V}
      %t = ttg.convert_layout %a : {V} -> {F}
      %b = math.absf %t : {F}
      %u = ttg.convert_layout %b : {F} -> {W}
      tt.store %at2, %u : tensor<256x!tt.ptr<f32>, #two>""",
    "narrow before wide": f"""{vector("one")}{vector("two", "2", "%q")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %h = arith.truncf %x : {V} to tensor<256xf16, #one>
      %e = arith.extf %h : tensor<256xf16, #one> to {V}
      %t = ttg.convert_layout %e : {V} -> {W}
      tt.store %at2, %t : tensor<256x!tt.ptr<f32>, #two>""",
    "computed twice": f"""{vector("one")}{vector("two", "2", "%q")}
      %i = arith.sitofp %range : tensor<256xi32, #one> to {V}
      %t = ttg.convert_layout %i : {V} -> {W}
      tt.store %at2, %t : tensor<256x!tt.ptr<f32>, #two>
      tt.store %at, %i : tensor<256x!tt.ptr<f32>, #one>""",
    "a slice": """
      %r = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #one>
      %l = ttg.convert_layout %r : tensor<32xi32, #one> -> tensor<32xi32, #last>
      %e = tt.expand_dims %l {axis = 1 : i32} : tensor<32xi32, #last> -> tensor<32x1xi32, #rows>
      %b = tt.broadcast %e : tensor<32x1xi32, #rows> -> tensor<32x32xi32, #rows>
      %t = ttg.convert_layout %b : tensor<32x32xi32, #rows> -> tensor<32x32xi32, #columns>
      %s = arith.sitofp %t : tensor<32x32xi32, #columns> to tensor<32x32xf32, #columns>
      %o = tt.splat %p : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>, #columns>
      tt.store %o, %s : tensor<32x32x!tt.ptr<f32>, #columns>""",
}
#: Assignments that are looked at.
MOST = 60_000


def build(kernel: Kernel, model: LayoutCostModel) -> tuple[Classes, Candidates, KernelProblem]:
    classes = find_classes(kernel)
    candidates = find_candidates(kernel, classes)
    return classes, candidates, Builder(kernel, classes, candidates, frequencies(kernel), model).build()


def subsets(options: list[Option]) -> Iterator[tuple[Option, ...]]:
    """One option, or two."""
    yield from itertools.combinations(options, 1)
    yield from itertools.combinations(options, 2)


def best(kernel: Kernel) -> float:
    """The least cost of a kernel without loops and branches: every op at each of its options, or at two of them, and
    conversions from the nearest of what is computed."""
    model, machine = default_costs(kernel.target), Machine.of(kernel)
    classes, candidates, problem = build(kernel, model)
    live = find_live(kernel, classes)
    ops = [op for op in candidates.options if op in live]

    def price(c: int, source: Encoding, target: Encoding) -> float:
        type_ = classes.types[c]
        ends = [linear_layout(e, type_.shape) for e in (source, target)]
        if ends[0] is None or ends[1] is None:
            return math.inf
        return model.price(conversion(ends[0], ends[1], bits(type_.element), machine).counts)

    def layouts(chosen: dict[Operation, tuple[Option, ...]]) -> Layouts | None:
        made: dict[int, list[Encoding]] = {}
        needed: dict[int, dict[Encoding, None]] = {}
        for op, options in chosen.items():
            for option in options:
                for value, encoding in zip(op.results, option.results, strict=True):
                    if value in classes.of and encoding is not None:
                        made.setdefault(classes.of[value], []).append(encoding)
                for value, encoding in zip(op.operands, option.operands, strict=True):
                    if value in classes.of and encoding is not None:
                        needed.setdefault(classes.of[value], {})[encoding] = None
        converted = {}
        for c, wanted in needed.items():
            moved = [(min(made[c], key=lambda e: price(c, e, target)), target)  # noqa: B023
                     for target in wanted if target not in made[c]]
            if any(price(c, *ends) == math.inf for ends in moved):
                return None
            converted[c] = moved
        return Layouts({op: list(options) for op, options in chosen.items()}, converted=converted)

    choices = [list(subsets(list(candidates.options[op]))) if op.results
               else [(option,) for option in candidates.options[op]] for op in ops]
    assert math.prod(map(len, choices)) <= MOST
    least = math.inf
    for some in itertools.product(*choices):
        found = layouts(dict(zip(ops, some, strict=True)))
        if found is not None:
            least = min(least, cost(rewrite(problem, found), model))
    return least


@pytest.mark.parametrize("name", [
    "narrow before wide", "a slice", "computed twice", pytest.param("chain", marks=pytest.mark.slow)])
def test_no_assignment_costs_less(name: str) -> None:
    kernel = kernel_of(STRAIGHT[name])
    plan = checked(kernel)
    assert plan.cost == pytest.approx(best(kernel)) and plan.gap == pytest.approx(0)


def optimal(seed: int, ops: int) -> bool:
    """Whether a drawn kernel was small enough to look at all selections; they must cost no less than the plan."""
    kernel = load(random_text(seed, ops))
    model = default_costs(kernel.target)
    _, _, problem = build(kernel, model)
    try:
        least = optimum(problem.problem)
    except TooLarge:
        return False
    plan = checked(kernel, judged=False)
    check_layouts(plan.kernel)
    slack = NOTHING * (plan.given_conversions + plan.conversions + 1)
    assert plan.cost == pytest.approx(least + problem.fixed, abs=slack)
    assert plan.bound == pytest.approx(least + problem.fixed, abs=slack)
    return True


def test_no_selection_of_small_drawn_kernels_costs_less() -> None:
    assert sum(optimal(seed, 3) for seed in range(20)) >= 5


@pytest.mark.slow
def test_no_selection_of_drawn_kernels_costs_less() -> None:
    assert sum(optimal(seed, 4) for seed in range(100, 300)) >= 20
