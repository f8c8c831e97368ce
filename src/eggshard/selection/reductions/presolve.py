"""Presolve: drops what no optimal plan needs; the argument for each step is beside it.

The result has fewer classes, choices, placements and needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eggshard.selection.copies import consumers
from eggshard.selection.graph import strong_components
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.dominance import dominated
from eggshard.selection.reductions.fold import fold_chains
from eggshard.selection.reductions.inverse import Inverse, Origin, Renumbered


def shrink(problem: Problem) -> tuple[Problem, Inverse]:
    """A smaller problem of the same optimum, and the way back."""
    small, presolved = presolve(problem)
    smaller, folded = fold_chains(small)
    return smaller, Inverse(problem, (presolved, folded))


def presolve(problem: Problem) -> tuple[Problem, Renumbered]:
    """Drop free needs, choices that no derivation uses, dominated choices, and what the roots do not lead to."""
    # A choice that needs its own shard would have it computed and converted to, or would wait for itself.
    alive = [[s.cost < math.inf and (c, s.out) not in s.needs for s in choices]
             for c, choices in enumerate(problem.choices)]
    needs = [[s.needs for s in choices] for choices in problem.choices]
    stand_in: dict[tuple[int, int], int] = {}
    free = _drop_free_needs(problem, alive, needs, stand_in)
    _drop_underivable(problem, alive, needs)
    live, needed = _reachable(problem, alive, needs)
    for c in live:
        some = [s for s, ok in enumerate(alive[c]) if ok]
        choices = [problem.choices[c][s]._replace(needs=needs[c][s]) for s in some]
        for gone, by in dominated(choices, problem.conversions[c], needed[c]).items():
            alive[c][some[gone]] = False
            stand_in[c, some[gone]] = some[by]
    live, needed = _reachable(problem, alive, needs)
    smaller, origin = _renumber(problem, sorted(live), alive, needs, needed)
    return smaller, Renumbered(origin, free, stand_in)


def _drop_free_needs(
    problem: Problem, alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]],
    stand_in: dict[tuple[int, int], int],
) -> dict[int, tuple[int, ...]]:
    """Remove needs that can be served at no cost whatever else is chosen (inputs where they lie, constants).

    A class is free at q if a choice of cost 0 whose needs are all free converts to q at no cost. Adding it to a plan
    costs nothing and closes no cycle, since it needs nothing else. A class that may be computed once is free where one
    such choice serves all that anything needs of it; that choice stands in for its others then.
    """
    needed = consumers(problem).placements if problem.single else []
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
            if c in problem.single:
                if c in free_at or not all(reached[q] for q in needed[c]):
                    continue
                free_at[c] = reached
                for t in range(len(alive[c])):
                    if t != s and alive[c][t]:
                        alive[c][t], stand_in[c, t] = False, s
            elif c not in free_at:
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
    operands = [tuple(dict.fromkeys(a for s, ok in enumerate(row) if ok for a, _ in needs[c][s]))
                for c, row in enumerate(alive)]
    made: list[set[int]] = [set() for _ in alive]
    there: list[set[int]] = [set() for _ in alive]  # per class the placements that some derivation reaches
    for members in strong_components(operands):
        changed = True
        while changed:
            changed = False
            for c in members:
                outs = {problem.choices[c][s].out for s, ok in enumerate(alive[c])
                        if ok and all([q in there[a] for a, q in needs[c][s]])}
                if outs != made[c]:
                    made[c] = outs
                    reached = problem.conversions[c][sorted(outs)] < math.inf
                    there[c] = set(np.flatnonzero(reached.any(axis=0)).tolist())
                    changed = len(members) > 1 or c in operands[c]
    for c, row in enumerate(alive):
        alive[c] = [ok and all([q in there[a] for a, q in needs[c][s]]) for s, ok in enumerate(row)]


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


def _renumber(
    problem: Problem, live: list[int], alive: list[list[bool]], needs: list[list[tuple[tuple[int, int], ...]]],
    needed: dict[int, set[int]],
) -> tuple[Problem, list[list[Origin]]]:
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
    conversions = _cut(problem, live, placements)
    roots = [(new_class[c], number[new_class[c]][q]) for c, q in problem.roots]
    origin: list[list[Origin]] = [[((c, s),) for s in some] for c, some in zip(live, kept, strict=True)]
    single = frozenset(new_class[c] for c in problem.single if c in new_class)
    return Problem(choices, conversions, roots, single=single), origin


def _cut(problem: Problem, live: Sequence[int], placements: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The conversions of classes between some placements; those that share a table, and have equal ones, share it."""
    tables: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
    keys = [(id(problem.conversions[c]), tuple(some)) for c, some in zip(live, placements, strict=True)]
    for c, key in zip(live, keys, strict=True):
        if key not in tables:
            tables[key] = problem.conversions[c][np.ix_(key[1], key[1])]
    return [tables[key] for key in keys]
