"""Merged classes: the smaller problem's optimum against exhaustive search."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from tests.selection.problems import brute_force, random_conversions, random_problem

from eggshard.selection.certify.merge import _Groups, merge
from eggshard.selection.graph import Graph
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.shrink import shrink
from eggshard.selection.search.greedy import greedy


@st.composite
def problems(draw):
    """Small problems in which some tensors have a copy: the same up to a factor, and needed in its place at random."""
    rng = random.Random(draw(st.integers(0, 10**9)))
    problem = random_problem(rng, classes=3, placements=draw(st.integers(2, 3)), choices=draw(st.integers(1, 3)),
                             cyclic=draw(st.booleans()), free=draw(st.sampled_from([0, 0.3, 0.9])))
    copied = {c: len(problem.choices) + i for i, c in enumerate(rng.sample(range(3), draw(st.integers(1, 2))))}
    for c in copied:
        size = len(problem.conversions[c])
        problem.choices.append([Choice(p, draw(st.sampled_from([0.0, 1.0])), ((c, p),)) for p in range(size)])
        problem.conversions.append(problem.conversions[c])
    both = rng.random() < 0.5
    for c in range(3):
        problem.choices[c] = [
            s._replace(needs=tuple((copied.get(a, a) if rng.random() < 0.5 else a, q) for a, q in s.needs))
            for s in problem.choices[c]]
    problem.roots = [(copied.get(c, c) if rng.random() < 0.5 else c, q) for c, q in problem.roots]
    if both:
        c, copy = next(iter(copied.items()))
        size = len(problem.conversions[c])
        problem.roots = list(dict.fromkeys(
            [*problem.roots, (c, rng.randrange(size)), (copy, rng.randrange(size))]))
    return problem


@given(problems())
@hypothesis_settings(max_examples=150)
def test_merging_never_makes_the_optimum_dearer(problem):
    optimum = brute_force(problem)
    if not 0 < optimum < math.inf:
        return
    graph = Graph(problem)
    merged = merge(graph, greedy(graph).whole, optimum * 1e5)  # what differs by the optimum itself counts as equal
    if merged is not None:
        assert brute_force(merged) <= optimum * (1 + 1e-12)


@given(problems(), st.integers(0, 1000))
@hypothesis_settings(max_examples=200)
def test_any_classes_may_be_merged(problem, seed):
    """What `merge` chooses matters for how good the bound is, not for whether it holds: copies, or any two classes."""
    optimum = brute_force(problem)
    if optimum == math.inf:
        return
    rng = random.Random(seed)
    groups = _Groups(problem)
    for copy in range(3, len(problem.choices)):
        ((original, _),) = problem.choices[copy][0].needs
        groups.unite(copy, original, {p: p for p in range(len(problem.conversions[copy]))})
    if rng.random() < 0.3:
        c, a = rng.sample(range(len(problem.choices)), 2)
        size = len(problem.conversions[c])
        groups.unite(c, a, dict(zip(range(size), rng.sample(range(size), size), strict=True)))
    assert brute_force(groups.problem()) <= optimum * (1 + 1e-12)


def scaled_twice(rng: random.Random) -> Problem:
    """A tensor whose conversion two consumers share, and copies of it that differ by a factor: before, after, at once.

    A linear program takes a third of each copy and pays a third of each conversion.
    """
    matrix = random_conversions(rng, 3, impossible=0.0, free=0.0)
    table = [[Choice(0, 0.0, ())], [Choice(0, 1.0, ((0, 0),))]]
    table += [[Choice(p, 1e-9, ((1, p),)) for p in range(3)] for _ in range(2)]
    table.append([Choice(p, 1e-9, ((c, p),)) for c in (2, 3) for p in range(3)] + [Choice(1, 1e-9, ((1, 1),))])
    return Problem(table, [matrix] * 5, [(4, 1)])


def test_classes_that_differ_by_next_to_nothing_are_merged():
    problem = scaled_twice(random.Random(1))
    graph = Graph(problem)
    found = greedy(graph)
    merged = merge(graph, found.whole, found.plans[0].cost)
    assert merged is not None
    assert sum(map(bool, shrink(merged).problem.choices)) < sum(map(bool, shrink(problem).problem.choices))
    assert brute_force(merged) == pytest.approx(brute_force(problem), rel=1e-6)


def test_a_copy_lets_conversions_start_where_the_tensor_was_converted_to():
    """A gathered tensor's copy is sliced for free; merged, this must not cost a second conversion."""
    matrix = np.array([[0.0, 10.0, 8.0], [0.0, 0.0, 0.0], [8.0, 10.0, 0.0]])
    problem = Problem([[Choice(0, 1.0, ())], [Choice(1, 0.0, ((0, 1),))]], [matrix] * 2, [(0, 1), (1, 2)])
    groups = _Groups(problem)
    assert groups.unite(1, 0, {p: p for p in range(3)})
    assert brute_force(problem) == brute_force(groups.problem()) == 11
    assert extract(problem).selection.cost == 11
