"""Makes a problem smaller without losing its optimum; every step's argument is beside it.

The result is a problem of its own, with fewer classes, choices, placements and needs, and knows the way back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eggshard.extract.copies import detour
from eggshard.extract.problem import Choice, Problem, Selection
from eggshard.extract.verify import complete


@dataclass
class Shrunk:
    """A smaller problem of the same optimum. Tags of its choices are lost; ``origin`` gives each choice's old index."""

    problem: Problem
    original: Problem
    #: classes[new] = old class.
    classes: list[int]
    #: origin[new class][new choice] = old choice.
    origin: list[list[int]]
    #: choice that costs nothing and needs nothing that costs, for dropped needs: old class -> old choices.
    free: dict[int, tuple[int, ...]]
    #: the remaining choice that stands for a dropped one: (old class, old choice) -> new choice.
    stand_in: list[dict[int, int]]

    def lift(self, selection: Selection) -> Selection | None:
        """The original problem's selection, with its own exact cost."""
        chosen: dict[int, tuple[int, ...]] = dict(self.free)
        for c, some in selection.chosen.items():
            old = self.classes[c]
            chosen[old] = tuple(dict.fromkeys((*chosen.get(old, ()), *(self.origin[c][s] for s in some))))
        return complete(self.original, chosen)

    def lower(self, chosen: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """The new choices for the original problem's choices, where they or their stand-ins remain."""
        result = {}
        for c, old in enumerate(self.classes):
            some = tuple(dict.fromkeys(self.stand_in[c][s] for s in chosen.get(old, ()) if s in self.stand_in[c]))
            if some:
                result[c] = some
        return result


def shrink(problem: Problem) -> Shrunk:
    """Drop what no optimal plan needs."""
    alive = [[s.cost < math.inf for s in choices] for choices in problem.choices]
    needs = [[s.needs for s in choices] for choices in problem.choices]
    free = _drop_free_needs(problem, alive, needs)
    _drop_underivable(problem, alive, needs)
    live, needed = _reachable(problem, alive, needs)
    stand_in: dict[tuple[int, int], int] = {}
    for c in live:
        _drop_dominated(problem, c, alive[c], needs[c], needed[c], stand_in)
    live, needed = _reachable(problem, alive, needs)
    return _renumber(problem, sorted(live), alive, needs, needed, free, stand_in)


def _drop_free_needs(
    problem: Problem, alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]]
) -> dict[int, tuple[int, ...]]:
    """Remove needs that can be served at no cost whatever else is chosen (inputs where they lie, constants).

    A class is free at q if a choice of cost 0 whose needs are all free converts to q at no cost. Adding it to a plan
    costs nothing and closes no circle, since it needs nothing else.
    """
    free: dict[int, dict[int, None]] = {}  # class -> its free choices, in order of discovery
    free_at: dict[int, np.ndarray] = {}
    waiting = [(c, s) for c, choices in enumerate(problem.choices) for s, choice in enumerate(choices)
               if choice.cost == 0 and all(any(problem.choices[a][t].cost == 0 for t in range(len(problem.choices[a])))
                                           for a, _ in choice.needs)]
    changed = True
    while changed:
        changed = False
        later = []
        for c, s in waiting:
            choice = problem.choices[c][s]
            if not all(a in free_at and free_at[a][q] for a, q in choice.needs):
                later.append((c, s))
                continue
            reached = problem.conversions[c][choice.out] == 0
            if c not in free_at:
                free_at[c] = reached
            elif (reached & ~free_at[c]).any():
                free_at[c] = reached | free_at[c]
            else:
                continue
            free.setdefault(c, {})[s] = None
            changed = True
        waiting = later
    if free_at:
        for c, choices in enumerate(problem.choices):
            for s in range(len(choices)):
                if alive[c][s] and any(a in free_at and free_at[a][q] for a, q in needs[c][s]):
                    needs[c][s] = tuple((a, q) for a, q in needs[c][s] if not (a in free_at and free_at[a][q]))
    return {c: tuple(some) for c, some in free.items()}


def _drop_underivable(
    problem: Problem, alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]]
) -> None:
    """Keep the choices that some finite derivation uses."""
    missing: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
    queue = []
    for c, row in enumerate(alive):
        for s, ok in enumerate(row):
            if ok:
                missing[c, s] = len(needs[c][s])
                if not needs[c][s]:
                    queue.append((c, s))
                for need in needs[c][s]:
                    waits.setdefault(need, []).append((c, s))
    made: set[tuple[int, int]] = set()
    there: set[tuple[int, int]] = set()
    reach: list[dict[int, list[int]]] = [{} for _ in problem.choices]
    while queue:
        c, s = queue.pop()
        out = problem.choices[c][s].out
        if (c, out) in made:
            continue
        made.add((c, out))
        targets = reach[c].get(out)
        if targets is None:
            targets = reach[c][out] = np.flatnonzero(problem.conversions[c][out] < math.inf).tolist()
        for q in targets:
            if (c, q) not in there:
                there.add((c, q))
                for node in waits.get((c, q), ()):
                    missing[node] -= 1
                    if not missing[node]:
                        queue.append(node)
    for (c, s), count in missing.items():
        if count:
            alive[c][s] = False


def _reachable(
    problem: Problem, alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]]
) -> tuple[list[int], dict[int, set[int]]]:
    """The classes that the roots can lead to, and the placements at which each is needed."""
    needed: dict[int, set[int]] = {}
    stack: list[int] = []
    for c, q in problem.roots:
        if c not in needed:
            needed[c] = set()
            stack.append(c)
        needed[c].add(q)
    while stack:
        c = stack.pop()
        for s, ok in enumerate(alive[c]):
            if ok:
                for a, q in needs[c][s]:
                    if a not in needed:
                        needed[a] = set()
                        stack.append(a)
                    needed[a].add(q)
    return list(needed), needed


def _drop_dominated(
    problem: Problem, c: int, alive: list[bool], needs: list[tuple[tuple[int, int], ...]], needed: set[int],
    stand_in: dict[tuple[int, int], int],
) -> None:
    """Drop choice a for choice b if b's needs are among a's and cost(b) + detour(out(b), out(a)) <= cost(a).

    In any plan with a, put b: its needs are served, what a's out served is served from b's out at no more cost, and
    since b waits for nothing that a did not wait for, no circle closes.
    """
    some = [s for s, ok in enumerate(alive) if ok]
    if len(some) < 2:
        return
    choices = problem.choices[c]
    kinds: dict[tuple[int, int], int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for i, s in enumerate(some):
        for need in needs[s]:
            rows.append(i)
            columns.append(kinds.setdefault(need, len(kinds)))
    uses = np.zeros((len(some), len(kinds) + 1), np.float32)
    uses[rows, columns] = 1.0
    outs = np.array([choices[s].out for s in some])
    cost = np.array([choices[s].cost for s in some])
    distinct, index = np.unique(outs, return_inverse=True)
    subset = uses @ (1.0 - uses).T == 0  # [b, a]: b's needs are among a's
    worse = cost[:, None] + detour(problem.conversions[c][distinct], needed)[np.ix_(index, index)] <= cost[None, :]
    dominates = subset & worse
    np.fill_diagonal(dominates, False)
    if not dominates.any():
        return
    gone = np.zeros(len(some), bool)
    for a in np.lexsort((np.arange(len(some)), cost))[::-1]:  # dearest first; of equals the later goes
        by = np.flatnonzero(dominates[:, a] & ~gone)
        if len(by):
            gone[a] = True
            alive[some[a]] = False
            stand_in[c, some[a]] = some[by[0]]


def _renumber(
    problem: Problem, live: list[int], alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]],
    needed: dict[int, set[int]], free: dict[int, tuple[int, ...]], dominated: dict[tuple[int, int], int],
) -> Shrunk:
    """Number the remaining classes, choices, and placements that are made or needed."""
    new_class = {c: i for i, c in enumerate(live)}
    kept = [[s for s, ok in enumerate(alive[c]) if ok] for c in live]
    placements = [sorted({problem.choices[c][s].out for s in some} | needed[c])
                  for c, some in zip(live, kept, strict=True)]
    number = [{p: i for i, p in enumerate(some)} for some in placements]
    choices = []
    for c, some in zip(live, kept, strict=True):
        row = []
        for s in some:
            old = problem.choices[c][s]
            renamed = tuple([(new_class[a], number[new_class[a]][q]) for a, q in needs[c][s]])
            row.append(Choice(number[new_class[c]][old.out], old.cost, renamed))
        choices.append(row)
    conversions = [problem.conversions[c][np.ix_(some, some)] for c, some in zip(live, placements, strict=True)]
    roots = [(new_class[c], number[new_class[c]][q]) for c, q in problem.roots]
    stand_in = []
    for c, some in zip(live, kept, strict=True):
        table = {s: i for i, s in enumerate(some)}
        for s in range(len(alive[c])):
            end = s
            while (c, end) in dominated:
                end = dominated[c, end]
            if end in table:
                table[s] = table[end]
        stand_in.append(table)
    return Shrunk(Problem(choices, conversions, roots), problem, live, kept, free, stand_in)
