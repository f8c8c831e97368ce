"""Conversions that no cheapest plan needs: those that may as well happen one op later, or one op earlier.

A conversion of a value with a single consumer *sinks* when the consumer can be computed before the conversion at no
more cost and its result converted instead (a reshard passes an element-wise op). A conversion *rises* when the value
can be computed directly at the converted placement from operands that are converted instead (a slice moves to the
inputs; with other consumers the value is then computed twice). Most pairs of placements of a program are superfluous
in this sense; without them the linear program is many times smaller.

Both accept ties up to `TIE` (relative). They cannot undo each other: all sinking is decided first, each conversion
justified by one further downstream, and a conversion rises only onto conversions that are still possible then. Classes
on cycles are left alone.
"""

from __future__ import annotations

import numpy as np

from eggshard.extract.problem import Choice, Problem

#: Relative cost by which a plan may become dearer per sunk conversion; `SLACK` bounds their sum in a plan.
TIE = 1e-7
SLACK = 1e-5


def prune(problem: Problem) -> Problem:
    """The same problem without superfluous conversions. Its optimum is at most `SLACK` (relative) dearer."""
    consumers = _consumers(problem)
    cyclic = _on_cycles(problem)
    free = _free_costs(problem, cyclic)
    conversions = list(problem.conversions)

    def drop(c: int, superfluous: np.ndarray) -> None:
        np.fill_diagonal(superfluous, False)
        conversions[c] = np.where(superfluous, np.inf, conversions[c])

    movable = [c for c, m in enumerate(conversions) if c not in cyclic and len(m) > 1]
    for c in movable:
        constant = free[c]
        if constant is not None:
            drop(c, _not_cheapest(problem, c, constant))
        elif len(consumers[c]) == 1:
            (consumer,) = consumers[c]
            if consumer >= 0 and consumer not in cyclic:
                drop(c, _sinks(problem, c, consumer, free))
    for c in movable:
        if free[c] is None:
            drop(c, _rises(problem, c, conversions, single=len(consumers[c]) == 1))
    return Problem(problem.choices, conversions, problem.roots, problem.seeds)


def _not_cheapest(problem: Problem, c: int, cost: np.ndarray) -> np.ndarray:
    """``[P, P]`` of a class computed from constants: all but the cheapest way to each placement."""
    made = np.full(len(cost), np.inf)
    for choice in problem.choices[c]:
        made[choice.out] = min(made[choice.out], choice.cost)
    way = made[:, None] + problem.conversions[c]
    best = way.argmin(axis=0)
    direct = np.isfinite(made) & (np.diag(way) <= way.min(axis=0) * (1 + 1e-9))
    best[direct] = np.flatnonzero(direct)
    superfluous = np.ones(way.shape, bool)
    superfluous[best, np.arange(len(cost))] = False
    return superfluous


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
                cost = choice.cost + sum(float(known[q]) for w, q in choice.needs if (known := out[w]) is not None)
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
            if own:
                return result  # needs the class at two placements at once
            continue
        extra = frozenset(n for n in choice.needs if n[0] != c and free[n[0]] is None)
        gratis = sum(float(known[q]) for w, q in choice.needs if (known := free[w]) is not None)
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
    np.logical_and.at(result.T, need, fine.T)
    unused = np.ones(len(mine), bool)
    unused[need] = False
    result[:, unused] = True
    return result


def _rises(problem: Problem, c: int, possible: list[np.ndarray], single: bool) -> np.ndarray:
    """``[P, P]``: instead of converting class c from p to q it may as well be computed at q, from converted operands.

    ``possible``: the conversions that operands may use. A class with a ``single`` consumer is then not computed at p.
    """
    mine = problem.conversions[c]
    count = len(mine)
    groups: dict[tuple[int, ...], list[Choice]] = {}
    for choice in problem.choices[c]:
        groups.setdefault(tuple(w for w, _ in choice.needs), []).append(choice)
    result = np.zeros((count, count), bool)
    result[[choice.out for choice in problem.choices[c]], :] = True
    for classes, choices in groups.items():
        out = np.array([choice.out for choice in choices])
        if not classes or len(set(classes)) != len(classes):
            result[out, :] = False
            continue
        cost = np.array([choice.cost for choice in choices])
        total = np.broadcast_to(cost[None, :], (len(choices), len(choices))).copy()
        for j, w in enumerate(classes):
            q = np.array([choice.needs[j][1] for choice in choices])
            total += possible[w][q[:, None], q[None, :]]
        best = np.full((len(choices), count), np.inf)
        np.minimum.at(best.T, out, total.T)
        saved = cost[:, None] + mine[out] if single else mine[out]
        np.logical_and.at(result, out, best <= saved * (1 + TIE))
    return result
