"""Tree costs, level by level: against derivations looked at one by one."""

import math
import random

import numpy as np
import pytest
from tests.selection.problems import random_problem
from tests.slowness import some

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.search.greedy import split_shares
from eggshard.selection.search.trees import tree_costs


def by_derivation(graph: Graph, shares: list[float], pinned: dict[int, int]) -> tuple[list, list]:
    """Per class the costs of its choices and of its placements, by going over all choices until nothing changes."""
    problem = graph.problem
    placed = [[math.inf] * len(table) for table in problem.conversions]
    choice = [[math.inf] * len(choices) for choices in problem.choices]
    changed = True
    while changed:
        changed = False
        for c, choices in enumerate(problem.choices):
            for n, s in enumerate(choices):
                if pinned.get(c, n) != n:
                    continue
                choice[c][n] = s.cost + sum(
                    (1.0 if graph.component[a] == graph.component[c] else shares[a]) * placed[a][q]
                    for a, q in s.needs)
                for p, conversion in enumerate(problem.conversions[c][s.out]):
                    if choice[c][n] + conversion < placed[c][p] - 1e-9:
                        placed[c][p], changed = choice[c][n] + conversion, True
    return choice, placed


@pytest.mark.parametrize("seed", some(range(40), 8))
def test_costs_are_those_of_the_cheapest_derivations(seed):
    rng = random.Random(seed)
    problem = random_problem(rng, classes=3 + seed % 7, cyclic=bool(seed % 2))
    graph, pinned = Graph(problem), {}
    for shares in ([1.0] * len(problem.choices), split_shares(problem)):
        found = tree_costs(graph, shares, pinned)
        choice, placed = by_derivation(graph, shares, pinned)
        for c, costs in enumerate(found.choice):
            np.testing.assert_allclose(costs, choice[c])
            np.testing.assert_allclose(found.placed[c], placed[c])
        c = rng.randrange(len(problem.choices))
        pinned = {c: 0} if problem.choices[c] else {}


@pytest.mark.parametrize("seed", some(range(40), 8))
def test_best_choices_cost_that_and_never_run_in_a_cycle(seed):
    problem = random_problem(random.Random(seed), classes=3 + seed % 7, cyclic=True)
    found = tree_costs(Graph(problem))

    def cost(c: int, p: int, above: tuple = ()) -> float:
        assert (c, p) not in above
        n = found.best[c][p]
        if n < 0:
            return math.inf
        s = problem.choices[c][n]
        return s.cost + problem.conversions[c][s.out, p] + sum(cost(*need, (*above, (c, p))) for need in s.needs)

    for c, placed in enumerate(found.placed):
        np.testing.assert_allclose([cost(c, p) for p in range(len(placed))], placed)


def test_of_equal_choices_the_first_is_best():
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    problem = Problem([[Choice(0, 2.0, ()), Choice(1, 1.0, ()), Choice(1, 1.0, ()), Choice(0, 2.0, ())]], [table],
                      [(0, 0)])
    assert [best.tolist() for best in tree_costs(Graph(problem)).best] == [[0, 1]]


def test_classes_without_choices_or_placements():
    problem = Problem([[], [Choice(0, 1.0, ((0, 0),))], []], [np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((0, 0))],
                      [(1, 0)])
    found = tree_costs(Graph(problem))
    assert [placed.tolist() for placed in found.placed] == [[math.inf], [math.inf], []]
    assert [best.tolist() for best in found.best] == [[-1], [-1], []]
    assert [costs.tolist() for costs in found.choice] == [[], [math.inf], []]
    assert tree_costs(Graph(Problem([], [], []))).placed == []
