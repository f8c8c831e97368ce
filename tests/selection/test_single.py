"""Classes that a plan may compute once: in every extractor, and through every change of a problem."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from bench.extraction_peers import and_or_program
from tests.selection.carried import large_kernel, small_loops
from tests.selection.exhaustive import Tally, TooLarge, made_up, optimum

from eggshard.errors import LimitError
from eggshard.selection.bounds.bound import least_derivations
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import METHODS, extract
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.selection.reductions.parts import affordable, of_plans, same_terms
from eggshard.selection.reductions.presolve import shrink
from eggshard.selection.search import greedy as greedy_module
from eggshard.selection.search.greedy import greedy
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.verify import check, complete

FIXED = np.array([[0.0, math.inf], [math.inf, 0.0]])
#: Sets of choices that are looked at before a problem counts as too large to enumerate.
MOST = 20_000


def carried(far: float = 10.0, seeds: list[dict[int, int]] | None = None) -> Problem:
    """Initial value 0, carried value 1 at either placement, used at both by 2 and 3, and handed on with 3 as 4."""
    far_apart = np.array([[0.0, far], [far, 0.0]])
    both = (0, 1)
    return Problem([
        [Choice(0, 1.0, ())],
        [Choice(p, 0.0, ((0, p),)) for p in both],
        [Choice(p, 1.0 + 5 * p, ((1, p),)) for p in both],
        [Choice(p, 6.0 - 5 * p, ((1, p), (2, p))) for p in both],
        [Choice(p, 0.0, ((1, p), (3, p))) for p in both],
    ], [far_apart, FIXED, far_apart, far_apart, far_apart], [(4, 0)], seeds or [], frozenset({1}))


def problems(seed: int, count: int, loops: bool) -> Iterator[tuple[Problem, float]]:
    """Problems small enough to enumerate, with the cost of their best plans."""
    rng = random.Random(seed)
    while count:
        problem = small_loops(rng, rng.randint(6, 14)) if loops else made_up(rng)
        if not loops:
            share = rng.choice((0.2, 0.5, 1.0))
            problem.single = frozenset(c for c in range(len(problem.choices)) if rng.random() < share)
        try:
            best = optimum(problem, MOST)
        except TooLarge:
            continue
        if best < math.inf:
            count -= 1
            yield problem, best


def wrong_of(seed: int, count: int, loops: bool, methods: tuple[str, ...] | None = None) -> list[str]:
    tally, wrong = Tally(), []
    for i, (problem, best) in enumerate(problems(seed, count, loops)):
        wrong += [f"case {i} of seed {seed}: {what}" for what in tally.take(problem, best, methods)]
    return wrong


def test_two_placements_are_no_plan():
    problem = carried()
    copied = Selection({0: (0,), 1: (0, 1), 2: (1,), 3: (0, 1), 4: (0,)}, ((0, 0, 1), (2, 1, 0)), 0.0)
    assert check(problem, copied) == ["class 1 is computed 2 times, and may be once"]
    assert check(replace(problem, single=frozenset()), copied) == []
    assert complete(problem, copied.chosen) is None
    assert complete(problem, {0: (0,), 1: (0, 1), 2: (0,), 3: (0,), 4: (0,)}).chosen[1] == (0,)


@pytest.mark.parametrize(("loops", "count"), [(True, 40), (False, 40)])
def test_the_selection_is_optimal(loops, count):
    assert wrong_of(0, count, loops) == []


@pytest.mark.slow
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_selection_is_optimal_in_every_one_of_many_cases(seed, loops):
    assert wrong_of(seed, 100, loops) == []


@pytest.mark.parametrize("method", METHODS)
def test_every_member_alone_gives_a_valid_plan_and_a_bound(method):
    for loops in (True, False):
        for problem, best in problems(5, 8, loops):
            found = extract(problem, methods=("greedy", method), exact=True)
            assert check(problem, found.selection) == []
            assert found.selection.cost >= best * (1 - 1e-9) and found.bound <= best * (1 + 1e-9)


def test_shrinking_and_narrowing_keep_the_optimum():
    for loops in (True, False):
        for problem, best in problems(8, 12, loops):
            small, inverse = shrink(problem)
            assert optimum(small, MOST) == pytest.approx(best, rel=1e-9)
            narrowed, _ = shrink(affordable(small, least_derivations(Graph(small)).placed, best * (1 + 1e-9)))
            assert optimum(narrowed, MOST) == pytest.approx(best, rel=1e-9)
            for plan in greedy(Graph(small)).plans:
                lifted = inverse.lift(plan)
                assert lifted is not None and check(problem, lifted) == []


def test_the_integer_program_alone_has_the_optimum():
    for loops in (True, False):
        assert wrong_of(9, 8, loops, ("greedy", "shards")) == []


def test_parts_of_a_problem_keep_the_rule():
    for problem, best in problems(3, 12, False):
        plan = extract(problem, gap=0.0).selection
        for part in (same_terms(problem, plan.chosen), of_plans(problem, [plan])):
            assert optimum(part, MOST) == pytest.approx(best, rel=1e-9)


def test_a_class_that_is_free_at_two_placements_is_made_at_one():
    """By one choice for nothing at either placement, but not at both."""
    problem = Problem(
        [[Choice(0, 0.0, ()), Choice(1, 0.0, ())], [Choice(0, 1.0, ((0, 0),)), Choice(0, 9.0, ((0, 1),))],
         [Choice(0, 1.0, ((0, 1),)), Choice(0, 4.0, ((0, 0),))]],
        [FIXED, np.zeros((1, 1)), np.zeros((1, 1))], [(1, 0), (2, 0)], single=frozenset({0}))
    assert extract(problem).selection.cost == optimum(problem) == 5
    assert extract(replace(problem, single=frozenset())).selection.cost == 2
    everywhere = replace(problem, conversions=[np.zeros((2, 2)), *problem.conversions[1:]])
    found = extract(everywhere).selection
    assert found.cost == 2 and len(found.chosen[0]) == 1


def test_greedy_pins_what_its_trees_need_twice():
    cheap = carried(far=0.5)
    graph = Graph(cheap)
    trees = greedy_module.decode(graph, greedy_module.tree_costs(graph))
    assert len(trees[1]) == 2
    (plan, *_) = greedy(graph).plans
    assert len(plan.chosen[1]) == 1


def test_a_seed_is_kept_where_nothing_else_is_found(monkeypatch):
    monkeypatch.setattr(greedy_module, "PINNINGS", 0)
    with pytest.raises(LimitError, match="at one placement"):
        extract(carried(far=0.5), methods=("greedy",))
    seed = dict.fromkeys(range(5), 1) | {0: 0}
    found = extract(carried(far=0.5, seeds=[seed]), methods=("greedy",))
    assert check(carried(far=0.5), found.selection) == []
    assert found.bound <= found.selection.cost


def test_local_search_makes_no_copies():
    problem = carried(far=0.5)
    graph = Graph(problem)
    search = LocalSearch(graph, greedy_module.tree_costs(graph).best)
    start = {0: (0,), **{c: (1,) for c in range(1, 5)}}
    plan = search.improve(start)
    assert plan is not None and check(problem, plan) == []
    assert search.improve({**start, 1: (0, 1), 2: (0,), 3: (1,)}) is None or len(plan.chosen[1]) == 1


def test_the_and_or_program_knows_the_rule():
    for problem, best in problems(4, 6, True):
        if best > 0:
            chosen, bound = and_or_program(problem, 10.0, best)
            plan = complete(problem, chosen)
            assert plan is not None and plan.cost == pytest.approx(best, rel=1e-3)
            assert bound <= best * (1 + 1e-6)


def test_a_kernel_is_solved_to_a_certificate_of_all_plans():
    problem = large_kernel(random.Random(2), 100, 6, 3)
    found = extract(problem, exact=True, gap=1e-5, seconds=60.0)
    assert check(problem, found.selection) == []
    assert found.selection.cost - found.bound <= 1e-5 * found.selection.cost
