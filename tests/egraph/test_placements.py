"""Candidate placements: the closure against a plain Python one."""

import numpy as np
import pytest

pytest.importorskip("egglog")

from eggshard.egraph.placements import PlacedNode, close_candidates  # noqa: E402


def reference(classes, nodes, tables, seeds, rounds):
    found = [set() for _ in range(classes)]
    for c, p in seeds:
        found[c].add(p)
    for _ in range(rounds):
        new = [set(f) for f in found]
        for n in nodes:
            for out, *ins in tables[n.table].tolist():
                if all(p in found[c] for c, p in zip(n.children, ins, strict=True)):
                    new[n.cls].add(out)
                if out in found[n.cls]:
                    for c, p in zip(n.children, ins, strict=True):
                        new[c].add(p)
        if new == found:
            break
        found = new
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_closure_is_what_plain_loops_find(seed):
    rng = np.random.default_rng(seed)
    classes = 12
    tables = [rng.integers(0, 8, (5, 1 + k)) for k in (0, 1, 1, 2, 2, 3)]
    nodes = [
        PlacedNode(
            int(rng.integers(classes)), tuple(int(c) for c in rng.integers(0, classes, tables[t].shape[1] - 1)), t
        )
        for t in rng.integers(0, len(tables), 14)
    ]
    seeds = [(0, 1), (3, 2), (7, 5)]
    for rounds in (1, 2, 30):
        closure = close_candidates(classes, nodes, tables, seeds, cap=100, rounds=rounds)
        assert [set(c) for c in closure.candidates] == reference(classes, nodes, tables, seeds, rounds)
    assert closure.closed
    for node, product in zip(nodes, closure.products, strict=True):
        expected = [i for i, row in enumerate(tables[node.table].tolist()) if row[0] in closure.candidates[node.cls]]
        assert product.tolist() == expected


def test_the_cap_keeps_the_best_ranked_and_all_seeds():
    table = np.array([[p, 0] for p in range(1, 7)])
    closure = close_candidates(
        2,
        [PlacedNode(1, (0,), 0)],
        [table],
        [(0, 0), (1, 6)],
        cap=3,
        rank=[0, 5, 1, 4, 2, 3, 9],
    )
    assert closure.candidates == [[0], [6, 2, 4]]
    assert closure.products[0].tolist() == [1, 3, 5]


def test_it_is_deterministic():
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 20, (30, 3)) for _ in range(10)]
    nodes = [PlacedNode(i + 2, (i, i + 1), i % 10) for i in range(40)]
    runs = [close_candidates(42, nodes, tables, [(0, 0), (1, 1)], cap=6).candidates for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
