"""Batches of classes in a dual ascent: disjoint, in order, and the same as one class after the other."""

import random

import numpy as np
import pytest
from tests.selection.problems import residual_mlp, sharded_program, stencil_windows

from eggshard.selection.bounds.balancing import balance
from eggshard.selection.bounds.batches import batches
from eggshard.selection.bounds.dual import Dual
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem
from eggshard.selection.reductions.presolve import shrink
from eggshard.selection.search.greedy import greedy

PROBLEMS = [
    residual_mlp(6, candidates=4), stencil_windows(6, 3.0),
    *(shrink(sharded_program(random.Random(seed), 30, 5, 8))[0] for seed in range(4)),
]


def dual_of(problem: Problem) -> Dual:
    graph = Graph(problem)
    return Dual(graph, greedy(graph).plans[0].cost)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_batches_touch_no_label_twice_and_keep_the_order_of_what_touches_the_same(problem: Problem) -> None:
    classes = list(dual_of(problem).used.values())
    found = batches(classes)
    place = {uses.number: i for i, some in enumerate(found) for uses in some}
    assert sorted(place) == sorted(uses.number for uses in classes)
    assert all(len({uses.alone for uses in some}) == 1 for some in found)
    for i, uses in enumerate(classes):
        for later in classes[i + 1 :]:
            if not set(uses.touched()).isdisjoint(later.touched()):
                assert place[uses.number] < place[later.number]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_batch_changes_what_its_classes_do_one_after_the_other(problem: Problem) -> None:
    together, apart = dual_of(problem), dual_of(problem)
    order = list(apart.used)
    for temperature in (1e-1, 1e-2, 1e-3):
        for up in (False, True):
            for block in together.blocks if up else reversed(together.blocks):
                balance(together.slack, block, up, temperature)
            for c in order if up else reversed(order):
                balance(apart.slack, apart.part(c), up, temperature)
            np.testing.assert_allclose(together.slack, apart.slack, rtol=0, atol=1e-12)
    assert together.evaluate() == pytest.approx(apart.evaluate(), abs=1e-12)
