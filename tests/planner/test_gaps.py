"""A gap that is told holds against every plan, also those that a search with other limits finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.random_loops import RandomLoop
from tests.random_programs import random_case, random_model
from tests.slowness import some

import eggshard as es
from eggshard.selection.bounds.sharing import sharing_bound
from eggshard.selection.problem import Choice, Problem

#: Searches that leave something out.
CUT = (
    es.Limits(strategies=2), es.Limits(strategies=8), es.Limits(placements=2), es.Limits(iterations=0),
    es.Limits(rows_per_op=1), es.Limits(windows=0), es.Limits(windows=1), es.Limits(seconds=0), es.Limits(permutes=0),
)


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_no_gap_is_told_that_a_wider_search_refutes(seed: int) -> None:
    rng = random.Random(1000 + seed)
    case, model = random_case(rng), random_model(rng)
    plans = [es.optimize(case.program, cost_model=model, limits=limits) for limits in (es.Limits(), *CUT)]
    best = min(plan.cost.total for plan in plans)
    for plan, limits in zip(plans, (es.Limits(), *CUT), strict=True):
        assert 0 <= plan.search_gap <= 1
        assert plan.gap is None or best >= (1 - plan.gap) * plan.cost.total * (1 - 1e-9), limits


@pytest.mark.parametrize("limits", [es.Limits(strategies=2), es.Limits(placements=1), es.Limits(seconds=0)])
def test_what_was_cut_leaves_the_gap_unknown(limits: es.Limits) -> None:
    b = es.ProgramBuilder(mesh={"x": 4, "y": 2})
    x, w = b.input((64, 64), "f32", ("x", "y")), b.input((64, 64), "f32", ("y", "x"))
    b.output(b.tanh(x @ w) @ w, ("x", None))
    program = b.build()
    plan = es.optimize(program, limits=limits)
    assert plan.gap is None and "gap unknown" in str(plan)
    whole = es.optimize(program)
    assert whole.gap is not None and f"gap {100 * whole.gap:.2f} %" in str(whole)
    assert whole.baseline.gap is None and "no bound" in str(whole.baseline)


def test_loops_are_planned_at_few_placements_so_their_gap_is_unknown() -> None:
    loop = RandomLoop((("x", 4), ("y", 2)), ("x", "y"), 64, ((0, 0, "a - b.mean(0, keepdims=True)"),), 1)
    assert es.optimize(loop.lowered(2)).gap is None


def test_conversions_of_one_class_may_share_all_but_the_dearest() -> None:
    free, table = Choice(0, 1.0, ()), np.array([[0.0, 6.0, 4.0], [9.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    same = np.zeros((1, 1))
    one = Problem([[free], [Choice(0, 1.0, ((0, 1),)), Choice(0, 2.0, ((0, 2),))]], [table, same], [(1, 0)])
    assert sharing_bound(one) == 7  # whichever choice is taken, there is one conversion: paid in full
    two = Problem([[free], [Choice(0, 1.0, ((0, 1), (0, 2)))]], [table, same], [(1, 0)])
    assert 2 <= sharing_bound(two) <= 8
    apart = Problem([[free], [Choice(0, 1.0, ((0, 1),))], [Choice(0, 1.0, ((0, 2), (1, 0)))]], [table, same, same],
                    [(2, 0)])
    assert 3 <= sharing_bound(apart) <= 9
