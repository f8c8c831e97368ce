"""Cover rows: sets of variables of which every plan has at least one, found by minimum cuts.

A *policy* names one need of every choice. Whatever derives a root contains a path of needs, conversions, shards and
choices that follows the policy down to a choice without needs. So a set that cuts all those paths meets every plan,
copies, alternatives and circles included, and its variables sum to at least 1. A minimum cut by the linear program's
values finds a violated one. This is what flows alone miss: consumers that stand in for each other each take a
fraction of a class, and the class or its conversion is paid for one fraction only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eggshard.selection.certify.edge_model import EdgeModel

#: A row must be short of 1 by this much to be worth adding.
VIOLATION = 1e-2
#: The most rows of one round.
ROWS = 30
_NOTHING = 1e-9


class Cover(NamedTuple):
    """``sum of choices' x + sum of pairs' payments >= 1``."""

    choices: tuple[int, ...]
    pairs: tuple[int, ...]


class Covers:
    """Separates cover rows for one edge model.

    Nodes of its graph: needs (class, placement), then shards; the root of each path is a root's need.
    """

    def __init__(self, shape: EdgeModel) -> None:
        self.shape = shape
        width = shape.width
        need_of = shape.slot_class[shape.demand_slot] * width + shape.demand_to
        keys = np.unique(need_of)
        number = {int(key): i for i, key in enumerate(keys)}
        shard, to = np.divmod(shape.pair_key, width)
        #: sources[need]: (shard, pair) of every conversion that can serve it.
        self.sources: list[list[tuple[int, int]]] = [[] for _ in keys]
        for pair, (i, target) in enumerate(
                zip(shard.tolist(), (shape.shard_class[shard] * width + to).tolist(), strict=True)):
            self.sources[number[target]].append((i, pair))
        #: members[shard]: its choices' columns; needs[column]: the needs of a choice.
        self.members: list[list[int]] = [[] for _ in shape.shard_key]
        for column, i in zip(shape.shard_x.tolist(), shape.x_shard.tolist(), strict=True):
            self.members[i].append(column)
        self.needs: list[list[int]] = [[] for _ in range(shape.choices)]
        for column, demand in zip(shape.term_x.tolist(), shape.term_demand.tolist(), strict=True):
            self.needs[column].append(number[int(need_of[demand])])
        self.roots = [number[int(key)] for key in need_of[shape.demand_root]]
        self.free: list[bool] = (shape.pair_cost == 0).tolist()
        #: Shards and needs by class.
        self.shards_of: dict[int, list[int]] = {}
        self.needs_of: dict[int, list[int]] = {}
        for i, c in enumerate(shape.shard_class.tolist()):
            self.shards_of.setdefault(c, []).append(i)
        for i, key in enumerate(keys.tolist()):
            self.needs_of.setdefault(key // width, []).append(i)

    def separate(self, x: np.ndarray, paid: np.ndarray, carried: np.ndarray) -> list[Cover]:
        """Violated rows. Values by column, payment by pair (what its cost is charged for), flow by pair.

        Suspects are conversions and shards that serve more than they are paid for. Each is tried as the neck of all
        paths: the policy is then to make for it wherever that leaves least beside it.
        """
        self.x, self.paid = x.tolist(), paid.tolist()
        made = np.bincount(self.shape.x_shard, weights=x[self.shape.shard_x], minlength=len(self.shape.shard_key))
        self.made = made.tolist()
        leaving = np.bincount(
            self.shape.pair_key // self.shape.width, weights=carried, minlength=len(self.shape.shard_key))
        costly = self.shape.pair_cost > 0
        pairs = np.flatnonzero(costly & (paid > _NOTHING) & (paid < 1 - VIOLATION) & (carried > 1.01 * paid)).tolist()
        shards = np.flatnonzero((made > _NOTHING) & (made < 1 - VIOLATION) & (leaving > 1.01 * made)).tolist()
        if not pairs and not shards:
            return []
        worth, policies = self._tree_cuts(pairs, shards)
        own = np.concatenate([paid[pairs], made[shards]])
        covers: dict[Cover, None] = {}
        for root in self.roots:
            total = worth[root] + own
            for t in np.argsort(total, kind="stable").tolist():
                if total[t] >= 1 - VIOLATION or len(covers) >= ROWS:
                    break
                cover = self._cut(root, policies, t)
                if cover is not None:
                    covers[cover] = None
        return list(covers)

    def _tree_cuts(
        self, pairs: list[int], shards: list[int]
    ) -> tuple[list[np.ndarray], dict[int, tuple[list[int], np.ndarray]]]:
        """(worth, policies): per need and suspect t, a bound on the cut below the need if t costs nothing to cut.

        policies[column] = (needs, ``[T]`` index of the need that is cheapest to cut). The bound counts shared parts at
        every use, so the true cut is no larger. Inside circles what is not known yet counts as uncuttable.
        """
        suspects = len(pairs) + len(shards)
        pair_suspect = {pair: t for t, pair in enumerate(pairs)}
        shard_suspect = {shard: t + len(pairs) for t, shard in enumerate(shards)}
        unknown = np.full(suspects, math.inf)
        every = np.arange(suspects)
        single = np.zeros(suspects, np.int64)
        worth: list[np.ndarray] = [unknown] * len(self.sources)
        policies: dict[int, tuple[list[int], np.ndarray]] = {}
        below: dict[int, np.ndarray] = {}
        for c in self.shape.graph.order:
            for shard in self.shards_of.get(c, ()):
                if self.made[shard] <= _NOTHING:
                    continue
                total = np.zeros(suspects)
                for column in self.members[shard]:
                    value, needs = self.x[column], self.needs[column]
                    if value <= _NOTHING:
                        continue
                    if not needs:
                        total += value
                    elif len(needs) == 1:
                        policies[column] = (needs, single)
                        total += np.minimum(value, worth[needs[0]])
                    else:
                        options = np.stack([worth[need] for need in needs])
                        which = options.argmin(axis=0)
                        policies[column] = (needs, which)
                        total += np.minimum(value, options[which, every])
                if shard in shard_suspect:
                    total[shard_suspect[shard]] = 0.0
                below[shard] = total
            for need in self.needs_of.get(c, ()):
                total = np.zeros(suspects)
                for shard, pair in self.sources[need]:
                    if shard in below and (self.free[pair] or self.paid[pair] > _NOTHING):
                        part = below[shard]
                        if not self.free[pair]:
                            part = np.minimum(part, self.paid[pair])  # a copy, changed below
                            if pair in pair_suspect:
                                part[pair_suspect[pair]] = 0.0
                        total += part
                worth[need] = total
        return worth, policies

    def _cut(self, root: int, policies: dict[int, tuple[list[int], np.ndarray]], t: int) -> Cover | None:
        """The minimum cut between a root and the choices without needs, if it is violated."""
        offset = len(self.sources)  # shards' nodes follow those of the needs
        sink = -1
        capacity: dict[int, dict[int, float]] = {sink: {}}
        stack = [root]
        while stack:
            node = stack.pop()
            if node in capacity:
                continue
            edges = capacity[node] = {}
            if node < offset:
                for shard, pair in self.sources[node]:
                    value = math.inf if self.free[pair] else self.paid[pair]
                    if value > _NOTHING and self.made[shard] > _NOTHING:
                        edges[offset + shard] = value
                        stack.append(offset + shard)
            else:
                for column in self.members[node - offset]:
                    value = self.x[column]
                    if value > _NOTHING:
                        needs, which = policies.get(column, ([], None))
                        target = needs[int(which[t])] if which is not None else sink
                        edges[target] = edges.get(target, 0.0) + value
                        if target != sink:
                            stack.append(target)
        reached = _minimum_cut(capacity, root, sink)
        if reached is None:
            return None
        choices, pairs = set(), set()
        seen = set(reached)
        for node in reached:
            if node < offset:
                for shard, pair in self.sources[node]:
                    if offset + shard not in seen:
                        if self.free[pair]:
                            seen.add(offset + shard)
                        else:
                            pairs.add(pair)
        for node in seen:
            if node >= offset:
                for column in self.members[node - offset]:
                    if column in policies and self.x[column] > _NOTHING:
                        needs, which = policies[column]
                        inside = needs[int(which[t])] in seen
                    else:  # not in use: its policy is whatever makes the row smaller
                        inside = any(need in seen for need in self.needs[column])
                    if not inside:
                        choices.add(column)
        return Cover(tuple(sorted(choices)), tuple(sorted(pairs)))


def _minimum_cut(capacity: dict[int, dict[int, float]], source: int, sink: int) -> list[int] | None:
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
