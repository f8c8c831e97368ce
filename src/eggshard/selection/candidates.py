"""Fewer candidate placements of each class: those of the cheapest plans, as far as costs beside each class tell.

What delivering a shard costs is the least over its choices, where a class that several others need is paid for in equal
shares by each. What it costs more than the cheapest of its class, and what it makes dearer on the way to the roots, is
its regret; the least regrets stay. No bound survives this, unlike `reductions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem

Shard = tuple[int, int]

#: How often costs go around a cycle of classes at most.
ROUNDS = 8
#: Relative differences of costs that rounding may cause.
ROUNDING = 1e-9


def within_cap(
    problem: Problem, pinned: Iterable[Shard], axes: Sequence[Sequence[int]], order: Sequence[Sequence[int]], cap: int
) -> list[list[Choice]]:
    """The choices among at most ``cap`` placements of each class, besides the ``pinned`` ones and one simple choice.

    axes[c][p]: over how many axes a placement spreads something; every class keeps its choice over the fewest, mostly
    replication, so that some plan remains. order[c][p]: which of equally cheap placements come first.
    """
    kept: list[set[int]] = [set() for _ in problem.choices]
    for c, p in pinned:
        kept[c].add(p)
    for c, made in enumerate(problem.choices):
        if made:
            plain = min(made, key=lambda x: axes[c][x.out] + sum(axes[w][q] for w, q in x.needs))
            for w, q in ((c, plain.out), *plain.needs):
                kept[w].add(q)
    for c, regret in enumerate(regrets(problem)):
        if len(regret) <= cap:
            kept[c].update(range(len(regret)))
            continue
        finite = np.flatnonzero(regret < np.inf)
        # Sums in another order are no difference.
        unit = ROUNDING * regret[finite].max(initial=0.0) or 1.0
        best = np.lexsort((np.asarray(order[c])[finite], np.round(regret[finite] / unit)))[:cap]
        kept[c].update(finite[best].tolist())
    return [
        [x for x in made if x.out in kept[c] and all(q in kept[w] for w, q in x.needs)]
        for c, made in enumerate(problem.choices)
    ]


def regrets(problem: Problem) -> list[np.ndarray]:
    """Per class and placement what the cheapest plans with it cost more than others, in the units of the costs."""
    graph = Graph(problem)
    rows = _Rows.of(problem)
    rounds = ROUNDS if graph.has_cycles else 1
    with np.errstate(invalid="ignore"):
        near, share = _delivered(problem, rows, graph.order, rounds)
        return _from_roots(problem, rows, graph.order[::-1], rounds, near, share)


class _Rows(NamedTuple):
    """The choices as arrays. Shards are numbered through all classes; the number behind the last stands for none.

    first: per class the number of its first shard. outs, costs, needs: per class of each choice its placement, its
    cost, and the numbers of its needs, filled up with none. users: per class how many others need it.
    """

    first: list[int]
    outs: list[np.ndarray]
    costs: list[np.ndarray]
    needs: list[np.ndarray]
    users: list[int]

    @classmethod
    def of(cls, problem: Problem) -> _Rows:
        first = np.cumsum([0, *(len(table) for table in problem.conversions)]).tolist()
        none, needs = first[-1], []
        users: list[set[int]] = [set() for _ in problem.choices]
        for c, _ in problem.roots:
            users[c].add(-1)
        for c, made in enumerate(problem.choices):
            width = max((len(x.needs) for x in made), default=0)
            listed = [[first[w] + q for w, q in x.needs] + [none] * (width - len(x.needs)) for x in made]
            needs.append(np.array(listed, np.int64).reshape(len(made), width))
            for w in {w for x in made for w, _ in x.needs}:
                users[w].add(c)
        return cls(
            first, [np.array([x.out for x in made], np.int64) for made in problem.choices],
            [np.array([x.cost for x in made], float) for made in problem.choices], needs, [len(u) or 1 for u in users])


def _delivered(
    problem: Problem, rows: _Rows, order: Sequence[int], rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """What delivering each shard costs, and the share of it that each user pays; infinite if it cannot be had."""
    near, share = np.full(rows.first[-1], np.inf), np.full(rows.first[-1] + 1, np.inf)
    share[-1] = 0.0
    for _ in range(rounds):
        cheaper = False
        for c in order:
            here = slice(rows.first[c], rows.first[c + 1])
            made = np.full(here.stop - here.start, np.inf)
            np.minimum.at(made, rows.outs[c], rows.costs[c] + share[rows.needs[c]].sum(axis=1))
            had = made != np.inf
            cost = (made[had, None] + problem.conversions[c][had]).min(axis=0, initial=np.inf)
            cheaper |= bool((cost < near[here]).any())
            near[here], share[here] = cost, cost / rows.users[c]
        if not cheaper:
            break
    return near, share


def _from_roots(
    problem: Problem, rows: _Rows, order: Sequence[int], rounds: int, near: np.ndarray, share: np.ndarray
) -> list[np.ndarray]:
    """The regrets: of the shards themselves, and of what needs them."""
    least = np.zeros_like(share)
    for c in order:
        here = slice(rows.first[c], rows.first[c + 1])
        least[here] = near[here].min(initial=np.inf)
    users = np.ones_like(share)
    users[:-1] = np.repeat(rows.users, [len(table) for table in problem.conversions])
    own = share - least / users
    needed = np.full_like(share, np.inf)
    for c, p in problem.roots:
        root = rows.first[c] + p
        if near[root] < np.inf:  # what is asked of the root is no regret
            needed[root] = min(needed[root], least[root] - near[root])
    kept = np.full_like(near, np.inf)
    for _ in range(rounds):
        before = needed.copy()
        for c in order:
            here = slice(rows.first[c], rows.first[c + 1])
            asked = np.flatnonzero(needed[here] != np.inf)
            made, number = np.unique(rows.outs[c], return_inverse=True)
            had = (problem.conversions[c][np.ix_(made, asked)] + needed[here][asked]).min(axis=1, initial=np.inf)
            total = had[number] + rows.costs[c] + share[rows.needs[c]].sum(axis=1) - least[rows.first[c]]
            kept[here] = np.where(near[here] < np.inf, needed[here] + near[here] - least[here], np.inf)
            possible = total < np.inf
            np.minimum.at(kept, rows.first[c] + rows.outs[c][possible], total[possible])
            for column in rows.needs[c].T:
                np.minimum.at(needed, column[possible], total[possible] - own[column[possible]])
        if np.array_equal(before, needed):
            break
    return [kept[a:b] for a, b in zip(rows.first, rows.first[1:], strict=False)]
