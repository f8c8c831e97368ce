"""Pruning of candidate placements to a cap per class: the closure of pinned ones, computed by joins in the e-graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eggshard.egraph.placements import PlacedNode, close_candidates
from eggshard.program.placement import Placement
from eggshard.selection.problem import Choice

Shape = tuple[Placement, ...]


def within_cap(
    choices: Sequence[Sequence[Choice]], placements: Sequence[Sequence[Placement | Shape]],
    pinned: Iterable[tuple[int, int]], cap: int, memory_mib: int,
) -> list[list[Choice]]:
    """The choices among at most ``cap`` candidate placements of each class.

    Candidates are what ``pinned`` (class, placement) pairs reach through the choices, forward and backward, nearest
    first; of those equally near, the ones without partial values and with the most axes. Every class keeps its choice
    over the fewest axes, mostly replication, so that some plan remains under every cap. Without a class beyond the cap
    all choices stay, and no closure is needed.
    """
    if max((len(p) for p in placements), default=0) <= cap:
        return [list(c) for c in choices]
    number: dict[Placement | Shape, int] = {}
    ids = [[number.setdefault(p, len(number)) for p in table] for table in placements]
    nodes: list[PlacedNode] = []
    tables: list[np.ndarray] = []
    for c, made in enumerate(choices):
        rows: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for choice in made:
            children = tuple(child for child, _ in choice.needs)
            rows.setdefault(children, []).append((ids[c][choice.out], *(ids[w][q] for w, q in choice.needs)))
        for children, table in rows.items():
            nodes.append(PlacedNode(c, children, len(tables)))
            tables.append(np.array(sorted(set(table)), np.int64))
    plain = (
        shard
        for c, made in enumerate(choices) if made
        for choice in [min(made, key=lambda x: sum(_axes(placements[w][q]) for w, q in ((c, x.out), *x.needs)))]
        for shard in ((c, choice.out), *choice.needs)
    )
    seeds = [(c, ids[c][p]) for c, p in dict.fromkeys((*pinned, *plain))]
    closure = close_candidates(
        len(choices), nodes, tables, seeds, cap=cap, rank=[_rank(p) for p in number], memory_mib=memory_mib
    )
    kept = [set(found) for found in closure.candidates]
    return [
        [x for x in made if ids[c][x.out] in kept[c] and all(ids[w][q] in kept[w] for w, q in x.needs)]
        for c, made in enumerate(choices)
    ]


def _axes(placement: Placement | Shape) -> int:
    """Over how many axes the placement spreads something."""
    if isinstance(placement, Placement):
        return len(placement.sharded_axes) + len(placement.partial)
    return sum(map(_axes, placement))


def _rank(placement: Placement | Shape) -> float:
    if isinstance(placement, Placement):
        return 8.0 * len(placement.partial) - len(placement.sharded_axes)
    return float(sum(_rank(p) for p in placement))
