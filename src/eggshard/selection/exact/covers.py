"""Cover cuts: sets of choices and conversions of which every plan has at least one, found by minimum cuts.

A *policy* names one need of every choice. Whatever derives a root contains a path of needs, conversions, shards and
choices that follows the policy down to a choice without needs. So a set that cuts all those paths meets every plan,
with copies, alternatives and cycles included, and its variables sum to at least 1. A minimum cut by a relaxation's
values finds a violated one. Without these cuts a relaxation lets consumers that stand in for each other each take a
fraction of a class and pays for one fraction only, and lets fractions along a cycle feed each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

#: The least violation (1 minus the row's sum) for which a cover row is added.
VIOLATION = 1e-2
#: The most cover rows added in one round, and the most suspects examined; sums below `_NOTHING` count as zero.
ROWS, SUSPECTS = 30, 200
#: A conversion or shard is suspect where it serves this many times what is there of it.
SHARED = 1.01
#: Amounts of a solution of the linear program below this are none.
_NOTHING = 1e-9

#: A class at a placement.
Shard = tuple[int, int]


@dataclass
class Columns:
    """Where the variables of a program over shards are.

    order: the classes, operands before consumers except in cycles. made: per class {out: its choices' columns}.
    needs: the shards that a choice needs, by column. paid: per needed shard its sources: (placement, column of the
    conversion, whether that is free), -1 for the shard itself.
    """

    order: Sequence[int]
    made: Sequence[Mapping[int, Sequence[int]]]
    roots: Sequence[Shard]
    needs: dict[int, Sequence[Shard]] = field(default_factory=dict)
    sources: dict[Shard, list[tuple[int, int, bool]]] = field(default_factory=dict)


class Covers:
    """Separates cover rows of one solution; ``values`` by column."""

    def __init__(self, columns: Columns, values: np.ndarray) -> None:
        self.columns = columns
        self.value: list[float] = values.tolist()
        self.made = [{p: sum([self.value[x] for x in some]) for p, some in row.items()} for row in columns.made]
        self._find_suspects()
        #: worth[need] ``[T]``: a bound on the cut below a need, per suspect that costs nothing to cut.
        self.worth: dict[Shard, np.ndarray] = {}
        #: policy[column] ``[T]``: the number of the need that is cheapest to cut.
        self.policy: dict[int, np.ndarray] = {}

    def rows(self) -> list[list[int]]:
        """Columns of which at least one is 1 in every plan, and which sum to less now.

        Suspects are conversions and shards that are there in part. Each is tried as the neck of all paths: the policy
        is then to make for it wherever that leaves least beside it.
        """
        if not self.suspects:
            return []
        self._tree_cuts()
        found: dict[tuple[int, ...], None] = {}
        for root in self.columns.roots:
            total = self.worth[root] + np.array(self.own)
            for t in np.argsort(total, kind="stable").tolist():
                if total[t] >= 1 - VIOLATION or len(found) >= ROWS:
                    break
                row = self._cut(root, t)
                if row is not None:
                    found[tuple(row)] = None
        return [list(row) for row in found]

    def _find_suspects(self) -> None:
        """Number the conversions (by column) and shards that are there in part and serve more than that, the fullest
        last."""
        demand = dict.fromkeys(self.columns.sources, 0.0)
        for root in self.columns.roots:
            demand[root] += 1.0
        for x, needs in self.columns.needs.items():
            for need in needs:
                demand[need] += self.value[x]
        part: list[tuple[float, int | Shard]] = []
        leaving: dict[Shard, float] = {}
        for need, sources in self.columns.sources.items():
            c, served = need[0], 0.0
            for p, paid, free in sources:
                shard = c, p
                leaving[shard] = leaving.get(shard, 0.0) + (demand[need] if free else self.value[paid])
                served += self.made[c][p] if free else self.value[paid]
            if demand[need] > SHARED * served:
                part += [(self.value[paid], paid) for _, paid, free in sources if not free]
        part += [(self.made[c][p], (c, p)) for (c, p), taken in leaving.items() if taken > SHARED * self.made[c][p]]
        part = [(value, what) for value, what in part if _NOTHING < value < 1 - VIOLATION]
        part = sorted(part, key=lambda suspect: suspect[0])[:SUSPECTS]
        self.suspects = {what: t for t, (_, what) in enumerate(part)}
        self.own = [value for value, _ in part]

    def _tree_cuts(self) -> None:
        """Find ``worth`` and ``policy``; shared parts count at every use, so that the true cut is no larger.

        Inside cycles what is not known yet counts as uncuttable.
        """
        every = np.arange(len(self.suspects))
        unknown = np.full(len(every), math.inf)
        needed: dict[int, list[int]] = {}
        for c, q in self.columns.sources:
            needed.setdefault(c, []).append(q)
            self.worth[c, q] = np.zeros(len(every))
        for c in self.columns.order:
            below: dict[int, np.ndarray] = {}
            for p, some in self.columns.made[c].items():
                total = np.zeros(len(every))
                for x in some:
                    if self.value[x] <= _NOTHING:
                        continue
                    options = np.stack([self.worth[need] for need in self.columns.needs[x]] or [unknown])
                    which = self.policy[x] = options.argmin(axis=0)
                    total += np.minimum(self.value[x], options[which, every])
                if (c, p) in self.suspects:
                    total[self.suspects[c, p]] = 0.0
                below[p] = total
            for q in needed.get(c, ()):
                total = np.zeros(len(every))
                for p, paid, free in self.columns.sources[c, q]:
                    part = below[p] if free else np.minimum(below[p], self.value[paid])
                    if paid in self.suspects and not free:
                        part[self.suspects[paid]] = 0.0
                    total += part
                self.worth[c, q] = total

    def _cut(self, root: Shard, t: int) -> list[int] | None:
        """The minimum cut between a root and the choices without needs, if it is violated.

        Nodes are needs, as (class, placement), and shards, as (class, placement, made).
        """
        sink: tuple[int, ...] = ()
        capacity: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {sink: {}}
        stack: list[tuple[int, ...]] = [root]
        while stack:
            node = stack.pop()
            if node in capacity:
                continue
            edges = capacity[node] = {}
            if len(node) == 2:
                for p, paid, free in self.columns.sources[node]:
                    value = math.inf if free else self.value[paid]
                    if value > _NOTHING and self.made[node[0]][p] > _NOTHING:
                        edges[node[0], p, 1] = value
            else:
                for x in self.columns.made[node[0]][node[1]]:
                    if self.value[x] > _NOTHING:
                        needs = self.columns.needs[x]
                        target = needs[int(self.policy[x][t])] if needs else sink
                        edges[target] = edges.get(target, 0.0) + self.value[x]
            stack += edges
        inside = _minimum_cut(capacity, root, sink)
        return None if inside is None else self._row(inside, t)

    def _row(self, inside: list[tuple[int, ...]], t: int) -> list[int]:
        """The columns that lead out of the nodes inside of a cut."""
        there, row = set(inside), set()
        for node in inside:
            if len(node) == 2:
                for p, paid, free in self.columns.sources[node]:
                    if (node[0], p, 1) not in there:
                        if free:
                            there.add((node[0], p, 1))
                        else:
                            row.add(paid)
        for node in there:
            if len(node) == 3:
                for x in self.columns.made[node[0]][node[1]]:
                    needs = self.columns.needs[x]
                    if x in self.policy:
                        leads_out = not needs or needs[int(self.policy[x][t])] not in there
                    else:  # not in use: its policy is whatever makes the row smaller
                        leads_out = not any(need in there for need in needs)
                    if leads_out:
                        row.add(x)
        return sorted(row)


def _minimum_cut(
    capacity: dict[tuple[int, ...], dict[tuple[int, ...], float]], source: tuple[int, ...], sink: tuple[int, ...]
) -> list[tuple[int, ...]] | None:
    """The nodes on the source's side of a minimum cut of less than 1, or None. Shortest augmenting paths."""
    residual = {node: dict(edges) for node, edges in capacity.items()}
    for node, edges in capacity.items():
        for other in edges:
            residual[other].setdefault(node, 0.0)
    flow = 0.0
    while flow < 1 - VIOLATION:
        parent = {source: source}
        queue = [source]
        for node in queue:
            if sink in parent:
                break
            for other, value in residual[node].items():
                if value > _NOTHING and other not in parent:
                    parent[other] = node
                    queue.append(other)
        if sink not in parent:
            return queue
        path = []
        node = sink
        while node != source:
            path.append((parent[node], node))
            node = parent[node]
        amount = min(residual[a][b] for a, b in path)
        for a, b in path:
            residual[a][b] -= amount
            residual[b][a] += amount
        flow += amount
    return None
