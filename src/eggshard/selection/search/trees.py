"""The cheapest derivation of every class at every placement, as a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.levels import Level, Levels
from eggshard.selection.segments import Segments

#: Tree costs stop here: a chain of shared classes doubles them at every link, and infinity means underivable.
HUGE = 1e280


class TreeCosts:
    """Per class: the cost of every choice with its operands, of every placement, and which choice gives it.

    choice[c] ``[S]``, placed[c] ``[P]``, best[c] ``[P]`` (choice indices, -1 where underivable). Following ``best``
    never runs in a cycle.
    """

    def __init__(
        self, levels: Levels, choices: np.ndarray, shards: np.ndarray, cyclic: Sequence[tuple[Level, np.ndarray]]
    ) -> None:
        """choices, shards: what all cost. cyclic: levels that have cycles, with the best choices there."""
        self._levels, self._choices, self._shards, self._cyclic = levels, choices, shards, cyclic
        self.choice: list[np.ndarray] = [choices[part] for part in levels.choices]
        self.placed: list[np.ndarray] = [shards[part] for part in levels.shards]

    @cached_property
    def best(self) -> list[np.ndarray]:
        """The choices of the cheapest derivations, found when they are asked for."""
        levels, whole = self._levels, self._levels.whole
        found = np.full(len(levels.begin), -1, np.int64)
        best = _best(whole, self._choices[: len(whole.order)])
        found[: len(best)] = np.where(self._shards[: len(best)] < np.inf, best, -1)
        for level, some in self._cyclic:
            found[level.shards] = np.where(some < 0, -1, some + level.choices.start)
        found = np.where(found < 0, -1, found - levels.begin)
        return [found[part] for part in levels.shards]


def tree_costs(
    graph: Graph, shares: Sequence[float] | None = None, pinned: Mapping[int, int] | None = None
) -> TreeCosts:
    """The cheapest derivation of every class at every placement as a tree.

    A tree pays a shared operand at every use; ``shares[a]`` in (0, 1] scales what a use of operand a is charged.
    Inside cycles shares are 1: then costs only grow along a derivation, and since an entry changes on a strict
    improvement only, ``best`` is free of cycles even at zero cost (the argument for Bellman-Ford's predecessors).
    ``pinned``: {class: its only choice}; the others cost infinitely much.
    """
    levels = graph.levels
    cost = levels.cost.copy()
    for c, s in (pinned or {}).items():
        mine = cost[levels.choices[c]]
        mine[np.arange(len(mine)) != s] = np.inf
    charge = np.ones(len(levels.shard)) if shares is None else np.asarray(shares, float)[levels.operand]
    charge[levels.inside] = 1.0
    choices, shards = np.full(len(cost), np.inf), np.full(len(levels.begin), np.inf)
    cyclic = []
    for level in levels.levels:
        terms = np.empty(len(level.terms.segment))
        terms[level.cost] = cost[level.choices]
        needed, charged = levels.shard[level.needs], charge[level.needs]
        best, changed = np.full(len(level.ends), -1, np.int64), True
        while changed:
            terms[level.need] = shards[needed] * charged
            total = np.bincount(level.terms.segment, terms)  # adds in order
            total[(total > HUGE) & (total < np.inf)] = HUGE
            placed = level.ends.least(level.made.least(total[level.order])[level.row] + level.conversion)
            better = placed < shards[level.shards]
            changed = level.cyclic and bool(better.any())
            if changed:
                best = np.where(better, _best(level, total), best)
            choices[level.choices] = total
            shards[level.shards] = np.where(better, placed, shards[level.shards])
        if level.cyclic:
            cyclic.append((level, best))
    return TreeCosts(levels, choices, shards, cyclic)


def _best(level: Level, total: np.ndarray) -> np.ndarray:
    """The first of a level's choices by which each of its shards costs least."""
    made = total[level.order]
    choice = level.order[_first(level.made, made)]
    through = level.made.least(made)[level.row] + level.conversion
    best: np.ndarray = choice[level.row[_first(level.ends, through)]]
    return best


def _first(segments: Segments, values: np.ndarray) -> np.ndarray:
    """Where each segment has its minimum for the first time."""
    least = np.flatnonzero(values == segments.least(values)[segments.segment])
    segment = segments.segment[least]
    return least[np.flatnonzero(np.diff(segment, prepend=-1))]
