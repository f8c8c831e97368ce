"""Folding of chains of classes into single classes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eggshard.selection.copies import consumers, detour, single_copies
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.reductions.dominance import dominated
from eggshard.selection.reductions.inverse import Origin, Renumbered


def fold_chains(problem: Problem) -> tuple[Problem, Renumbered]:
    """Fold classes into their only consumer; a folded class is left without choices.

    Class u is folded into C if only C needs u, no choice of C needs it twice, neither lies in a cycle, and C is
    computed at most once. Then a plan with C's choice s, which needs (u, q), has one choice t of u and one conversion:
    together they are one choice of C, of the summed cost and the united needs. Conversely such a choice is both. Done
    where it does not add choices: u has one choice, or C is a function of u alone and the composites that are not
    dominated are no more than the choices before. Where u may be computed once C may be from then on: some
    optimal plan computes it at most once.
    """
    problem = replace(problem, choices=list(problem.choices), conversions=list(problem.conversions), seeds=[])
    origin: list[list[Origin]] = [[((c, s),) for s in range(len(row))] for c, row in enumerate(problem.choices)]
    graph = Graph(problem)
    users = slots, needed = consumers(problem)
    single = single_copies(problem, graph.cyclic, users)
    into: dict[int, int] = {}
    for u in graph.order:
        if graph.cyclic[u] or not problem.choices[u] or len(slots[u]) != 1:
            continue
        ((consumer, _),) = slots[u]
        while consumer in into:
            consumer = into[consumer]
        if consumer < 0 or graph.cyclic[consumer] or not single[consumer]:
            continue
        below = [(c, i) for c, i in slots[consumer]]
        once = len(below) == 1 and (below[0][0] < 0 or single[below[0][0]])
        folded = _fold(problem, origin, u, consumer, needed[consumer], once)
        if folded is None:
            continue
        into[u] = consumer
        if u in problem.single:
            problem.single |= {consumer}
        problem.choices[consumer], origin[consumer] = folded
        problem.choices[u], origin[u] = [], []
        problem.conversions[u] = np.zeros((0, 0))
    return problem, Renumbered(origin)


def _fold(
    problem: Problem, origin: list[list[Origin]], u: int, consumer: int, needed: set[int], once: bool
) -> tuple[list[Choice], list[Origin]] | None:
    """The consumer's choices with u's inside, and their origins; None where folding does not pay."""
    lower, upper = problem.choices[u], problem.choices[consumer]
    if len(lower) == 1:
        (t,), (t_origin,) = lower, origin[u]
        conversion = problem.conversions[u][t.out].tolist()
        choices, origins = [], []
        for s, s_origin in zip(upper, origin[consumer], strict=True):
            placement = next((q for a, q in s.needs if a == u), None)
            if placement is not None:
                if conversion[placement] == math.inf:
                    continue
                rest = [need for need in s.needs if need[0] != u]
                s = Choice(s.out, s.cost + t.cost + conversion[placement], tuple(dict.fromkeys([*rest, *t.needs])))
                s_origin = (*s_origin, *t_origin)
            choices.append(s)
            origins.append(s_origin)
        return choices, origins
    if any(len(s.needs) != 1 or s.needs[0][0] != u for s in upper):
        return None
    outs = np.array([s.out for s in upper])
    targets = np.array([s.needs[0][1] for s in upper])
    sources = np.array([t.out for t in lower])
    cost = np.array([s.cost for s in upper], float) + (
        np.array([t.cost for t in lower], float)[:, None] + problem.conversions[u][sources[:, None], targets])  # [t, s]
    distinct, index = np.unique(outs, return_inverse=True)
    more = detour(problem.conversions[consumer][distinct], needed, once)[np.ix_(index, index)]
    # Of the composites with the same t, which have the same needs: [t, by, s].
    better = cost[:, :, None] + more <= cost[:, None, :]
    number = np.arange(len(upper))
    strict = (cost[:, :, None] < cost[:, None, :]) | (
        (cost[:, :, None] == cost[:, None, :]) & (number[:, None] < number))
    kept = np.argwhere((cost < math.inf) & ~(better & strict).any(axis=1)).tolist()
    limit = len(lower) + len(upper)
    if len(kept) > 4 * limit:
        return None
    choices = [Choice(int(outs[s]), float(cost[t, s]), lower[t].needs) for t, s in kept]
    gone = dominated(choices, problem.conversions[consumer], needed, once)
    if len(choices) - len(gone) > limit:
        return None
    origins = [(*origin[consumer][s], *origin[u][t]) for t, s in kept]
    left = [i for i in range(len(choices)) if i not in gone]
    return [choices[i] for i in left], [origins[i] for i in left]
