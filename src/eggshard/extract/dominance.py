"""Conversions that no cheapest plan needs: those that may as well happen one op later, or one op earlier.

A conversion of a value with a single consumer is superfluous when the consumer can be computed before the conversion
at no more cost and its result converted instead (a reshard sinks through an element-wise op), or when the value can
be computed directly at the converted placement from converted operands (a slice rises to the inputs). Most pairs of
placements of a program are superfluous in this sense; without them the linear program is many times smaller.

Sinking accepts ties up to `TIE` (relative), rising demands a strict gain, so the two cannot undo each other, and every
replacement moves a conversion downstream in an acyclic graph or makes the plan cheaper. Classes on cycles are left alone.
"""

from __future__ import annotations

import numpy as np

from eggshard.extract.problem import Choice, Problem

#: Relative cost by which a plan may become dearer per sunk conversion; `SLACK` bounds their sum in a plan.
TIE = 1e-7
SLACK = 1e-5


def prune(problem: Problem) -> Problem:
    """The same problem with superfluous conversions made impossible. Its optimum is at most `SLACK` (relative) dearer."""
    n = len(problem.choices)
    consumers = _consumers(problem)
    cyclic = _on_cycles(problem)
    free = _free_costs(problem, cyclic)
    conversions = list(problem.conversions)
    for c in range(n):
        if c in cyclic or len(consumers[c]) != 1 or len(conversions[c]) < 2 or free[c] is not None:
            continue
        (consumer,) = consumers[c]
        superfluous = np.zeros(conversions[c].shape, bool)
        if consumer >= 0 and consumer not in cyclic:
            superfluous |= _sinks(problem, c, consumer, free)
        superfluous |= _rises(problem, c)
        np.fill_diagonal(superfluous, False)
        if superfluous.any():
            conversions[c] = np.where(superfluous, np.inf, conversions[c])
    return Problem(problem.choices, conversions, problem.roots, problem.seeds)


def _consumers(problem: Problem) -> list[set[int]]:
    """Per class the classes with a choice that needs it; -1 - i for root i."""
    out: list[set[int]] = [set() for _ in problem.choices]
    for c, choices in enumerate(problem.choices):
        for child in {need[0] for choice in choices for need in choice.needs}:
            out[child].add(c)
    for i, (c, _) in enumerate(problem.roots):
        out[c].add(-1 - i)
    return out


def _on_cycles(problem: Problem) -> set[int]:
    """Classes in strongly connected components of more than one class, or that need themselves."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(problem.choices)))
    for c, choices in enumerate(problem.choices):
        graph.add_edges_from((c, child) for child in {need[0] for choice in choices for need in choice.needs})
    out = {c for part in nx.strongly_connected_components(graph) if len(part) > 1 for c in part}
    return out | {c for c in range(len(problem.choices)) if graph.has_edge(c, c)}


def _free_costs(problem: Problem, cyclic: set[int]) -> list[np.ndarray | None]:
    """Per class that is computed from constants alone: what each placement costs from scratch. None for the others."""
    out: list[np.ndarray | None] = [None] * len(problem.choices)
    inputs = _depends_on_input(problem)
    done: set[int] = set()

    def settle(c: int) -> None:
        stack = [c]
        while stack:
            top = stack[-1]
            children = {need[0] for choice in problem.choices[top] for need in choice.needs} - done
            if children:
                stack.extend(children)
                continue
            stack.pop()
            if top in done:
                continue
            done.add(top)
            made = np.full(len(problem.conversions[top]), np.inf)
            for choice in problem.choices[top]:
                cost = choice.cost + sum(float(out[w][q]) for w, q in choice.needs)  # type: ignore[index]
                made[choice.out] = min(made[choice.out], cost)
            out[top] = (made[:, None] + problem.conversions[top]).min(axis=0)

    for c in range(len(problem.choices)):
        if c not in inputs and c not in cyclic and c not in done:
            settle(c)
    return out


def _depends_on_input(problem: Problem) -> set[int]:
    """Classes with a leaf choice that is pinned to one placement (inputs), or that (may) need such a class.

    A class whose choices are all leaves with one placement that converts freely nowhere is an input in effect; to be
    safe, a class counts as constant only if each of its placements costs next to nothing.
    """
    users: list[list[int]] = [[] for _ in problem.choices]
    seen: set[int] = set()
    scale = max((float(np.max(m[np.isfinite(m)], initial=0.0)) for m in problem.conversions), default=0.0)
    for c, choices in enumerate(problem.choices):
        for child in {need[0] for choice in choices for need in choice.needs}:
            users[child].append(c)
        leaves = [choice for choice in choices if not choice.needs]
        if leaves:
            made = np.full(len(problem.conversions[c]), np.inf)
            for choice in leaves:
                made[choice.out] = min(made[choice.out], choice.cost)
            reach = (made[:, None] + problem.conversions[c]).min(axis=0)
            if not (reach <= 1e-9 * scale).all():
                seen.add(c)
        elif not choices:
            seen.add(c)
    stack = list(seen)
    while stack:
        for user in users[stack.pop()]:
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return seen


def _sinks(problem: Problem, c: int, consumer: int, free: list[np.ndarray | None]) -> np.ndarray:
    """``[P, P]``: converting class c from p to q may as well happen after its only consumer."""
    after, mine = problem.conversions[consumer], problem.conversions[c]
    result = np.zeros(mine.shape, bool)
    rows: list[tuple[int, int, float, float, frozenset[tuple[int, int]]]] = []
    for choice in problem.choices[consumer]:
        own = [q for w, q in choice.needs if w == c]
        if len(own) != 1:
            if own or not _harmless(choice, free):
                return result  # needs the class twice, or there is a way around it that must stay comparable
            continue
        extra = frozenset(n for n in choice.needs if n[0] != c and free[n[0]] is None)
        gratis = sum(float(free[w][q]) for w, q in choice.needs if free[w] is not None)  # type: ignore[index]
        rows.append((own[0], choice.out, choice.cost, gratis, extra))
    if not rows:
        return result
    need = np.array([r[0] for r in rows])
    out = np.array([r[1] for r in rows])
    cost = np.array([r[2] for r in rows])
    gratis_costs = np.array([r[3] for r in rows])
    kinds = {extra: i for i, extra in enumerate(dict.fromkeys(r[4] for r in rows))}
    subset = np.array([[a <= b for b in kinds] for a in kinds])
    kind = np.array([kinds[r[4]] for r in rows])
    instead = (cost + gratis_costs)[:, None] + after[out[:, None], out[None, :]]
    instead = np.where(subset[kind[:, None], kind[None, :]], instead, np.inf)
    best = np.full((len(mine), len(rows)), np.inf)
    np.minimum.at(best, need, instead)
    allowed = (cost[None, :] + mine[:, need]) * (1 + TIE)
    fine = best <= allowed
    result[:] = True
    np.logical_and.at(result, (slice(None), need), fine)
    unused = np.ones(len(mine), bool)
    unused[need] = False
    result[:, unused] = True
    return result


def _harmless(choice: Choice, free: list[np.ndarray | None]) -> bool:
    """A choice that does not use the class at all does not care how it is converted."""
    return True


def _rises(problem: Problem, c: int) -> np.ndarray:
    """``[P, P]``: instead of converting class c from p to q, it is strictly cheaper to compute it at q."""
    mine = problem.conversions[c]
    count = len(mine)
    groups: dict[tuple[int, ...], list[Choice]] = {}
    for choice in problem.choices[c]:
        groups.setdefault(tuple(w for w, _ in choice.needs), []).append(choice)
    result = np.ones((count, count), bool)
    for classes, choices in groups.items():
        if not classes or len(set(classes)) != len(classes):
            result[[ch.out for ch in choices], :] = False
            continue
        out = np.array([ch.out for ch in choices])
        cost = np.array([ch.cost for ch in choices])
        total = np.broadcast_to(cost[None, :], (len(choices), len(choices))).copy()
        for j, w in enumerate(classes):
            q = np.array([ch.needs[j][1] for ch in choices])
            total += problem.conversions[w][q[:, None], q[None, :]]
        best = np.full((len(choices), count), np.inf)
        np.minimum.at(best.T, out, total.T)
        fine = best < (cost[:, None] + mine[out]) * (1 - 1e-9)
        np.logical_and.at(result, out, fine)
    made = np.zeros(count, bool)
    made[[ch.out for ch in problem.choices[c]]] = True
    result[~made] = False
    return result
