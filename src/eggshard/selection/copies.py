"""Analysis of which classes may pay to be computed twice, at two placements."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eggshard.selection.problem import Problem


class Consumers(NamedTuple):
    """Per class who needs it, and where.

    slots: (consumer, i) for a choice's i-th need of the class, (-1, i) for root i. placements: that some choice or root
    needs.
    """

    slots: list[dict[tuple[int, int], None]]
    placements: list[set[int]]


def consumers(problem: Problem) -> Consumers:
    """Over the choices of finite cost."""
    slots: list[dict[tuple[int, int], None]] = [{} for _ in problem.choices]
    placements: list[set[int]] = [set() for _ in problem.choices]
    for c, choices in enumerate(problem.choices):
        for s in choices:
            if s.cost < math.inf:
                seen: dict[int, int] = {}
                for a, q in s.needs:
                    i = seen.get(a, 0)
                    seen[a] = i + 1
                    slots[a][c, i] = None
                    placements[a].add(q)
    for root, (c, q) in enumerate(problem.roots):
        slots[c][-1, root] = None
        placements[c].add(q)
    return Consumers(slots, placements)


def detour(conversions: np.ndarray, needed: set[int], once: bool = False) -> np.ndarray:
    """``[p', p]``: the most that conversions of a class can cost more if it is made at p' instead of p.

    ``conversions`` has the rows of the outs in question.

    Every need q served from p is then served from p': the sum over needed q of conversion[p', q] - conversion[p, q]
    where positive; the maximum where at most one placement is needed at a time (``once``).
    """
    targets = sorted(needed)
    rows = conversions[:, targets]
    with np.errstate(invalid="ignore"):
        more = rows[:, None, :] - rows[None, :, :]
    more = np.where(np.isnan(more), 0.0, np.maximum(more, 0.0))  # inf - inf: neither serves it
    if not targets:
        return np.zeros((len(conversions), len(conversions)))
    result: np.ndarray = more.max(axis=2) if once else more.sum(axis=2)
    return result


def single_copies(problem: Problem, cyclic: list[bool], users: Consumers | None = None) -> list[bool]:
    """Per class, whether some optimal plan computes it at most once.

    Every plan does where the problem says so. Else two proofs, which apply together since each only drops choices from
    a plan:
    - it has one consumer slot, and that consumer is computed at most once: then one placement is needed;
    - of any two copies one costs at least the detour from the other, and is dropped for conversions from it. Inside a
      cycle the copy that remains must not depend on the dropped one, so there it must hold for either of the two.
    """
    slots, needed = users or consumers(problem)
    single = []
    for c, choices in enumerate(problem.choices):
        if c in problem.single:
            single.append(True)
            continue
        cheapest: dict[int, float] = {}
        for s in choices:
            if s.cost < math.inf:
                cheapest[s.out] = min(s.cost, cheapest.get(s.out, math.inf))
        if len(cheapest) <= 1:
            single.append(True)
            continue
        outs, costs = list(cheapest), np.array(list(cheapest.values()), float)
        # A detour is at least the conversion to the place itself, where that is needed: mostly this decides it.
        some = [i for i, p in enumerate(outs) if p in needed[c]]
        direct = problem.conversions[c][np.ix_([outs[i] for i in some], [outs[i] for i in some])]
        dearer = costs[some] < direct
        if (dearer & dearer.T).any():
            single.append(False)
            continue
        droppable = costs >= detour(problem.conversions[c][outs], needed[c])
        np.fill_diagonal(droppable, True)
        single.append(bool((droppable & droppable.T if cyclic[c] else droppable | droppable.T).all()))
    consumer = [next(iter(some))[0] if len(some) == 1 else None for some in slots]
    changed = True
    while changed:
        changed = False
        for a in range(len(slots) - 1, -1, -1):
            only = consumer[a]
            if not single[a] and only is not None and (only < 0 or single[only]):
                single[a] = changed = True
    return single
