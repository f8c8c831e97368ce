"""Candidate placements: those reachable from the pinned ones through the ops' strategies, forward and backward.

A strategy is a row (result placement, operand placements...) of interned ids; nodes of equal op, attributes and types
share one table. Forward, a strategy whose operands' placements are all candidates makes its result's a candidate;
backward, a candidate result makes its operands' placements candidates. The joins run in egglog, in the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import eggshard.worker as worker


class PlacedNode(NamedTuple):
    """A node of the e-graph: its class, its children's classes, and the number of its strategy table."""

    cls: int
    children: tuple[int, ...]
    table: int


@dataclass(frozen=True)
class Closure:
    """candidates[c]: placement ids of class c in the order found. products[n]: which strategies of node n have a
    candidate result. rounds: how many were run. closed: whether nothing more is reachable (but for the cap)."""

    candidates: list[list[int]]
    products: list[np.ndarray]
    rounds: int
    closed: bool


def close_candidates(
    classes: int, nodes: Sequence[PlacedNode], tables: Sequence[np.ndarray], seeds: Sequence[tuple[int, int]], *,
    cap: int, rank: Sequence[float] = (), rounds: int = 16, seconds: float = 30.0,
    memory_mib: int = worker.DEFAULT_MEMORY_MIB,
) -> Closure:
    """The candidates of ``classes`` classes from pinned ones.

    tables: ``[strategies, 1 + operands]`` arrays of placement ids, the result's first. seeds: (class, placement) pairs,
    always kept. cap: candidates per class; of those found in one round the ones of least ``rank[placement]`` (then
    least id) are kept. rounds: how far the closure reaches. Raises WorkerFailure if the worker dies.
    """
    arrays = [np.ascontiguousarray(t, dtype=np.int64) for t in tables]
    found, run, closed = worker.call(
        "eggshard.egraph.placements:close_in_worker", classes, list(nodes), arrays, list(seeds), cap, list(rank),
        rounds, seconds=seconds, memory_mib=memory_mib,
    )
    products = []
    for node in nodes:
        out = arrays[node.table][:, 0]
        products.append(np.flatnonzero(np.isin(out, np.array(found[node.cls], dtype=np.int64))))
    return Closure(found, products, run, closed)


def close_in_worker(
    classes: int, nodes: list[PlacedNode], tables: list[np.ndarray], seeds: list[tuple[int, int]], cap: int,
    rank: list[float], rounds: int,
) -> tuple[list[list[int]], int, bool]:
    """`close_candidates` in the worker process: candidates, rounds, closed."""
    from eggshard.egraph import adapter

    arities = sorted({len(n.children) for n in nodes} | {1, 2})
    facts: dict[str, list[tuple[int, ...]]] = {f"{name}_{a}": [] for name in ("node", "row") for a in arities}
    for node in dict.fromkeys(nodes):
        facts[f"node_{len(node.children)}"].append((node.table, node.cls, *node.children))
    for number in sorted({n.table for n in nodes}):
        rows = np.unique(tables[number], axis=0)
        numbered = np.concatenate([np.full((len(rows), 1), number, np.int64), rows], axis=1)
        facts[f"row_{rows.shape[1] - 1}"].extend(map(tuple, numbered.tolist()))
    candidates: list[list[int]] = [[] for _ in range(classes)]
    known: list[set[int]] = [set() for _ in range(classes)]

    def accept(pairs: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
        """Pairs that are new and within the limit, best first."""
        kept = []
        for cls, placement in sorted(pairs, key=lambda pair: (pair[0], rank[pair[1]] if rank else 0.0, pair[1])):
            if placement not in known[cls] and len(candidates[cls]) < limit:
                known[cls].add(placement)
                candidates[cls].append(placement)
                kept.append((cls, placement))
        return kept

    facts["cand"] = list(accept(list(seeds), max(len(seeds), cap)))
    base = (
        "(relation cand (i64 i64)) (relation reached (i64 i64)) (ruleset none) (ruleset close) (ruleset forget)"
        "(rule ((reached c p)) ((delete (reached c p))) :ruleset forget)",
        *(_rules(a) for a in arities),
    )
    outcome = adapter.begin(base, "", facts, "none", "close", ("reached",), ())
    run = 1
    new = accept(outcome.watched.get("reached", []), cap)  # type: ignore[arg-type]
    while new and run < rounds:
        outcome = adapter.step({"cand": new}, "none", "forget", "close", ("reached",), 1 << 62)
        new = accept(outcome.watched.get("reached", []), cap)  # type: ignore[arg-type]
        run += 1
    adapter.finish((), "")
    return candidates, run, not new


def _rules(arity: int) -> str:
    """The relations of nodes and strategies of an arity, and the closure's two directions."""
    classes = " ".join(f"c{i}" for i in range(arity))
    placements = " ".join(f"p{i}" for i in range(arity))
    held = " ".join(f"(cand c{i} p{i})" for i in range(arity))
    needed = " ".join(f"(reached c{i} p{i})" for i in range(arity))
    both = f"(node_{arity} t c {classes}) (row_{arity} t p {placements})"
    backward = f"(rule ({both} (cand c p)) ({needed}) :ruleset close)" if arity else ""
    return (f"(relation node_{arity} ({'i64 ' * (2 + arity)})) (relation row_{arity} ({'i64 ' * (2 + arity)}))"
            f"(rule ({both} {held}) ((reached c p)) :ruleset close)" + backward)
